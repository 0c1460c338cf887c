package serve

import (
	"context"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// verdictSource has the facts of verdicts: the world of the server of proxies, and the
// reports of all servers: which proxies they have met, and what they could not build.
type verdictSource struct {
	xds    *xds.DiscoveryServer
	side   *statuses.Cache
	worker *cache.Worker
	keys   *keyFaults
}

// Facts implements index.Source.
func (s verdictSource) Facts() (verdict.Facts, bool) {
	w, known := s.xds.World()
	return s.with(w), known
}

// WouldBe implements index.Source.
func (s verdictSource) WouldBe(ops []storage.Op) (is, would verdict.Facts, known bool) {
	now, then, known := s.xds.WouldBe(ops)
	return s.with(now), s.with(then), known
}

func (s verdictSource) with(w xds.World) verdict.Facts {
	out := verdict.Facts{Mesh: w.Context, Registries: w.Registries, Minute: time.Now().Unix() / 60}
	if w.Context != nil {
		out.KeyFaults = s.keys.of(w.Context.Inputs().Configs)
	}
	if facts, _ := s.side.Facts(); facts != nil {
		out.Proxies, out.Replicas = facts.Proxies, facts.Replicas
	}
	return out
}

// Handled implements index.Source: it returns when the worker has done all tasks that
// waited.
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
