package relay

import (
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// book is the bookkeeping of one client's stream: Q are its requests, P the responses. It does no
// I/O. One goroutine uses it.
type book[Q, P any] interface {
	// attach begins with a new upstream, and returns the requests that restate the client.
	attach() []Q
	// detach ends with the upstream: until attach, requests only change the book.
	detach()
	// fromClient takes a request, and returns what the upstream is to be told; false for nothing.
	fromClient(Q) (Q, bool)
	// fromServer takes a response of the upstream, and returns it for the client.
	fromServer(P) P
	// state returns what the client has acknowledged, without secrets, to be kept.
	state() []*discoveryv3.DeltaDiscoveryResponse
	// settled says whether the client has something, so that a server may have nothing to say to it.
	settled() bool
	// changes counts the changes of state.
	changes() uint64
	// node is the client, nil before its first request.
	node() *corev3.Node
}

// unknownVersion is stated for a resource of which the client may have any form. No server gives
// this version, so each sends the resource, or says that it is gone.
const unknownVersion = "relay-unknown"

// ledger is what the books of both variants have alike. T is the bookkeeping of one type.
type ledger[T any] struct {
	client   *corev3.Node
	types    map[string]*T
	order    []*T // as the client first asked
	kept     map[string]*discoveryv3.DeltaDiscoveryResponse
	current  generation
	attached bool
	greeted  bool // the upstream has been told the node
	changed  uint64
}

func newLedger[T any](kept map[string]*discoveryv3.DeltaDiscoveryResponse) ledger[T] {
	return ledger[T]{types: map[string]*T{}, kept: kept}
}

func (l *ledger[T]) node() *corev3.Node { return l.client }
func (l *ledger[T]) changes() uint64    { return l.changed }

// add adds a type at its first request.
func (l *ledger[T]) add(url string, t *T) {
	l.types[url] = t
	l.order = append(l.order, t)
}

// attachTo begins with a new upstream, and returns what restates the types.
func attachTo[T, Q any](l *ledger[T], restate func(*T) (Q, bool)) []Q {
	l.current++
	l.attached, l.greeted = true, false
	var out []Q
	for _, t := range l.order {
		if r, ok := restate(t); ok {
			out = append(out, r)
		}
	}
	return out
}

// A generation numbers the upstreams of a client's stream.
type generation uint64

// mark makes a nonce for the client, which is unique over all upstreams.
func (g generation) mark(nonce string) string {
	return strconv.FormatUint(uint64(g), 10) + "." + nonce
}

// unmark returns the nonce of the upstream of this generation; false for a nonce of another one.
func (g generation) unmark(nonce string) (string, bool) {
	of, rest, ok := strings.Cut(nonce, ".")
	return rest, ok && of == strconv.FormatUint(uint64(g), 10)
}
