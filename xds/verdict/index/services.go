package index

import (
	"context"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
	"github.com/portolan-mesh/portolan/xds/verdict/workload"
)

// serviceKind is the kind by which findings name a service.
var serviceKind = config.GroupVersionKind{Group: "portolan.io", Version: "v1", Kind: "Service"}

// mutual remembers since when the endpoints of registries say that they take mutual TLS. Their
// registries do not know. A server that starts begins anew.
type mutual struct {
	mu    sync.Mutex
	as    *mesh.PushContext         // guarded by mu: what was looked at
	since pmap.Map[pmap.Map[int64]] // guarded by mu: minutes, by row of endpoints and address
}

// at returns since when, as of some facts. Its cost follows what changed.
func (m *mutual) at(facts verdict.Facts) pmap.Map[pmap.Map[int64]] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.as == facts.Mesh {
		return m.since
	}
	delta, was := mesh.Diff(m.as, facts.Mesh), m.since
	if delta.Whole {
		m.since = pmap.Map[pmap.Map[int64]]{}
	}
	for c := range delta.Endpoints() {
		var now pmap.Map[int64]
		for shard, e := range c.New.ByShard() {
			if !workload.OfRegistry(shard) || e.TLSMode != discovery.TLSModeIstio {
				continue
			}
			since, known := was.Value(c.Key).Get(e.Address)
			if !known {
				since = facts.Minute
			}
			now = now.Set(e.Address, since)
		}
		if now.Len() > 0 {
			m.since = m.since.Set(c.Key, now)
		} else {
			m.since = m.since.Delete(c.Key)
		}
	}
	m.as = facts.Mesh
	return m.since
}

// Run remembers, until ctx ends, since when the endpoints of registries say what they say.
func (k *Keeper) Run(ctx context.Context) error {
	const often = 10 * time.Second
	for {
		if facts, known := k.source.Facts(); known {
			k.mutual.at(facts)
		}
		if retry.Sleep(ctx, often) != nil {
			return nil
		}
	}
}

// OfService returns the findings about the endpoints of a service that have no object.
func (k *Keeper) OfService(row *mesh.ServiceRow) []finding.Finding {
	x := k.Index()
	if x == nil {
		return nil
	}
	return x.ofService(row, k.mutual.at(x.world.Facts))
}

// ofServices returns the findings about all services.
func (x *Index) ofServices(since pmap.Map[pmap.Map[int64]]) (out []finding.Finding) {
	for row := range x.world.Mesh.HostRows() {
		for _, s := range row.Services {
			out = append(out, x.ofService(s, since)...)
		}
	}
	return out
}

func (x *Index) ofService(row *mesh.ServiceRow, since pmap.Map[pmap.Map[int64]]) (out []finding.Finding) {
	j := verdict.NewJudge(&x.world, nil)
	workload.Service(j, row, since.Value(rows.Key(row.Hostname, row.Namespace)))
	_, verdicts := j.Outcome()
	for _, v := range verdicts {
		out = append(out, findingOf(config.Key{Kind: serviceKind, Namespace: row.Namespace, Name: string(row.Hostname)}, v))
	}
	return out
}
