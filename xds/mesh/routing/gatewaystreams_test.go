package routing_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// server makes a server of the Gateway edge/g from YAML.
func server(t *testing.T, spec string) *routing.Server {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte("{servers: [" + spec + "]}"))
	if err != nil {
		t.Fatal(err)
	}
	g := &networking.Gateway{}
	if err := protojson.Unmarshal(text, g); err != nil {
		t.Fatal(err)
	}
	return routing.NewGateway(&config.Config{
		Meta: config.Meta{GroupVersionKind: schema.Gateway, Namespace: "edge", Name: "g"}, Spec: g,
	}, nil, nil).Servers[0]
}

// TestKindsOfServers: which routes a server uses, by its protocol and mode.
func TestKindsOfServers(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"protocol: TCP":                                    "bytes tcp",
		"protocol: MYSQL":                                  "bytes tcp",
		"protocol: HTTP":                                   "",
		"protocol: GRPC":                                   "",
		"protocol: UDP":                                    "",
		"protocol: HTTPS}, tls: {mode: SIMPLE":             "",
		"protocol: HTTPS}, tls: {mode: PASSTHROUGH":        "tls",
		"protocol: HTTPS}, tls: {mode: AUTO_PASSTHROUGH":   "services",
		"protocol: TLS}, tls: {mode: SIMPLE":               "tcp",
		"protocol: TLS}, tls: {mode: OPTIONAL_MUTUAL":      "tcp",
		"protocol: TLS}, tls: {mode: PASSTHROUGH":          "tls",
		"protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH":     "services",
		"protocol: TCP}, tls: {mode: MUTUAL":               "tcp",
		"protocol: MONGO}, tls: {mode: ISTIO_MUTUAL":       "tcp",
		"protocol: TCP}, tls: {mode: PASSTHROUGH":          "tls",
		"protocol: HTTP}, tls: {httpsRedirect: true":       "",
		"protocol: HTTP}, tls: {mode: PASSTHROUGH":         "",
		"protocol: UDP}, tls: {mode: PASSTHROUGH":          "",
		"protocol: unknown}, tls: {mode: AUTO_PASSTHROUGH": "services",
	} {
		s := server(t, "{port: {number: 443, name: p, "+spec+"}, hosts: ['*']}")
		var got []string
		for kind, is := range map[string]bool{"bytes": s.Kind() == routing.Bytes, "tcp": s.RoutesTCP(), "tls": s.PassesTLS(), "services": s.PassesServices()} {
			if is {
				got = append(got, kind)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s is for %q, want %q", spec, got, want)
		}
	}
}

// TestNameMatches: which matches of tls routes apply to a server, and with which names.
func TestNameMatches(t *testing.T) {
	t.Parallel()
	const hosts = "hosts: ['*.a.test', b.test], gateways: [edge/g, mesh], tls: "
	to := func(matches string) string {
		return "[{match: [" + matches + "], route: [{destination: {host: x.test}}]}]"
	}
	for name, c := range map[string]struct {
		hosts, vs string
		want      string
	}{
		"names in order":                   {"'*'", hosts + to("{sniHosts: [b.test, 1.a.test]}, {sniHosts: ['*.a.test']}"), "0.0[b.test 1.a.test] 0.1[*.a.test]"},
		"a port and a gateway":             {"'*'", hosts + to("{sniHosts: [b.test], port: 443, gateways: [edge/g]}"), "0.0[b.test]"},
		"another port":                     {"'*'", hosts + to("{sniHosts: [b.test], port: 444}"), ""},
		"sidecars":                         {"'*'", hosts + to("{sniHosts: [b.test], gateways: [mesh]}"), ""},
		"what does not count":              {"'*'", hosts + to("{sniHosts: [b.test], destinationSubnets: [10.0.0.0/8], sourceLabels: {app: b}, sourceNamespace: other}"), "0.0[b.test]"},
		"narrower hosts of the server":     {"1.a.test, 2.a.test", hosts + to("{sniHosts: [b.test, '*.a.test']}"), "0.0[1.a.test 2.a.test]"},
		"wider hosts of the server":        {"'*.test', '*.a.test'", hosts + to("{sniHosts: [1.a.test]}"), "0.0[1.a.test]"},
		"no host of the server":            {"c.test", hosts + to("{sniHosts: [b.test]}"), ""},
		"hosts of the namespace":           {"shop/b.test", hosts + to("{sniHosts: [b.test]}"), "0.0[b.test]"},
		"hosts of another namespace":       {"./b.test", hosts + to("{sniHosts: [b.test]}"), ""},
		"every host":                       {"'*'", "hosts: ['*'], gateways: [edge/g], tls: " + to("{sniHosts: ['*']}"), "0.0[*]"},
		"every host of a narrow server":    {"'*.A.test'", "hosts: ['*'], gateways: [edge/g], tls: " + to("{sniHosts: ['*']}"), "0.0[*.a.test]"},
		"a VirtualService for another one": {"'*'", "hosts: [b.test], gateways: [edge/h], tls: " + to("{sniHosts: [b.test]}"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t, "{port: {number: 443, name: p, protocol: TLS}, tls: {mode: PASSTHROUGH}, hosts: ["+c.hosts+"]}")
			vs := virtualService(t, "shop/v", "{"+c.vs+"}")
			var got []string
			for m := range s.NameMatches(vs) {
				got = append(got, fmt.Sprintf("%d.%d%v", m.Route, m.Match, m.Names))
				if m.Of != vs || m.Destinations()[0].GetDestination().GetHost() != "x.test" {
					t.Errorf("%+v leads elsewhere", m)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("the matches are %q, want %q", got, c.want)
			}
			for range server(t, "{port: {number: 443, name: p, protocol: TLS}, tls: {mode: SIMPLE}, hosts: ['*']}").NameMatches(vs) {
				t.Error("a server that ends TLS has a tls route")
			}
		})
	}
}
