package relay

import (
	"context"
	"slices"
	"strconv"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// A keptStream stands in for a server: it answers a client from what is kept of it. It never
// removes anything, and says nothing of what it does not have.
type keptStream[Q, P any] struct {
	answer func(Q) (P, bool)

	mu    sync.Mutex
	queue []P
	more  chan struct{}
}

// link starts the stream.
func (k *keptStream[Q, P]) link(ctx context.Context) *link[Q, P] {
	ctx, cancel := context.WithCancel(ctx)
	l := &link[Q, P]{responses: make(chan P), cancel: cancel, send: k.take}
	k.more = make(chan struct{}, 1)
	go func() {
		_, _ = l.pump(ctx, func() (P, error) { return k.next(ctx) })
	}()
	return l
}

func (k *keptStream[Q, P]) take(r Q) error {
	out, ok := k.answer(r)
	if !ok {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue = append(k.queue, out)
	select {
	case k.more <- struct{}{}:
	default:
	}
	return nil
}

func (k *keptStream[Q, P]) next(ctx context.Context) (out P, err error) {
	for {
		k.mu.Lock()
		if len(k.queue) > 0 {
			out, k.queue = k.queue[0], k.queue[1:]
			k.mu.Unlock()
			return out, nil
		}
		k.mu.Unlock()
		select {
		case <-k.more:
		case <-ctx.Done():
			return out, ctx.Err()
		}
	}
}

// keptDelta answers in the delta variant.
type keptDelta struct {
	kept  map[string]*discoveryv3.DeltaDiscoveryResponse
	types map[string]*deltaType // has is what was sent, or stated
	nonce int
}

func (k *keptDelta) answer(r *discoveryv3.DeltaDiscoveryRequest) (*discoveryv3.DeltaDiscoveryResponse, bool) {
	t, known := k.types[r.GetTypeUrl()]
	if !known {
		t = &deltaType{url: r.GetTypeUrl(), all: len(r.GetResourceNamesSubscribe()) == 0, names: map[string]struct{}{}, has: map[string]held{}}
		for name, version := range r.GetInitialResourceVersions() {
			t.has[name] = held{version: version}
		}
		k.types[t.url] = t
	}
	t.subscribe(r)
	out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: t.url}
	for _, resource := range k.kept[t.url].GetResources() {
		if name := resource.GetName(); t.wants(name, resource.GetAliases()) && t.has[name].version != resource.GetVersion() {
			t.has[name] = held{version: resource.GetVersion(), body: resource}
			out.Resources = append(out.Resources, resource)
		}
	}
	if len(out.Resources) == 0 {
		return nil, false
	}
	k.nonce++
	out.Nonce = strconv.Itoa(k.nonce)
	return out, true
}

// keptWorld answers in state of the world.
type keptWorld struct {
	kept  map[string]*discoveryv3.DeltaDiscoveryResponse
	asked map[string][]string // the names of each type that it has answered for
	nonce int
}

func (k *keptWorld) answer(r *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, bool) {
	kept := k.kept[r.GetTypeUrl()]
	names, again := k.asked[r.GetTypeUrl()]
	k.asked[r.GetTypeUrl()] = r.GetResourceNames()
	if kept == nil || again && slices.Equal(names, r.GetResourceNames()) || !again && r.GetVersionInfo() == kept.GetSystemVersionInfo() {
		return nil, false
	}
	k.nonce++
	out := &discoveryv3.DiscoveryResponse{TypeUrl: r.GetTypeUrl(), VersionInfo: kept.GetSystemVersionInfo(), Nonce: strconv.Itoa(k.nonce)}
	for _, resource := range kept.GetResources() {
		out.Resources = append(out.Resources, resource.GetResource())
	}
	return out, true
}
