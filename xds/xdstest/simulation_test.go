package xdstest_test

import (
	"errors"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// simulation is of a proxy with one listener, on all addresses and port 80, with
// the routes "r".
func simulation(t *testing.T, hosts ...*routev3.VirtualHost) *xdstest.Simulation {
	t.Helper()
	l := envoy.Listener(envoy.ListenerOptions{
		Name: "l", Host: "0.0.0.0", Port: 80, Direction: corev3.TrafficDirection_OUTBOUND,
		FilterChains: []*listenerv3.FilterChain{envoy.FilterChain(envoy.FilterChainOptions{
			Filters: []*listenerv3.Filter{envoy.HTTPConnectionManager(envoy.HTTPOptions{StatPrefix: "s", RouteConfigName: "r"})},
		})},
	})
	messages := map[string]proto.Message{"l": l}
	if hosts != nil {
		messages["r"] = envoy.RouteConfig(envoy.RouteConfigOptions{Name: "r", VirtualHosts: hosts})
	}
	var resources []*resource.Resource
	for name, m := range messages {
		r, err := resource.New(name, m)
		if err != nil {
			t.Fatal(err)
		}
		resources = append(resources, r)
	}
	s, err := xdstest.NewSimulation(resources)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// host answers with its own name.
func host(domain string) *routev3.VirtualHost {
	return envoy.VirtualHost(envoy.VirtualHostOptions{Name: domain, Domains: []string{domain}, Routes: []*routev3.Route{
		envoy.Route(envoy.RouteOptions{DirectResponse: &envoy.DirectResponse{Status: 200, Body: []byte(domain)}}),
	}})
}

func TestMostSpecificDomain(t *testing.T) {
	t.Parallel()
	s := simulation(t, host("*"), host("*.example.com"), host("*.a.example.com"), host("x.a.example.com"), host("x.*"))
	for request, want := range map[string]string{
		"x.a.example.com":    "200 x.a.example.com",
		"X.A.example.com:80": "200 x.a.example.com",
		"y.a.example.com":    "200 *.a.example.com",
		"y.example.com":      "200 *.example.com",
		"example.com":        "200 *",
		"x.other":            "200 x.*",
	} {
		if got := s.Run(xdstest.Request{Host: request}).String(); got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
	}
}

func TestComesToNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		simulation *xdstest.Simulation
		request    xdstest.Request
		want       error
	}{
		"another port":                   {simulation(t), xdstest.Request{Port: 81}, xdstest.ErrNoListener},
		"routes that never came":         {simulation(t), xdstest.Request{}, xdstest.ErrNoRouteConfig},
		"a host without a virtual host":  {simulation(t, host("a")), xdstest.Request{Host: "b"}, xdstest.ErrNoVirtualHost},
		"a virtual host without a route": {simulation(t, envoy.VirtualHost(envoy.VirtualHostOptions{Name: "a", Domains: []string{"a"}})), xdstest.Request{Host: "a"}, xdstest.ErrNoRoute},
	} {
		if got := tt.simulation.Run(tt.request); !errors.Is(got.Err, tt.want) {
			t.Errorf("%s: got %s, want %v", name, got, tt.want)
		}
	}
}

// A matcher that the simulation does not know is an error, not a match.
func TestUnknownMatcherIsAnError(t *testing.T) {
	t.Parallel()
	h := host("*")
	h.Routes[0].Match.Grpc = &routev3.RouteMatch_GrpcRouteMatchOptions{}
	if got := simulation(t, h).Run(xdstest.Request{}); got.Err == nil || !strings.Contains(got.Err.Error(), "simulation of the route match") {
		t.Errorf("got %s", got)
	}
}

func TestInvalidMessageIsAnError(t *testing.T) {
	t.Parallel()
	r, err := resource.New("r", &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: "no domains"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := xdstest.NewSimulation([]*resource.Resource{r}); err == nil {
		t.Error("a virtual host without domains is accepted")
	}
}
