package xds_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// inputs makes the Inputs of a mesh of n services in 20 namespaces, with an HTTP port and
// two endpoints each.
func inputs(n int) mesh.Inputs {
	in := mesh.Inputs{MeshFile: meshconfig.Default(), Configs: cache.NewSnapshot(1, pmap.Map[*config.Config]{})}
	for i := range n {
		h, ns := host.Name(fmt.Sprintf("s%d.example", i)), fmt.Sprintf("n%d", i%20)
		key := rows.Key(h, ns)
		in.Services = in.Services.Set(key, rows.NewService([]*discovery.Service{{
			Hostname: h, Address: discovery.UnspecifiedIP,
			Ports:      []discovery.Port{{Name: "http", Number: 9080, Protocol: discovery.HTTP}},
			Attributes: discovery.Attributes{Provider: discovery.External, Name: string(h), Namespace: ns},
		}}, nil))
		in.Endpoints = in.Endpoints.Set(key, endpointRow(h, ns, 1))
	}
	return in
}

func endpointRow(h host.Name, namespace string, weight uint32) *mesh.EndpointRow {
	row := &mesh.EndpointRow{Hostname: h, Namespace: namespace}
	for i := range 2 {
		row.Endpoints = append(row.Endpoints, &discovery.Endpoint{
			Address: fmt.Sprintf("10.0.0.%d", i+1), Port: 9080, ServicePortName: "http", Weight: weight,
			Labels: labels.Instance{"version": "v1"}, Namespace: namespace,
		})
	}
	return row
}

// rig is a proxy in a mesh of n services: its desired resources, and the subscription to
// its endpoints.
type rig struct {
	in           mesh.Inputs
	push         *mesh.PushContext
	member       xdstest.Member
	subscription *protocol.Subscription
	weight       uint32
}

func newRig(tb testing.TB, n int) *rig {
	tb.Helper()
	r := &rig{in: inputs(n), weight: 1, subscription: protocol.New(protocol.Type{}, protocol.Delta)}
	r.push = mesh.New(r.in)
	r.member = xdstest.NewGroups(catalogue.Types(), func() *mesh.PushContext { return r.push }).Join(xdstest.Node{Namespace: "n1"}.Proxy(tb))
	r.member.Follow()
	endpoints := r.member.Set("EDS")
	var names []string
	for name := range endpoints.Keys() {
		names = append(names, name)
	}
	if len(names) != n {
		tb.Fatalf("%d endpoint resources for %d services", len(names), n)
	}
	r.subscription.SetDesired(endpoints, 1)
	r.subscription.Request(protocol.Request{Subscribe: protocoltest.NameSet(names...)})
	response, _ := r.subscription.Next(protocoltest.Everything())
	r.subscription.Request(protocol.Request{Nonce: response.Nonce})
	return r
}

// change gives one service other endpoints, and carries that to the response and its ACK.
func (r *rig) change(tb testing.TB) {
	r.weight++
	key := rows.Key("s7.example", "n7")
	r.in.Endpoints = r.in.Endpoints.Set(key, endpointRow("s7.example", "n7", r.weight))
	r.push = r.push.Next(r.in)
	r.member.Follow()
	r.subscription.SetDesired(r.member.Set("EDS"), int64(r.weight))
	response, ok := r.subscription.Next(protocoltest.Everything())
	if !ok || len(response.Resources) != 1 {
		tb.Fatalf("the response is %+v", response)
	}
	r.subscription.Request(protocol.Request{Nonce: response.Nonce})
}

// TestOneEndpointCostsTheSameInAnyMesh: one changed endpoint among 2,000 services, or
// 10,000, takes at most twice the allocations that it takes among 100.
func TestOneEndpointCostsTheSameInAnyMesh(t *testing.T) {
	services := longtest.Histories(2_000, 10_000)
	small, large := newRig(t, 100), newRig(t, services)
	few := testing.AllocsPerRun(50, func() { small.change(t) })
	many := testing.AllocsPerRun(50, func() { large.change(t) })
	t.Logf("%.0f allocations among 100 services, %.0f among %d", few, many, services)
	if many > 2*few {
		t.Errorf("%.0f allocations among %d services, %.0f among 100", many, services, few)
	}
}

// BenchmarkPush is one changed endpoint from inputs to response, without the
// wire.
func BenchmarkPush(b *testing.B) {
	for _, n := range []int{100, 5_000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			r := newRig(b, n)
			b.ReportAllocs()
			for b.Loop() {
				r.change(b)
			}
		})
	}
}

// BenchmarkApplyToAck is the time from a write to the store until a delta client
// on loopback has the change, the registry and gRPC included.
func BenchmarkApplyToAck(b *testing.B) {
	for _, n := range []int{100, 5_000} {
		for _, change := range []string{"endpoint", "route"} {
			b.Run(fmt.Sprintf("%s/services=%d", change, n), func(b *testing.B) { applyToAck(b, n, change) })
		}
	}
}

func applyToAck(b *testing.B, n int, change string) {
	s := xdstest.NewServer(b, catalogue.Types())
	var all strings.Builder
	for i := range n {
		all.WriteString("---\n" + service(fmt.Sprintf("s%d", i), 9080, "10.1.0.1"))
	}
	s.Apply(all.String())
	c := xdstest.Dial(b, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: protocol.Delta, Follow: true})
	c.Subscribe(xdstest.ClusterType)
	c.Subscribe(xdstest.ListenerType)
	c.Await("all endpoints and routes", func(held func(string) map[string]xdstest.Held) bool {
		return len(held(xdstest.EndpointType)) == n && len(held(xdstest.RouteType)) == 1
	})
	typeURL := map[string]string{"endpoint": xdstest.EndpointType, "route": xdstest.RouteType}[change]
	count := len(c.Answers(typeURL))
	i := 0
	for b.Loop() {
		i++
		if change == "endpoint" {
			s.Apply(service("s7", 9080, fmt.Sprintf("10.2.%d.%d", i/250%250, i%250+1)))
		} else {
			s.Apply(route("s7", fmt.Sprintf("s%d", i%7)))
		}
		c.AwaitAnswer(typeURL, count)
		count++
	}
}
