package mcp

import (
	"context"
	"fmt"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// outbox sends requests in order, on a goroutine of its own. So a peer that sends
// without reading does not block the reader.
type outbox[M any] struct {
	wake chan struct{} // has capacity one

	mu      sync.Mutex // guards pending
	pending []M
}

func newOutbox[M any]() *outbox[M] { return &outbox[M]{wake: make(chan struct{}, 1)} }

func (o *outbox[M]) put(m M) {
	o.mu.Lock()
	o.pending = append(o.pending, m)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox[M]) all() []M {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.pending
	o.pending = nil
	return out
}

// run sends until ctx or the stream ends. The reader gets the reason why a stream ended.
func (o *outbox[M]) run(ctx context.Context, send func(M) error) {
	for {
		for _, m := range o.all() {
			if send(m) != nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		}
	}
}

type deltaWire struct {
	cache  *Cache
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	out    *outbox[*discoveryv3.DeltaDiscoveryRequest]
	last   *discoveryv3.DeltaDiscoveryResponse
}

// followDelta returns errNoDelta if the peer has none.
func (c *Cache) followDelta(ctx context.Context, client discoveryv3.AggregatedDiscoveryServiceClient) (followed bool, err error) {
	var sending sync.WaitGroup
	defer sending.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.DeltaAggregatedResources(ctx)
	if err != nil {
		return false, endReason(err)
	}
	w := &deltaWire{cache: c, stream: stream, out: newOutbox[*discoveryv3.DeltaDiscoveryRequest]()}
	sending.Go(func() { w.out.run(ctx, stream.Send) })
	followed, err = c.converse(w, Delta)
	if status.Code(err) == codes.Unimplemented && !followed {
		return false, fmt.Errorf("%w: %s", errNoDelta, status.Convert(err).Message())
	}
	return followed, endReason(err)
}

func (w *deltaWire) request(t *typeState, node *corev3.Node) {
	w.out.put(&discoveryv3.DeltaDiscoveryRequest{
		Node: node, TypeUrl: t.kind.GroupVersionKind.String(), InitialResourceVersions: t.versions(),
	})
}

func (w *deltaWire) receive() (*answer, string, error) {
	m, err := w.stream.Recv()
	if err != nil {
		return nil, "", err
	}
	w.last = m
	a := &answer{of: w.cache.types[m.GetTypeUrl()], removed: m.GetRemovedResources()}
	if a.of == nil {
		return a, m.GetTypeUrl(), nil
	}
	decoder := w.cache.decoder()
	for _, r := range m.GetResources() {
		a.resources = append(a.resources, decoder.decode(a.of.kind, r.GetName(), r.GetVersion(), r.GetResource()))
	}
	return a, m.GetTypeUrl(), nil
}

func (w *deltaWire) reply(refused *statuspb.Status) {
	w.out.put(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: w.last.GetTypeUrl(), ResponseNonce: w.last.GetNonce(), ErrorDetail: refused})
}

// wholeWire is a state-of-the-world stream.
type wholeWire struct {
	cache    *Cache
	stream   discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	out      *outbox[*discoveryv3.DiscoveryRequest]
	last     *discoveryv3.DiscoveryResponse
	versions map[string]string // acknowledged, by type URL
}

// followWhole follows the peer in the state of the world.
func (c *Cache) followWhole(ctx context.Context, client discoveryv3.AggregatedDiscoveryServiceClient) (followed bool, err error) {
	var sending sync.WaitGroup
	defer sending.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.StreamAggregatedResources(ctx)
	if err != nil {
		return false, endReason(err)
	}
	w := &wholeWire{cache: c, stream: stream, out: newOutbox[*discoveryv3.DiscoveryRequest](), versions: map[string]string{}}
	sending.Go(func() { w.out.run(ctx, stream.Send) })
	followed, err = c.converse(w, StateOfTheWorld)
	return followed, endReason(err)
}

func (w *wholeWire) request(t *typeState, node *corev3.Node) {
	w.out.put(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: t.kind.GroupVersionKind.String()})
}

func (w *wholeWire) receive() (*answer, string, error) {
	m, err := w.stream.Recv()
	if err != nil {
		return nil, "", err
	}
	w.last = m
	a := &answer{of: w.cache.types[m.GetTypeUrl()], whole: true}
	if a.of == nil {
		return a, m.GetTypeUrl(), nil
	}
	decoder := w.cache.decoder()
	for _, r := range m.GetResources() {
		a.resources = append(a.resources, decoder.decode(a.of.kind, "", "", r))
	}
	return a, m.GetTypeUrl(), nil
}

func (w *wholeWire) reply(refused *statuspb.Status) {
	typeURL := w.last.GetTypeUrl()
	if refused == nil {
		w.versions[typeURL] = w.last.GetVersionInfo()
	}
	w.out.put(&discoveryv3.DiscoveryRequest{
		TypeUrl: typeURL, VersionInfo: w.versions[typeURL], ResponseNonce: w.last.GetNonce(), ErrorDetail: refused,
	})
}
