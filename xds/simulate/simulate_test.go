package simulate_test

import (
	"errors"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// proxy has one listener, on all addresses and port 80, with the routes "r".
func proxy(t *testing.T, hosts ...*routev3.VirtualHost) *simulate.Proxy {
	t.Helper()
	l := envoy.Listener(envoy.ListenerOptions{
		Name: "l", Host: "0.0.0.0", Port: 80, Direction: corev3.TrafficDirection_OUTBOUND,
		FilterChains: []*listenerv3.FilterChain{envoy.FilterChain(envoy.FilterChainOptions{
			Filters: []*listenerv3.Filter{envoy.HTTPConnectionManager(envoy.HTTPOptions{
				StatPrefix: "s", RouteConfigName: "r", Filters: []*hcmv3.HttpFilter{envoy.RouterFilter()},
			})},
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
	p, err := simulate.New(resources)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// host is a virtual host that answers with its domain.
func host(domain string) *routev3.VirtualHost {
	return envoy.VirtualHost(envoy.VirtualHostOptions{Name: domain, Domains: []string{domain}, Routes: []envoy.RouteOptions{
		{DirectResponse: &envoy.DirectResponse{Status: 200, Body: []byte(domain)}},
	}})
}

func TestMostSpecificDomain(t *testing.T) {
	t.Parallel()
	p := proxy(t, host("*"), host("*.example.com"), host("*.a.example.com"), host("x.a.example.com"), host("x.*"))
	for request, want := range map[string]string{
		"x.a.example.com":    "200 x.a.example.com",
		"X.A.example.com:80": "200 x.a.example.com",
		"y.a.example.com":    "200 *.a.example.com",
		"y.example.com":      "200 *.example.com",
		"example.com":        "200 *",
		"x.other":            "200 x.*",
	} {
		if got := p.Run(simulate.Request{Host: request}).String(); got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
	}
}

func TestComesToNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		proxy   *simulate.Proxy
		request simulate.Request
		want    error
	}{
		"another port":                   {proxy(t), simulate.Request{Port: 81}, simulate.ErrNoListener},
		"routes that never came":         {proxy(t), simulate.Request{}, simulate.ErrNoRouteConfig},
		"a host without a virtual host":  {proxy(t, host("a")), simulate.Request{Host: "b"}, simulate.ErrNoVirtualHost},
		"a virtual host without a route": {proxy(t, envoy.VirtualHost(envoy.VirtualHostOptions{Name: "a", Domains: []string{"a"}})), simulate.Request{Host: "a"}, simulate.ErrNoRoute},
	} {
		if got := tt.proxy.Run(tt.request); !errors.Is(got.Err, tt.want) {
			t.Errorf("%s: got %s, want %v", name, got, tt.want)
		}
	}
}

// A call uses the listener of its target, at any address.
func TestCall(t *testing.T) {
	t.Parallel()
	var resources []*resource.Resource
	for name, m := range map[string]proto.Message{
		"a.test:80": envoy.GRPCClientListener("a.test:80", "r", []*hcmv3.HttpFilter{envoy.RouterFilter()}),
		"r":         envoy.RouteConfig(envoy.RouteConfigOptions{Name: "r", VirtualHosts: []*routev3.VirtualHost{host("*")}}),
	} {
		r, err := resource.New(name, m)
		if err != nil {
			t.Fatal(err)
		}
		resources = append(resources, r)
	}
	p, err := simulate.New(resources)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Run(simulate.Request{Protocol: simulate.GRPC, Host: "a.test:80", Port: 81}); got.String() != "200 *" || got.Listener != "a.test:80" {
		t.Errorf("got %s by %s", got, got.Listener)
	}
	for _, other := range []simulate.Request{{Protocol: simulate.GRPC, Host: "b.test:80"}, {Host: "a.test:80"}} {
		if got := p.Run(other); !errors.Is(got.Err, simulate.ErrNoListener) {
			t.Errorf("%+v: got %s", other, got)
		}
	}
}

// A matcher that the simulation does not know is an error, not a match.
func TestUnknownMatcherIsAnError(t *testing.T) {
	t.Parallel()
	h := host("*")
	h.Routes[0].Match.Grpc = &routev3.RouteMatch_GrpcRouteMatchOptions{}
	if got := proxy(t, h).Run(simulate.Request{}); got.Err == nil || !strings.Contains(got.Err.Error(), "simulation of the route match") {
		t.Errorf("got %s", got)
	}
}

func TestInvalidMessageIsAnError(t *testing.T) {
	t.Parallel()
	body, err := anypb.New(&routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: "no domains"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := simulate.New([]*resource.Resource{{Name: "r", Body: body}}); err == nil {
		t.Error("a virtual host without domains is accepted")
	}
}
