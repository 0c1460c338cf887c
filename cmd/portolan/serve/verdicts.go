package serve

import (
	"context"
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// verdictSource provides the facts for verdicts: the moment of the xDS server, the reports of all
// servers on the proxies that they have met and the resources that they could not build, and what this
// server cannot follow.
type verdictSource struct {
	*server
	keys *keyFaults
}

// Facts implements index.Source.
func (s verdictSource) Facts() (verdict.Facts, bool) {
	w, known := s.xds.Moment()
	return s.with(w), known
}

// WouldBe implements index.Source.
func (s verdictSource) WouldBe(ops []storage.Op) (is, would verdict.Facts, known bool) {
	now, then, known := s.xds.WouldBe(ops)
	return s.with(now), s.with(then), known
}

func (s verdictSource) with(w xds.Moment) verdict.Facts {
	out := verdict.Facts{Mesh: w.Context, Registries: w.Registries, Minute: time.Now().Unix() / 60}
	if w.Context != nil {
		out.KeyFaults = s.keys.faultsIn(w.Context.Inputs().Configs)
		out.FlagClusters, out.ClusterFaults = s.flagClusters, s.remote.Faults()
		out.SecretNamespaces = s.secretNamespaces
		out.Selects = len(s.o.Clusters)+len(s.o.ConfigKube) > 0
	}
	if facts, _ := s.statusCache.Reports(); facts != nil {
		out.Proxies, out.Replicas = facts.Proxies, facts.Replicas
	}
	return out
}

// Handled implements index.Source. It waits until the worker has done all tasks posted before.
func (s verdictSource) Handled(ctx context.Context) error {
	done := make(chan struct{})
	s.worker.Post(done, func() { close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
