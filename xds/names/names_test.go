package names_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/names"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ got, want string }{
		"outbound cluster":       {names.Cluster(names.Outbound, 80, "", "web.example.com"), "outbound|80||web.example.com"},
		"subset cluster":         {names.Cluster(names.Outbound, 80, "v1", "web.example.com"), "outbound|80|v1|web.example.com"},
		"cluster by SNI":         {names.SNICluster(80, "", "web.example.com"), "outbound_.80_._.web.example.com"},
		"subset by SNI":          {names.SNICluster(80, "v1", "web.example.com"), "outbound_.80_.v1_.web.example.com"},
		"inbound cluster":        {names.InboundCluster(8080), "inbound|8080||"},
		"statistics":             {names.AltStat("outbound|80||web.example.com"), "outbound|80||web.example.com;"},
		"listener":               {names.Listener("0.0.0.0", 80), "0.0.0.0_80"},
		"listener, IPv6":         {names.Listener("::1", 80), "::1_80"},
		"listener, socket":       {names.Listener("unix:///run/s.sock", 7), "unix:///run/s.sock_0"},
		"sidecar routes":         {names.SidecarRouteConfig(8080), "8080"},
		"service routes":         {names.ServiceRouteConfig("db.example.com", 3306), "db.example.com:3306"},
		"gateway routes":         {names.GatewayHTTPRouteConfig(80, ""), "http.80"},
		"gateway routes, bound":  {names.GatewayHTTPRouteConfig(80, "10.0.0.1"), "http.80.10.0.0.1"},
		"gateway routes of TLS":  {names.GatewayHTTPSRouteConfig(443, "https", "edge", "shop", ""), "https.443.https.edge.shop"},
		"the same, bound":        {names.GatewayHTTPSRouteConfig(443, "https", "edge", "shop", "::1"), "https.443.https.edge.shop.::1"},
		"virtual host":           {names.HostPort("web.example.com", 80), "web.example.com:80"},
		"inbound virtual host":   {names.InboundVirtualHost(80), "inbound|http|80"},
		"blackhole virtual host": {names.BlackHoleVirtualHost(80), "blackhole:80"},
		"route":                  {names.Route("canary", "header"), "canary.header"},
		"route, no match name":   {names.Route("canary", ""), "canary"},
		"HTTP statistics":        {names.HTTPStatPrefix(names.Outbound, "0.0.0.0_80"), "outbound_0.0.0.0_80;"},
		"config path": {
			names.ConfigPath("networking.istio.io", "v1", "VirtualService", "default", "web"),
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
	for name, want := range map[string]names.ClusterRef{
		"outbound|80||web.example.com":       {Direction: names.Outbound, Port: 80, Host: "web.example.com"},
		"outbound|80|v1|*.example.com":       {Direction: names.Outbound, Port: 80, Subset: "v1", Host: "*.example.com"},
		"inbound|8080||":                     {Direction: names.Inbound, Port: 8080},
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
		got, ok := names.ParseCluster(name)
		if ok != (want != names.ClusterRef{}) || got != want {
			t.Errorf("%q: got %+v, %t; want %+v", name, got, ok, want)
		}
	}
}

func TestParseSNICluster(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]names.ClusterRef{
		"outbound_.80_._.web.example.com":      {Direction: names.Outbound, Port: 80, Host: "web.example.com"},
		"outbound_.443_.v1_.web.example.com":   {Direction: names.Outbound, Port: 443, Subset: "v1", Host: "web.example.com"},
		"outbound|80||web.example.com":         {},
		"inbound_.80_._.web.example.com":       {},
		"outbound_.080_._.web.example.com":     {},
		"outbound_.70000_._.web.example.com":   {},
		"outbound_.80_.v1_.web_.example.com":   {},
		"outbound_.80_.web.example.com":        {},
		"outbound_.http_._.web.example.com":    {},
		"prefix_outbound_.80_._.a.example.com": {},
		"":                                     {},
	} {
		got, ok := names.ParseSNICluster(name)
		if ok != (want != names.ClusterRef{}) || got != want {
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
		want := names.ClusterRef{Direction: names.Outbound, Port: port, Subset: subset, Host: host}
		if !strings.Contains(subset+host, "|") {
			got, ok := names.ParseCluster(names.Cluster(names.Outbound, port, subset, host))
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
		ref, ok := names.ParseCluster(name)
		if !ok {
			if ref != (names.ClusterRef{}) {
				t.Errorf("%q is not ok, and yet %+v", name, ref)
			}
			return
		}
		again, ok := names.ParseCluster(names.Cluster(ref.Direction, ref.Port, ref.Subset, ref.Host))
		if diff := cmp.Diff(ref, again); !ok || diff != "" {
			t.Errorf("%q does not survive a round trip: %s", name, diff)
		}
	})
}
