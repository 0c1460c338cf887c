package mesh

import (
	"maps"
	"slices"
	"sync"

	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// merged caches the merged gateways of routers. All classes of routers with the same
// Gateways and ports share one. Contexts with the same Gateways share the cache. It is
// safe for concurrent use.
type merged struct {
	mu    sync.Mutex // guards the fields below
	byKey map[mergedKey]*routing.MergedGateway
	// before has the merged gateways of an earlier context. New ones reuse its equal
	// parts, so that == shows what is unchanged.
	before map[mergedKey]*routing.MergedGateway
}

// mergedKey holds all that a merged gateway depends on, besides the Gateways themselves.
type mergedKey struct {
	gateways        class.Attached
	wildcard, ports string
}

// next returns the cache of a context with other Gateways. It keeps at most one earlier
// generation alive.
func (m *merged) next() *merged {
	out := &merged{byKey: map[mergedKey]*routing.MergedGateway{}}
	if m == nil {
		return out
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if out.before = m.byKey; len(m.byKey) == 0 {
		out.before = m.before // no merged gateway was built in between
	} else {
		m.byKey = maps.Clone(m.byKey) // it may grow
	}
	return out
}

// gateway returns the merged gateway of a router's view.
func (m *merged) gateway(v *View) *routing.MergedGateway {
	w := mergedKey{v.class.Attached.Of(class.Gateway), v.class.Shape.Wildcard(), v.class.Ports}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.byKey[w]
	if out == nil {
		gateways := slices.DeleteFunc(v.gateways(), func(g *routing.Gateway) bool { return g == nil })
		out = routing.MergeGateways(gateways, w.wildcard, routing.ParseTargetPorts(w.ports)).Indexed(m.before[w])
		m.byKey[w] = out
	}
	return out
}
