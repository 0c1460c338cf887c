package mesh_test

import (
	"fmt"
	"slices"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// large is a mesh of n services, each with an endpoint, a VirtualService and a
// DestinationRule.
type large struct {
	in       mesh.Inputs
	configs  pmap.Map[*config.Config]
	revision int64
}

func newLarge(n int) *large {
	l := &large{in: mesh.Inputs{MeshFile: meshconfig.Default()}}
	for i := range n {
		l.service(i, "HTTP")
		l.endpoint(i, "10.0.0.1")
		l.route(i, "first")
		l.rule(i, "first")
	}
	l.commit()
	return l
}

func name(i int) host.Name { return host.Name(fmt.Sprintf("s%d.shop.example", i)) }

func (l *large) service(i int, protocol discovery.Protocol) {
	l.in.Services = l.in.Services.Set(rows.Key(name(i), "shop"), rows.NewService([]*discovery.Service{{
		Hostname: name(i), Address: fmt.Sprintf("10.1.%d.%d", i>>8, i&255),
		Ports:      []discovery.Port{{Name: "http", Number: 80, Protocol: protocol}},
		Attributes: discovery.Attributes{Name: string(name(i)), Namespace: "shop"},
	}}, nil))
}

func (l *large) endpoint(i int, address string) {
	l.in.Endpoints = l.in.Endpoints.Set(rows.Key(name(i), "shop"), &mesh.EndpointRow{
		Hostname: name(i), Namespace: "shop", Endpoints: []*discovery.Endpoint{{Address: address, Port: 80, ServicePortName: "http"}},
	})
}

func (l *large) put(kind string, i int, c *config.Config) {
	c.GroupVersionKind = config.GroupVersionKind{Group: "networking.istio.io", Version: "v1", Kind: kind}
	c.Name, c.Namespace = fmt.Sprint("o", i), "shop"
	l.configs = l.configs.Set(c.Key().Path(), c)
}

func (l *large) route(i int, header string) {
	l.put("VirtualService", i, &config.Config{Spec: &networking.VirtualService{
		Hosts: []string{string(name(i))},
		Http: []*networking.HTTPRoute{{Name: header, Route: []*networking.HTTPRouteDestination{
			{Destination: &networking.Destination{Host: string(name(i))}},
		}}},
	}})
}

func (l *large) rule(i int, subset string) {
	l.put("DestinationRule", i, &config.Config{Spec: &networking.DestinationRule{
		Host: string(name(i)), Subsets: []*networking.Subset{{Name: subset}},
	}})
}

func (l *large) commit() mesh.Inputs {
	l.revision++
	l.in.Configs = cache.NewSnapshot(l.revision, l.configs)
	return l.in
}

// BenchmarkNext makes one change in a mesh of 1,000 services, back and forth. It then
// makes the queries of one class for the rows that differ.
func BenchmarkNext(b *testing.B) {
	for _, tc := range []struct {
		name   string
		change func(l *large, odd bool)
	}{
		{"endpoint", func(l *large, odd bool) { l.endpoint(500, map[bool]string{true: "10.0.0.2", false: "10.0.0.1"}[odd]) }},
		{"service", func(l *large, odd bool) {
			l.service(500, map[bool]discovery.Protocol{true: discovery.TCP, false: discovery.HTTP}[odd])
		}},
		{"route", func(l *large, odd bool) { l.route(500, fmt.Sprint(odd)) }},
		{"rule", func(l *large, odd bool) { l.rule(500, fmt.Sprint(odd)) }},
	} {
		b.Run(tc.name, func(b *testing.B) {
			l := newLarge(1000)
			push := mesh.New(l.in)
			tc.change(l, true)
			other := push.Next(l.commit()).Inputs()
			inputs := []mesh.Inputs{push.Inputs(), other}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				push = push.Next(inputs[(i+1)%2])
			}
		})
		b.Run(tc.name+" and keys", func(b *testing.B) {
			l := newLarge(1000)
			push := mesh.New(l.in)
			tc.change(l, true)
			other := push.Next(l.commit()).Inputs()
			inputs := []mesh.Inputs{push.Inputs(), other}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				next := push.Next(inputs[(i+1)%2])
				if len(mesh.Diff(push, next).Keys()) == 0 {
					b.Fatal("nothing changed")
				}
				push = next
			}
		})
	}
}

// BenchmarkNew builds the context of 1,000 services from nothing.
func BenchmarkNew(b *testing.B) {
	l := newLarge(1000)
	b.ReportAllocs()
	for b.Loop() {
		mesh.New(l.in)
	}
}

// BenchmarkView makes the queries of a cluster, a listener and a route, recording.
func BenchmarkView(b *testing.B) {
	view := mesh.NewView(mesh.New(newLarge(1000).in), mesh.Class{Namespace: "shop", Shape: mesh.Shape{Type: discovery.Sidecar, IPv4: true}})
	b.ReportAllocs()
	for b.Loop() {
		v := view.Recording()
		l := v.Egress()[0]
		s := v.ServiceAt(l, name(500))
		v.Endpoints(s)
		v.Rule(s)
		v.VirtualServiceAt(l, name(500))
		v.PortUsed(l, service.PortHTTP, 80)
		v.RouteDelta()
		if !slices.Contains(slices.Collect(v.HostsAt("10.1.1.244")), string(name(500))) {
			b.Fatal("not found")
		}
	}
}
