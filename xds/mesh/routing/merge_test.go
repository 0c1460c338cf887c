package routing_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// gateways makes one Gateway from each list of servers in YAML. They are named a, b and
// so on, each a second younger than the one before, and are returned in reverse.
func gateways(t *testing.T, servers []string) []*routing.Gateway {
	t.Helper()
	var out []*routing.Gateway
	for i, text := range servers {
		asJSON, err := yaml.YAMLToJSON([]byte("{servers: [" + text + "]}"))
		if err != nil {
			t.Fatal(err)
		}
		spec := &networking.Gateway{}
		if err := protojson.Unmarshal(asJSON, spec); err != nil {
			t.Fatal(err)
		}
		out = append([]*routing.Gateway{routing.NewGateway(&config.Config{
			Meta: config.Meta{
				GroupVersionKind: schema.Gateway, Namespace: "edge", Name: string(rune('a' + i)), CreationTimestamp: time.Unix(int64(i), 0),
			}, Spec: spec,
		}, nil, nil)}, out...)
	}
	return out
}

// merged renders a merged gateway as text: listeners with their servers, by gateway and
// port name, and the lost servers.
func merged(m *routing.MergedGateway) string {
	name := func(s *routing.Server) string {
		return s.Gateway.Config.Name + "." + s.Spec.GetPort().GetName()
	}
	var out []string
	for _, l := range m.Listeners {
		line := fmt.Sprintf("%s_%d:", l.Bind, l.Port)
		for _, s := range l.Servers {
			line += " " + name(s)
		}
		out = append(out, line)
	}
	for _, lost := range m.Lost {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s loses to %s %s", name(lost.Server), name(lost.To), lost.Name)))
	}
	return strings.Join(out, "\n")
}

