// Package patchtest has EnvoyFilters as users publish them, and messages that these patch.
package patchtest

import (
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy/patch"
)

// Base is a message that patches are tried on.
type Base struct {
	Name    string
	Place   patch.Place
	Message proto.Message
}

const (
	inbound  = networking.EnvoyFilter_SIDECAR_INBOUND
	outbound = networking.EnvoyFilter_SIDECAR_OUTBOUND
	gateway  = networking.EnvoyFilter_GATEWAY
)

// Bases returns the messages, in a fixed order. Each call makes them anew.
func Bases(t testing.TB) []Base {
	t.Helper()
	all := []Base{
		{"bootstrap", patch.Place{}, &bootstrapv3.Bootstrap{}},
		{"choosing", patch.Place{Context: outbound}, &clusterv3.Cluster{}},
		{"cluster", patch.Place{Context: outbound}, &clusterv3.Cluster{}},
		{"gateway", patch.Place{Context: gateway}, &listenerv3.Listener{}},
		{"gatewayroutes", patch.Place{Context: gateway, Ports: "443 8443"}, &routev3.RouteConfiguration{}},
		{"inbound", patch.Place{Context: inbound}, &listenerv3.Listener{}},
		{"inboundcluster", patch.Place{Context: inbound, Hosts: "web.example.com www.example.com"}, &clusterv3.Cluster{}},
		{"outbound", patch.Place{Context: outbound}, &listenerv3.Listener{}},
		{"routes", patch.Place{Context: outbound}, &routev3.RouteConfiguration{}},
		{"socket", patch.Place{Context: outbound}, &listenerv3.Listener{}},
		{"tcp", patch.Place{Context: outbound}, &listenerv3.Listener{}},
		{"vhdsroutes", patch.Place{Context: outbound}, &routev3.RouteConfiguration{}},
		{"virtualhost", patch.Place{Context: outbound, Routes: "80"}, &routev3.VirtualHost{}},
	}
	for _, b := range all {
		text, err := files.ReadFile("base/" + b.Name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		readYAML(t, b.Name, text, b.Message)
	}
	return all
}

// BaseOf returns the message of a name.
func BaseOf(t testing.TB, name string) Base {
	t.Helper()
	for _, b := range Bases(t) {
		if b.Name == name {
			return b
		}
	}
	t.Fatalf("there is no base %q", name)
	return Base{}
}

// Apply applies patches to a message by its type. It returns nil for a removed one.
func Apply(m proto.Message, at patch.Place, patches []*patch.Patch) (proto.Message, []patch.Result) {
	var out proto.Message
	var results []patch.Result
	switch m := m.(type) {
	case *clusterv3.Cluster:
		out, results = patch.Cluster(m, at, patches)
	case *listenerv3.Listener:
		out, results = patch.Listener(m, at, patches)
	case *routev3.RouteConfiguration:
		out, results = patch.RouteConfiguration(m, at, patches)
	case *routev3.VirtualHost:
		out, results = patch.VirtualHost(m, at, patches)
	case *bootstrapv3.Bootstrap:
		out, results = patch.Bootstrap(m, patches)
	}
	if !out.ProtoReflect().IsValid() {
		return nil, results
	}
	return out, results
}
