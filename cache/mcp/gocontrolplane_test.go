package mcp_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	xdscache "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/log"
	xdsserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	mcpv1 "istio.io/api/mcp/v1alpha1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mcp"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestConformanceWithALibrary runs the suite of caches with go-control-plane's server as
// the peer, in delta. In the state of the world that library sends only changed
// resources of types that it does not know, whereas istiod and Portolan send all.
func TestConformanceWithALibrary(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, func(t testing.TB) cachetest.Subject {
		l := newLibrary(t)
		c, worker := follow(t, &peer{address: l.address}, mcp.Delta)
		store := &served{Store: memory.New(schema.Pilot(), memory.Options{}), t: t, publish: l.set}
		return cachetest.Subject{Cache: c, Store: store, Worker: worker, ReadOnly: true, Settled: func(ctx context.Context, version string) (*cache.Snapshot, error) {
			return store.contents.Shown(ctx, c, version)
		}}
	})
}

// library is the server of go-control-plane.
type library struct {
	t       testing.TB
	address string
	cache   xdscache.SnapshotCache

	mu      sync.Mutex // guards the fields below
	content map[string]types.Resource
	round   int
}

// one is the hash of a single node.
type one struct{}

// ID implements xdscache.NodeHash.
func (one) ID(*corev3.Node) string { return "one" }

func newLibrary(t testing.TB) *library {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &library{
		t: t, address: listener.Addr().String(), cache: xdscache.NewSnapshotCache(false, one{}, log.LoggerFuncs{}), content: map[string]types.Resource{},
	}
	l.set(entries, nil)
	ctx, cancel := context.WithCancel(context.Background())
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, xdsserver.NewServer(ctx, l.cache, nil))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { cancel(); server.Stop(); serving.Wait() })
	return l
}

// named is a resource with a name for the library.
type named struct{ *mcpv1.Resource }

// GetName implements types.ResourceWithName.
func (n named) GetName() string { return n.GetMetadata().GetName() }

// set changes service entries.
func (l *library) set(_ string, resources map[string]resource) {
	l.mu.Lock()
	defer l.mu.Unlock()
	content := maps.Clone(l.content)
	for name, r := range resources {
		if r.any == nil {
			delete(content, name)
			continue
		}
		m := &mcpv1.Resource{}
		if err := r.any.UnmarshalTo(m); err != nil {
			l.t.Error(err)
		}
		content[name] = named{m}
	}
	l.content = content
	l.round++
	if err := l.cache.SetSnapshot(context.Background(), "one", &oneKind{content, fmt.Sprint(l.round)}); err != nil {
		l.t.Error(err)
	}
}

// oneKind is a snapshot of service entries. Other kinds have no objects.
type oneKind struct {
	resources map[string]types.Resource
	version   string
}

func (c *oneKind) resourcesOf(typeURL string) map[string]types.Resource {
	if typeURL == entries {
		return c.resources
	}
	return nil
}

// GetVersion implements xdscache.ResourceSnapshot.
func (c *oneKind) GetVersion(typeURL string) string {
	if typeURL == entries {
		return c.version
	}
	return "none"
}

// GetResources implements xdscache.ResourceSnapshot.
func (c *oneKind) GetResources(typeURL string) map[string]types.Resource {
	return c.resourcesOf(typeURL)
}

// GetResourcesAndTTL implements xdscache.ResourceSnapshot.
func (c *oneKind) GetResourcesAndTTL(typeURL string) map[string]types.ResourceWithTTL {
	out := map[string]types.ResourceWithTTL{}
	for name, r := range c.resourcesOf(typeURL) {
		out[name] = types.ResourceWithTTL{Resource: r}
	}
	return out
}

// ConstructVersionMap implements xdscache.ResourceSnapshot.
func (c *oneKind) ConstructVersionMap() error { return nil }

// GetVersionMap implements xdscache.ResourceSnapshot.
func (c *oneKind) GetVersionMap(typeURL string) map[string]string {
	out := map[string]string{}
	for name, r := range c.resourcesOf(typeURL) {
		bytes, err := xdscache.MarshalResource(r)
		if err != nil {
			continue
		}
		out[name] = xdscache.HashResource(bytes)
	}
	return out
}
