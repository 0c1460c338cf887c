package fleet

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/integration/load/raw"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// minBackoff and maxBackoff bound how long a proxy waits before it reconnects.
const minBackoff, maxBackoff = 100 * time.Millisecond, 5 * time.Second

// inOrder are the types in the order in which a proxy requests them on a new stream.
var inOrder = []string{ClusterType, EndpointType, ListenerType, RouteType, VirtualHostType, SecretType, ExtensionType}

// childOf and secondChildOf are the types that a proxy requests because of what it has of
// another.
var (
	childOf       = map[string]string{ClusterType: EndpointType, ListenerType: RouteType}
	secondChildOf = map[string]string{ClusterType: SecretType, ListenerType: ExtensionType}
)

// proxy is one proxy of a fleet. It has one stream at a time.
type proxy struct {
	fleet *Fleet
	index int

	mu     sync.Mutex // guards the fields below
	counts Counts
	tries  int
	open   bool                     // it has a stream
	rising phase                    // of the stream
	types  map[string]*subscription // of the stream, or of the last, by type URL
}

// phase is how far a proxy's first sync on a stream is.
type phase int

const (
	fresh phase = iota // has received nothing
	rises              // it was sent something, and no listeners
	risen
)

// enter sets the phase of a proxy, and updates the fleet's count.
func (p *proxy) enter(to phase) {
	switch from := p.rising; {
	case from != rises && to == rises:
		p.fleet.rising.add(1)
	case from == rises && to != rises:
		p.fleet.rising.add(-1)
	}
	p.rising = to
}

// subscription is the state of a proxy's subscription to a type.
type subscription struct {
	has            *holding // what it has, if it states that
	version, nonce string   // of the last response
	parents        *holding // where its names come from; nil for a wildcard
	due            int      // names without an answer
	answered       bool
}

func newProxy(f *Fleet, index int) *proxy {
	return &proxy{fleet: f, index: index, counts: Counts{}}
}

// run keeps a stream open until ctx ends.
func (p *proxy) run(ctx context.Context) {
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := p.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		p.fleet.failed(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff/2 + rand.N(backoff)):
		}
	}
}

// stream opens a stream and follows it to its end.
func (p *proxy) stream(ctx context.Context) error {
	var over *tls.Config
	if p.fleet.o.TLS != nil {
		over = p.fleet.o.TLS(p.index)
	}
	s, err := raw.OpenTLS(ctx, *p.fleet.address.Load(), methods[p.fleet.o.Variant], over)
	if err != nil {
		return err
	}
	s.Heard = func() { p.fleet.heard.Store(time.Now().UnixNano()) }
	defer p.end()
	defer s.Close()
	requests := p.begin()
	for {
		for _, request := range requests {
			s.Send(request)
		}
		if !s.More() {
			if err := s.Flush(); err != nil {
				return err
			}
		}
		response, err := s.Receive()
		if err != nil {
			return err
		}
		if requests, err = p.take(response, time.Now()); err != nil {
			return err
		}
	}
}

// end forgets the state of the stream, except what the next one states.
func (p *proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = false
	p.enter(fresh)
	if !p.fleet.o.States {
		p.types = nil
	}
}

// begin returns the first requests of a stream.
func (p *proxy) begin() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries++
	p.open = true
	if p.types == nil {
		p.types = map[string]*subscription{ClusterType: {has: nothing}, ListenerType: {has: nothing}}
	}
	var out [][]byte
	for _, typeURL := range inOrder {
		if t := p.types[typeURL]; t != nil {
			t.reopen()
			out = append(out, p.first(typeURL, t, len(out) == 0))
		}
	}
	return out
}

// reopen forgets the state of the last stream.
func (t *subscription) reopen() {
	t.nonce = ""
	if t.parents != nil {
		t.due = t.parents.lacks(t.has)
		t.answered = t.due == 0
	}
}

// first returns the first request for a type: for everything, or for what the parents name. It
// states what the proxy has. The first request of a stream has the node.
func (p *proxy) first(typeURL string, t *subscription, node bool) []byte {
	var out []byte
	at := p.fleet.at
	if node {
		message, err := proto.Marshal(p.fleet.o.Node(p.index))
		if err != nil {
			panic(err) // happens only for text that is not UTF-8
		}
		out = protowire.AppendBytes(protowire.AppendTag(out, at.node, protowire.BytesType), message)
	}
	out = raw.AppendText(out, at.typeURL, typeURL)
	out = raw.AppendText(out, at.version, t.version)
	if t.parents != nil {
		out = appendNames(out, at.subscribe, t.parents.all())
	}
	has := t.has.stated(at.initial)
	p.fleet.stated.Add(int64(len(has)))
	return append(out, has...)
}

