package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// overload is the strength of an attack.
type overload struct {
	connections, streams int // of so many streams each
	names                int // on each of eight streams
	watches              int
	endpoints, versions  int // of a large object
	changes              int // to measure
	memory               float64
}

// healthyFleet has proxies that follow one service.
type healthyFleet struct {
	s       *server
	clients []*xdstest.Client
	version int
}

const healthyCluster = "outbound|80||healthy.shop.example"

func startHealthy(t *testing.T, s *server, n int) *healthyFleet {
	t.Helper()
	return startHealthyAt(t, s, n, s.xds, nil)
}

// startHealthyAt is startHealthy at an address, with some credentials.
func startHealthyAt(t *testing.T, s *server, n int, address string, by credentials.TransportCredentials) *healthyFleet {
	t.Helper()
	f := &healthyFleet{s: s}
	f.put(t)
	for i := range n {
		node := xdstest.NewNode("sidecar", fmt.Sprintf("10.7.0.%d", i+1), fmt.Sprintf("healthy-%d", i), "shop", nil)
		c := xdstest.Dial(t, address, xdstest.ClientOptions{Node: node, Variant: protocol.Delta, Credentials: by})
		c.Subscribe(xdstest.ClusterType)
		c.Subscribe(xdstest.EndpointType, healthyCluster)
		c.Subscribe(xdstest.ListenerType)
		f.clients = append(f.clients, c)
	}
	f.await()
	return f
}

// put changes the service.
func (f *healthyFleet) put(t *testing.T) {
	t.Helper()
	f.version++
	document := strings.ReplaceAll(heavy(1, f.version), "heavy", "healthy")
	f.s.putObject(t, "healthy", strings.Replace(document, "10.100.0.0", f.address(), 1))
}

func (f *healthyFleet) address() string {
	return fmt.Sprintf("10.50.%d.%d", f.version/250, f.version%250)
}

// await waits until all proxies have the newest change, and returns how long each took.
func (f *healthyFleet) await() []time.Duration {
	began := time.Now()
	took := make([]time.Duration, len(f.clients))
	var all sync.WaitGroup
	for i, c := range f.clients {
		all.Go(func() {
			c.Await("the change", func(held func(string) map[string]xdstest.Held) bool {
				var assignment endpointv3.ClusterLoadAssignment
				body := held(xdstest.EndpointType)[healthyCluster].Body
				return body != nil && proto.Unmarshal(body.GetValue(), &assignment) == nil && strings.Contains(assignment.String(), f.address())
			})
			took[i] = time.Since(began)
		})
	}
	all.Wait()
	return took
}

// measure makes changes, and returns the 99th percentile of the proxies' times.
func (f *healthyFleet) measure(t *testing.T, changes int) time.Duration {
	t.Helper()
	var all []time.Duration
	for range changes {
		f.put(t)
		all = append(all, f.await()...)
	}
	slices.Sort(all)
	return all[(len(all)*99+99)/100-1] // nearest rank: at most 99 in 100 take less
}

// TestSoakOverload attacks a server with fifty proxies in several ways. For each way, the
// memory stays within bounds, changes reach the proxies, a new proxy is served, and the memory
// is freed.
func TestSoakOverload(t *testing.T) {
	o := overload{connections: 3, streams: 100, names: 20_000, watches: 100, endpoints: 1_000, versions: 10, changes: 5, memory: 600 << 20}
	until := time.Now()
	long := longtest.Soak(t)
	if long > 0 {
		o = overload{connections: 90, streams: 100, names: 1_000_000, watches: 3_000, endpoints: 8_000, versions: 80, changes: 100, memory: 2 << 30}
		until = until.Add(long)
	}
	s := startServer(t, serverOptions{})
	healthy := startHealthy(t, s, 50)
	attacks := []struct {
		name  string
		begin func(t *testing.T, a *attack)
	}{
		{"silent streams", func(t *testing.T, a *attack) {
			a.streams(t, s, o.connections, o.streams, func(int, discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {})
		}},
		{"fragments of requests", func(t *testing.T, a *attack) { a.fragments(t, s, o.connections, o.streams) }},
		{"streams that never read", func(t *testing.T, a *attack) { a.streams(t, s, max(1, o.connections/15), o.streams, asks) }},
		{"names", func(t *testing.T, a *attack) {
			for i := range 8 {
				message := namesOf(t, fmt.Sprint("names-", i), i*o.names, o.names)
				a.running.Go(func() { _ = ask(a.ctx, s, message) }) // the server may refuse it
			}
		}},
		{"watches that never read", func(t *testing.T, a *attack) {
			a.deafTo(t, s, o.watches, "/apis/networking.istio.io/v1/serviceentries?watch=true")
			for i := range o.versions {
				s.putHeavy(t, heavy(o.endpoints, i))
			}
		}},
		{"lists that nobody reads", func(t *testing.T, a *attack) {
			a.deafTo(t, s, o.watches, "/apis/networking.istio.io/v1/serviceentries")
		}},
	}
	usual := healthy.measure(t, o.changes)
	before := s.resident()
	t.Logf("a change takes %s to 99 in 100, resident memory is %.0f MiB", usual, before/(1<<20))
	for round := 0; round == 0 || time.Now().Before(until); round++ {
		for _, one := range attacks {
			a := newAttack(t)
			one.begin(t, a)
			under := healthy.measure(t, o.changes)
			resident := s.resident()
			t.Logf("%s: a change takes %s, resident memory is %.0f MiB", one.name, under, resident/(1<<20))
			if long > 0 && under > 3*usual+20*time.Millisecond {
				t.Errorf("%s: a change takes %s to 99 in 100: it took %s", one.name, under, usual)
			}
			if resident > o.memory {
				t.Errorf("%s: resident memory is %.0f MiB", one.name, resident/(1<<20))
			}
			expectNewcomer(t, s, "newcomer")
			a.end()
		}
	}
	if long == 0 {
		return // it may take a minute
	}
	deadline := time.Now().Add(time.Minute)
	for s.resident() > 1.5*before+(200<<20) { // the large object, and its history of 64 MiB, remain
		if time.Now().After(deadline) {
			t.Fatalf("a minute later resident memory is %.0f MiB: it was %.0f MiB", s.resident()/(1<<20), before/(1<<20))
		}
		time.Sleep(time.Second)
	}
}
