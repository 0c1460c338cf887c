package envoy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/envoy"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ got, want string }{
		"outbound cluster":       {envoy.ClusterName(envoy.Outbound, 80, "", "web.example.com"), "outbound|80||web.example.com"},
		"subset cluster":         {envoy.ClusterName(envoy.Outbound, 80, "v1", "web.example.com"), "outbound|80|v1|web.example.com"},
		"inbound cluster":        {envoy.InboundClusterName(8080), "inbound|8080||"},
		"statistics":             {envoy.AltStatName("outbound|80||web.example.com"), "outbound|80||web.example.com;"},
		"listener":               {envoy.ListenerName("0.0.0.0", 80), "0.0.0.0_80"},
		"listener, IPv6":         {envoy.ListenerName("::1", 80), "::1_80"},
		"listener, socket":       {envoy.ListenerName("unix:///run/s.sock", 7), "unix:///run/s.sock_0"},
		"sidecar routes":         {envoy.SidecarRouteConfigName(8080), "8080"},
		"service routes":         {envoy.ServiceRouteConfigName("db.example.com", 3306), "db.example.com:3306"},
		"gateway routes":         {envoy.GatewayHTTPRouteConfigName(80, ""), "http.80"},
		"gateway routes, bound":  {envoy.GatewayHTTPRouteConfigName(80, "10.0.0.1"), "http.80.10.0.0.1"},
		"virtual host":           {envoy.HostPort("web.example.com", 80), "web.example.com:80"},
		"inbound virtual host":   {envoy.InboundVirtualHostName(80), "inbound|http|80"},
		"blackhole virtual host": {envoy.BlackHoleVirtualHostName(80), "blackhole:80"},
		"route":                  {envoy.RouteName("canary", "header"), "canary.header"},
		"route, no match name":   {envoy.RouteName("canary", ""), "canary"},
		"HTTP statistics":        {envoy.HTTPStatPrefix(envoy.Outbound, "0.0.0.0_80"), "outbound_0.0.0.0_80;"},
		"config path": {
			envoy.ConfigPath("networking.istio.io", "v1", "VirtualService", "default", "web"),
			"/apis/networking.istio.io/v1/namespaces/default/virtual-service/web",
		},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %q, want %q", name, c.got, c.want)
		}
	}
}

func TestParseClusterName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]envoy.ClusterRef{
		"outbound|80||web.example.com":       {Direction: envoy.Outbound, Port: 80, Host: "web.example.com"},
		"outbound|80|v1|*.example.com":       {Direction: envoy.Outbound, Port: 80, Subset: "v1", Host: "*.example.com"},
		"inbound|8080||":                     {Direction: envoy.Inbound, Port: 8080},
		"outbound_.443_.v1_.web.example.com": {},
		"PassthroughCluster":                 {},
		"xds-grpc":                           {},
		"outbound|80|web.example.com":        {},
		"outbound|80||web|example":           {},
		"outbound|http||web.example.com":     {},
		"outbound|70000||web.example.com":    {},
		"outbound|-1||web.example.com":       {},
		"sideways|80||web.example.com":       {},
		"outbound_.80_.v1_.web_.example.com": {},
		"|||":                                {},
		"":                                   {},
	} {
		got, ok := envoy.ParseClusterName(name)
		if ok != (want != envoy.ClusterRef{}) || got != want {
			t.Errorf("%q: got %+v, %t; want %+v", name, got, ok, want)
		}
	}
}

func FuzzClusterName(f *testing.F) {
	f.Add(uint32(80), "v1", "web.example.com")
	f.Add(uint32(0), "", "")
	f.Add(uint32(65535), "a_b", "_._.")
	f.Fuzz(func(t *testing.T, port uint32, subset, host string) {
		port %= 1 << 16
		want := envoy.ClusterRef{Direction: envoy.Outbound, Port: port, Subset: subset, Host: host}
		if !strings.Contains(subset+host, "|") {
			got, ok := envoy.ParseClusterName(envoy.ClusterName(envoy.Outbound, port, subset, host))
			if !ok || got != want {
				t.Errorf("got %+v, %t; want %+v", got, ok, want)
			}
		}
	})
}

func FuzzParseClusterName(f *testing.F) {
	for _, s := range []string{"outbound|80|v1|h", "inbound|1||", "outbound_.80_._.h", "BlackHoleCluster", "outbound|080||h", "outbound|+1||h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		ref, ok := envoy.ParseClusterName(name)
		if !ok {
			if ref != (envoy.ClusterRef{}) {
				t.Errorf("%q is not ok, and yet %+v", name, ref)
			}
			return
		}
		again, ok := envoy.ParseClusterName(envoy.ClusterName(ref.Direction, ref.Port, ref.Subset, ref.Host))
		if diff := cmp.Diff(ref, again); !ok || diff != "" {
			t.Errorf("%q does not survive a round trip: %s", name, diff)
		}
	})
}

func TestOperationName(t *testing.T) {
	t.Parallel()
	one := []envoy.WeightedCluster{{Name: "outbound|80|v1|web.example.com"}}
	two := []envoy.WeightedCluster{{Name: "outbound|80|v1|web.example.com", Weight: 1}, {Name: "other", Weight: 1}}
	for name, c := range map[string]struct {
		match    envoy.MatchOptions
		clusters []envoy.WeightedCluster
		want     string
	}{
		"prefix": {envoy.MatchOptions{}, one, "web.example.com:80/*"},
		"exact":  {envoy.MatchOptions{Path: envoy.StringMatch{Kind: envoy.Exact, Value: "/a"}}, one, "web.example.com:80/a"},
		"regex":  {envoy.MatchOptions{Path: envoy.StringMatch{Kind: envoy.Regex, Value: "/a.*"}}, one, "web.example.com:80/a.*"},
		"several clusters": {
			envoy.MatchOptions{Path: envoy.StringMatch{Kind: envoy.Prefix, Value: "/a"}}, two, "shop:8080/a*",
		},
	} {
		r := envoy.RouteOptions{Match: c.match, Forward: &envoy.Forward{Clusters: c.clusters}}
		if got := r.OperationName("shop", 8080); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
