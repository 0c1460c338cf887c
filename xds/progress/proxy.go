package progress

import (
	"slices"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/transcript"
)

// Proxy is how far one proxy has come, on one stream or on several.
type Proxy struct {
	*discovery.Proxy
	// Since is when its newest stream began, and Variant the protocol of that stream.
	Since   time.Time
	Variant protocol.Variant
	// Facts are what the agent of its machine says; nil without an agent. ProofEnds is when the
	// certificate ends that its stream was opened with; zero without one.
	Facts     *node.Facts
	ProofEnds time.Time
	// Traffic is what its newest stream has cost.
	Traffic transcript.Traffic
	// Generation is the number of the newest push that all its streams have advanced to.
	Generation uint64
	// Types holds the types of the server, in its order.
	Types []Type
}

// add takes over the types that a newer stream of the proxy requested.
func (p *Proxy) add(newer Proxy) {
	p.Since, p.Traffic, p.Generation = newer.Since, newer.Traffic, min(p.Generation, newer.Generation)
	for i := range newer.Types {
		if newer.Types[i].State != protocol.NotSent {
			p.Types[i] = newer.Types[i]
		}
	}
}

// judge returns the gravest outcome of a revision among the types that the proxy
// requests.
func (p *Proxy) judge(of func(*Type, int64) outcome, revision int64) outcome {
	v := notConcerned
	for i := range p.Types {
		if p.Types[i].State != protocol.NotSent {
			v = max(v, of(&p.Types[i], revision))
		}
	}
	return v
}

// outcomeNow returns how the proxy took everything that was published up to a push.
func (p *Proxy) outcomeNow(generation uint64) outcome {
	out := accepted
	if p.Generation < generation {
		return waiting
	}
	for i := range p.Types {
		switch p.Types[i].State {
		case protocol.Stale:
			return waiting
		case protocol.Rejected:
			out = rejected
		}
	}
	return out
}

// Note is how far the proxy of one connection had come after its last turn. The
// connection writes it; any goroutine may read it.
type Note struct {
	mu    sync.Mutex // guards the fields below
	proxy *discovery.Proxy
	facts *node.Facts
	types []Type // in the order of the server; nil before the first turn has ended
	// revision and generation are the values of the last turn.
	revision   int64
	generation uint64
}

// Identify sets the proxy.
func (n *Note) Identify(proxy *discovery.Proxy) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proxy = proxy
}

// SetFacts sets what the agent of the proxy's machine says, which nobody may change then.
func (n *Note) SetFacts(facts *node.Facts) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.facts = facts
}

// Node returns the id of the proxy; "unknown" before Identify.
func (n *Note) Node() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proxy == nil {
		return "unknown"
	}
	return n.proxy.ID
}

// Revision returns the revision of the last Write. Only the connection may call it.
func (n *Note) Revision() int64 { return n.revision }

// Write updates all types at a revision and a push. of returns a type by its index.
func (n *Note) Write(revision int64, generation uint64, types int, of func(place int) *Type) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.types == nil {
		n.types = make([]Type, types)
	}
	n.revision, n.generation = revision, generation
	for i := range n.types {
		if t := of(i); t.idle == 0 || n.types[i].idle != t.idle {
			n.types[i] = *t
		}
	}
}

// Read returns how far the proxy has come; false before the first turn has ended.
func (n *Note) Read() (Proxy, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.types == nil {
		return Proxy{}, false
	}
	p := Proxy{Proxy: n.proxy, Facts: n.facts, Generation: n.generation, Types: slices.Clone(n.types)}
	for i := range p.Types {
		if t := &p.Types[i]; t.idle != 0 && t.State == protocol.Synced {
			t.AckedRevision, t.AckedIgnoringRejected, t.Desired = n.revision, n.revision, n.revision
		}
	}
	return p, true
}
