package mesh

import (
	"maps"
	"slices"
	"sync"

	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// merged has the merged gateways of routers, each merged once for all classes of routers that
// run the same Gateways on the same ports. Contexts with the same Gateways share it. It is safe for concurrent
// use.
type merged struct {
	mu     sync.Mutex // guards the fields below
	byWhat map[what]*routing.MergedGateway
	// before are those of an earlier context: what is equal is shared, so that == tells what
	// has not changed.
	before map[what]*routing.MergedGateway
}

// what is what a merged gateway follows from, beside the Gateways themselves.
type what struct{ gateways, wildcard, ports string }

// next is for a context with other Gateways. It does not keep earlier ones alive.
func (m *merged) next() *merged {
	out := &merged{byWhat: map[what]*routing.MergedGateway{}}
	if m == nil {
		return out
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if out.before = m.byWhat; len(m.byWhat) == 0 {
		out.before = m.before // nobody asked in between
	} else {
		m.byWhat = maps.Clone(m.byWhat) // it may grow
	}
	return out
}

// of is the merged gateway of a router's view.
func (m *merged) of(v *View) *routing.MergedGateway {
	w := what{v.class.Gateways, v.class.Shape.Wildcard(), v.class.Ports}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.byWhat[w]
	if out == nil {
		gateways := slices.DeleteFunc(v.gateways(), func(g *routing.Gateway) bool { return g == nil })
		out = routing.MergeGateways(gateways, w.wildcard, routing.ParseTargetPorts(w.ports)).Indexed(m.before[w])
		m.byWhat[w] = out
	}
	return out
}