// TestMergeGateways: which servers share a listener, and which get none.
func TestMergeGateways(t *testing.T) {
	t.Parallel()
	server := func(protocol, name, hosts, more string) string {
		return fmt.Sprintf("{port: {number: 443, name: %s, protocol: %s}, hosts: [%s]%s}", name, protocol, hosts, more)
	}
	const simple, pass, auto = ", tls: {mode: SIMPLE, credentialName: c}", ", tls: {mode: PASSTHROUGH}", ", tls: {mode: AUTO_PASSTHROUGH}"
	const nine = ", bind: 10.0.0.9"
	for _, c := range []struct {
		name     string
		gateways []string // the oldest first
		want     []string
	}{
		{"HTTP is shared", []string{server("HTTP", "h", "'*'", ""), server("GRPC", "g", "'*'", "") + "," + server("HTTP2", "i", "a.test", "")}, []string{"0.0.0.0_443: a.h b.g b.i"}},
		{"the wildcard by its name", []string{server("HTTP", "h", "'*'", ""), server("HTTP", "h", "'*'", ", bind: 0.0.0.0")}, []string{"0.0.0.0_443: a.h b.h"}},
		{"bytes are not", []string{server("TCP", "t", "a.test", ""), server("MONGO", "t", "b.test", ""), server("HTTP", "h", "c.test", "")}, []string{"0.0.0.0_443: a.t", "b.t loses to a.t", "c.h loses to a.t"}},
		{"bytes after HTTP", []string{server("HTTP", "h", "a.test", ""), server("TCP", "t", "b.test", "")}, []string{"0.0.0.0_443: a.h", "b.t loses to a.h"}},
		{"addresses are apart", []string{server("HTTP", "h", "'*'", ""), server("TCP", "t", "'*'", nine), server("HTTPS", "s", "'*'", ", bind: '::1'"+simple)}, []string{"0.0.0.0_443: a.h", "10.0.0.9_443: b.t", "::1_443: c.s"}},
		{"TLS is shared by names", []string{server("HTTPS", "s", "a.test", simple), server("TLS", "p", "b.test", pass), server("TLS", "t", "'*.test'", simple), server("TLS", "x", "'*'", auto)}, []string{"0.0.0.0_443: a.s b.p c.t d.x"}},
		{"one host of two", []string{server("HTTPS", "s", "a.test, b.test", simple), server("TLS", "p", "c.test, b.test", pass), server("HTTPS", "s", "c.test", simple)}, []string{"0.0.0.0_443: a.s c.s", "b.p loses to a.s b.test"}},
		{"a host of some namespaces is the same name", []string{server("HTTPS", "s", "shop/A.test", simple), server("HTTPS", "s", "./a.test", simple)}, []string{"0.0.0.0_443: a.s", "b.s loses to a.s a.test"}},
		{"a host of two namespaces in one server", []string{server("HTTPS", "s", "shop/a.test, blog/a.test", simple)}, []string{"0.0.0.0_443: a.s"}},
		{"servers of one Gateway", []string{server("HTTPS", "s", "a.test", simple) + "," + server("HTTPS", "t", "a.test", simple)}, []string{"0.0.0.0_443: a.s", "a.t loses to a.s a.test"}},
		{"hosts are apart by address", []string{server("HTTPS", "s", "a.test", simple), server("HTTPS", "s", "a.test", nine+simple)}, []string{"0.0.0.0_443: a.s", "10.0.0.9_443: b.s"}},
		{"HTTPS after HTTP", []string{server("HTTP", "h", "a.test", ""), server("HTTPS", "s", "b.test", simple)}, []string{"0.0.0.0_443: a.h", "b.s loses to a.h"}},
		{"HTTP after HTTPS", []string{server("HTTPS", "s", "b.test", simple), server("HTTP", "h", "a.test", ""), server("HTTPS", "s", "c.test", simple)}, []string{"0.0.0.0_443: a.s b.h c.s"}},
		{"bytes after TLS", []string{server("HTTPS", "s", "b.test", simple), server("TCP", "t", "a.test", "")}, []string{"0.0.0.0_443: a.s", "b.t loses to a.s"}},
		{"a server that lost takes no names", []string{server("TCP", "t", "a.test", ""), server("HTTPS", "s", "a.test", simple), server("HTTPS", "s", "a.test", simple)}, []string{"0.0.0.0_443: a.t", "b.s loses to a.t", "c.s loses to a.t"}},
		{"what is not served takes no part", []string{server("UDP", "u", "a.test", ""), server("HTTPS", "s", "a.test", ""), server("HTTP", "h", "a.test", "")}, []string{"0.0.0.0_443: c.h"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := merged(routing.MergeGateways(gateways(t, c.gateways), "0.0.0.0", nil))
			if diff := cmp.Diff(strings.Join(c.want, "\n"), got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestTargetPorts: servers share the port on which the gateway listens, even if their own
// ports differ.
func TestTargetPorts(t *testing.T) {
	t.Parallel()
	server := func(port int, protocol, name, hosts, more string) string {
		return fmt.Sprintf("{port: {number: %d, name: %s, protocol: %s}, hosts: [%s]%s}", port, name, protocol, hosts, more)
	}
	const simple = ", tls: {mode: SIMPLE, credentialName: c}"
	for _, c := range []struct {
		name, ports string
		gateways    []string
		want        []string
	}{
		{"each has another", "80=8080 443=8443", []string{server(80, "HTTP", "h", "'*'", ""), server(443, "HTTPS", "s", "'*'", simple)}, []string{"0.0.0.0_8080: a.h", "0.0.0.0_8443: b.s"}},
		{"at an address", "80=8080", []string{server(80, "HTTP", "h", "'*'", ", bind: 10.0.0.9")}, []string{"10.0.0.9_8080: a.h"}},
		{"a socket has none", "80=8080", []string{server(0, "HTTP", "h", "'*'", ", bind: 'unix:///s'")}, []string{"unix:///s_0: a.h"}},
		{"two of HTTP meet", "80=8080", []string{server(80, "HTTP", "h", "a.test", ""), server(8080, "HTTP", "i", "b.test", "")}, []string{"0.0.0.0_8080: a.h b.i"}},
		{"two change places", "80=8080 8080=80", []string{server(80, "HTTP", "h", "a.test", ""), server(8080, "TCP", "t", "b.test", "")}, []string{"0.0.0.0_8080: a.h", "0.0.0.0_80: b.t"}},
		{"bytes meet HTTP", "80=8080 81=8080", []string{server(80, "HTTP", "h", "a.test", ""), server(81, "TCP", "t", "b.test", "")}, []string{"0.0.0.0_8080: a.h", "b.t loses to a.h"}},
		{"a host meets itself", "443=8443 444=8443", []string{server(443, "HTTPS", "s", "a.test", simple), server(444, "HTTPS", "t", "b.test, a.test", simple)}, []string{"0.0.0.0_8443: a.s", "b.t loses to a.s a.test"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ports := routing.ParseTargetPorts(c.ports)
			if got := ports.String(); got != c.ports {
				t.Errorf("the ports are %s, want %s", got, c.ports)
			}
			got := merged(routing.MergeGateways(gateways(t, c.gateways), "0.0.0.0", ports))
			if diff := cmp.Diff(strings.Join(c.want, "\n"), got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	ports := routing.ParseTargetPorts("80=8080 81=8080 90=8090 443=443")
	for port, want := range map[int][]int{80: {81, 8080}, 81: {80, 8080}, 8080: {80, 81}, 90: {8090}, 8090: {90}, 443: nil, 70: nil} {
		if got := ports.SameTarget(port); !slices.Equal(got, want) {
			t.Errorf("%d meets %v, want %v", port, got, want)
		}
	}
}

// TestServerKinds: what a server does, by its protocol and its mode.
func TestServerKinds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]routing.ServerKind{
		"{port: {protocol: HTTP}}":                                 routing.HTTP,
		"{port: {protocol: grpc-web}, tls: {httpsRedirect: true}}": routing.HTTP,
		"{port: {protocol: TCP}}":                                  routing.Bytes,
		"{port: {protocol: Redis}}":                                routing.Bytes,
		"{port: {protocol: TCP}, tls: {mode: SIMPLE}}":             routing.TLSBytes,
		"{port: {protocol: TLS}, tls: {mode: ISTIO_MUTUAL}}":       routing.TLSBytes,
		"{port: {protocol: TLS}, tls: {}}":                         routing.Passthrough,
		"{port: {protocol: HTTPS}, tls: {mode: PASSTHROUGH}}":      routing.Passthrough,
		"{port: {protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}}":   routing.AutoPassthrough,
		"{port: {protocol: HTTPS}, tls: {mode: OPTIONAL_MUTUAL}}":  routing.HTTPS,
		"{port: {protocol: HTTPS}, tls: {mode: MUTUAL}}":           routing.HTTPS,
		"{port: {protocol: HTTPS}}":                                routing.NotServed,
		"{port: {protocol: TLS}}":                                  routing.NotServed,
		"{port: {protocol: UDP}}":                                  routing.NotServed,
	} {
		s := gateways(t, []string{strings.TrimSuffix(text, "}") + ", hosts: ['*']}"})[0].Servers[0]
		if s.Kind() != want {
			t.Errorf("%s is of kind %d, want %d", text, s.Kind(), want)
		}
	}
}

// TestMergedGatewaysShareWhatIsEqual: == shows that a listener or a server's routes are
// unchanged, even if others changed.
func TestMergedGatewaysShareWhatIsEqual(t *testing.T) {
	t.Parallel()
	server := func(port int, name string) string {
		return fmt.Sprintf("{port: {number: %d, name: %s, protocol: HTTPS}, hosts: [%[2]s.test], tls: {mode: SIMPLE, credentialName: c}}", port, name)
	}
	all := gateways(t, []string{server(443, "a"), server(443, "b"), server(8443, "c"), "{port: {number: 80, name: h, protocol: HTTP}, hosts: ['*']}"})
	merge := func(g []*routing.Gateway, before *routing.MergedGateway) *routing.MergedGateway {
		return routing.MergeGateways(slices.Clone(g), "0.0.0.0", nil).Indexed(before)
	}
	first := merge(all, nil)
	again := merge(all, first)
	changed := slices.Clone(all)
	changed[2] = gateways(t, []string{server(443, "a"), server(443, "d")})[0] // in place of b, which stands third
	other := merge(changed, again)
	for _, name := range []string{"0.0.0.0_443", "0.0.0.0_8443", "0.0.0.0_80"} {
		if first.Listener(name) == nil || again.Listener(name) != first.Listener(name) {
			t.Errorf("listener %s is another where nothing changed", name)
		}
		if same := other.Listener(name) == first.Listener(name); same != (name != "0.0.0.0_443") {
			t.Errorf("listener %s is the same: %v", name, same)
		}
	}
	for _, name := range []string{"https.443.a.a.edge", "https.443.b.b.edge", "https.8443.c.c.edge", "http.80"} {
		if first.RoutesNamed(name) == nil || again.RoutesNamed(name) != first.RoutesNamed(name) {
			t.Errorf("routes %s are others where nothing changed", name)
		}
		// The routes of a answer the other names of the port with 421.
		if same := other.RoutesNamed(name) == first.RoutesNamed(name); same != (name != "https.443.b.b.edge" && name != "https.443.a.a.edge") {
			t.Errorf("routes %s are the same: %v", name, same)
		}
	}
	if other.RoutesNamed("https.443.d.b.edge") == nil || first.Listener("0.0.0.0_81") != nil || (*routing.MergedGateway)(nil).Listener("0.0.0.0_80") != nil {
		t.Error("names lead to the wrong things")
	}
}

// TestNamesElsewhere: a TLS server knows the names of the others, and of many only those that
// it covers.
func TestNamesElsewhere(t *testing.T) {
	t.Parallel()
	server := func(name, hosts string) string {
		return fmt.Sprintf("{port: {number: 443, name: %s, protocol: HTTPS}, hosts: [%s], tls: {mode: SIMPLE, credentialName: c}}", name, hosts)
	}
	servers := []string{server("a", "a.test"), server("p", "'*.inner.test'"), server("i", "i.inner.test")}
	elsewhere := func(more ...string) map[string]string {
		out := map[string]string{}
		for _, r := range routing.MergeGateways(gateways(t, append(slices.Clone(servers), more...)), "0.0.0.0", nil).Indexed(nil).Routes {
			out[r.Servers[0].Spec.GetPort().GetName()] = strings.Join(r.Elsewhere, " ")
		}
		return out
	}
	few := elsewhere()
	for name, want := range map[string]string{"a": "*.inner.test i.inner.test", "p": "a.test i.inner.test", "i": "*.inner.test a.test"} {
		if few[name] != want {
			t.Errorf("of few: beside %s are %q, want %q", name, few[name], want)
		}
	}
	var hosts []string
	for i := range 100 {
		hosts = append(hosts, fmt.Sprintf("h%d.test", i))
	}
	many := elsewhere(server("m", strings.Join(hosts, ", ")))
	for name, want := range map[string]string{"a": "*", "p": "* i.inner.test", "i": "*", "m": "*.inner.test a.test i.inner.test"} {
		if many[name] != want {
			t.Errorf("of many: beside %s are %q, want %q", name, many[name], want)
		}
	}
	if all := elsewhere(server("m", strings.Join(hosts, ", ")), server("any", "'*'"))["any"]; strings.Count(all, " ") != 102 || strings.Contains(all, "* ") {
		t.Errorf("beside the server of any name are %q", all)
	}
}
