package mesh_test

import (
	"fmt"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// BenchmarkNextHeadless has a pod of a headless service of 1,000 come and go.
func BenchmarkNextHeadless(b *testing.B) {
	l := newLarge(0)
	s := &discovery.Service{
		Hostname: name(0), Address: discovery.UnspecifiedIP, Resolution: discovery.Passthrough,
		Ports:      []discovery.Port{{Name: "tcp", Number: 5432, Protocol: discovery.TCP}},
		Attributes: discovery.Attributes{Provider: discovery.Kubernetes, Name: string(name(0)), Namespace: "shop"},
	}
	key := rows.Key(name(0), "shop")
	l.in.Services = l.in.Services.Set(key, rows.NewService([]*discovery.Service{s}, nil))
	var pods []*discovery.Endpoint
	for i := range 1000 {
		pods = append(pods, &discovery.Endpoint{Address: fmt.Sprintf("10.1.%d.%d", i>>8, i&255), Port: 5432, ServicePortName: "tcp"})
	}
	with := func(pods []*discovery.Endpoint) mesh.Inputs {
		l.in.Endpoints = l.in.Endpoints.Set(key, &mesh.EndpointRow{Hostname: name(0), Namespace: "shop", Endpoints: pods})
		return l.commit()
	}
	inputs := []mesh.Inputs{with(pods), with(pods[:999])}
	push := mesh.New(inputs[0])
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		push = push.Next(inputs[(i+1)%2])
	}
}