// take handles a response, and returns the requests that follow: the acknowledgement, and
// requests for what it names.
func (p *proxy) take(bytes []byte, now time.Time) ([][]byte, error) {
	r, err := readResponse(bytes, p.fleet.at)
	if err != nil {
		return nil, err
	}
	d, err := p.fleet.digests.digestOf(r)
	if err != nil {
		return nil, err
	}
	p.fleet.last.Store(now.UnixNano())
	if p.index == 0 && p.fleet.o.Record != nil {
		p.fleet.o.Record(r.typeURL, bytes)
	}
	p.mu.Lock()
	requests := p.answer(r, d)
	p.mu.Unlock()
	if receipt := p.fleet.receipt.Load(); receipt != nil {
		receipt.received(p.index, d, bytes, now)
	}
	return requests, nil
}

// answer must be called with mu held.
func (p *proxy) answer(r response, d *digest) [][]byte {
	p.counts[r.typeURL] = p.counts[r.typeURL].plus(Count{1, int64(len(d.names)), int64(len(d.removed)), int64(len(r.bytes))}, 1)
	switch {
	case r.typeURL == ListenerType:
		p.enter(risen)
	case p.rising == fresh:
		p.enter(rises)
	}
	t := p.types[r.typeURL]
	if t == nil {
		t = &subscription{has: nothing} // the server sent it unrequested
		p.types[r.typeURL] = t
	}
	t.version, t.nonce, t.answered = r.version, r.nonce, true
	t.due = max(0, t.due-len(d.names)-len(d.removed))
	if p.fleet.o.statesVersions() {
		t.has = p.fleet.steps.take(t.has, d, false).to
	}
	out := [][]byte{p.acknowledge(r.typeURL, t)}
	if child, parent := childOf[r.typeURL]; parent {
		out = append(out, p.adopt(child, d)...)
	}
	if d.second != nil {
		out = append(out, p.adopt(secondChildOf[r.typeURL], d.second)...)
	}
	if d.hosts && p.types[VirtualHostType] == nil {
		t := &subscription{has: nothing, answered: true} // answered: there may be none
		p.types[VirtualHostType] = t
		out = append(out, p.first(VirtualHostType, t, false))
	}
	return out
}

// adopt requests the children of the resources in a response.
func (p *proxy) adopt(child string, d *digest) [][]byte {
	t := p.types[child]
	from := nothing
	if t != nil {
		from = t.parents
	}
	world := p.fleet.o.Variant == protocol.StateOfTheWorld
	taken := p.fleet.steps.take(from, d, world)
	if t == nil {
		if len(taken.to.wanted) == 0 {
			return nil
		}
		t = &subscription{has: nothing}
		p.types[child] = t
	}
	t.parents = taken.to
	if len(taken.more)+len(taken.fewer) == 0 {
		return nil
	}
	t.due += len(taken.more)
	at := p.fleet.at
	out := raw.AppendText(nil, at.typeURL, child)
	if world {
		return [][]byte{p.acknowledge(child, t)}
	}
	out = appendNames(out, at.subscribe, taken.more)
	return [][]byte{appendNames(out, at.unsubscribe, taken.fewer)}
}

// acknowledge returns the ACK of the last response of a type. In state of the world it repeats
// the names.
func (p *proxy) acknowledge(typeURL string, t *subscription) []byte {
	at := p.fleet.at
	out := raw.AppendText(nil, at.typeURL, typeURL)
	out = raw.AppendText(out, at.nonce, t.nonce)
	if p.fleet.o.Variant == protocol.Delta {
		return out
	}
	out = raw.AppendText(out, at.version, t.version)
	if t.parents != nil {
		out = appendNames(out, at.subscribe, t.parents.all())
	}
	return out
}

// synced reports whether all requests were answered.
func (p *proxy) synced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open {
		return false
	}
	for _, t := range p.types {
		if !t.answered || t.due > 0 {
			return false
		}
	}
	return true
}

func (p *proxy) addTo(all Counts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for typeURL, count := range p.counts {
		all[typeURL] = all[typeURL].plus(count, 1)
	}
}

// reconnects returns how many streams were opened after the first.
func (p *proxy) reconnects() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.tries-1)
}
