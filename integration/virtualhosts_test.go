package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// inBothRouteModes runs a test with VHDS, and with whole route configurations.
func inBothRouteModes(t *testing.T, test func(t *testing.T, delta bool)) {
	t.Parallel()
	t.Run("by delta", func(t *testing.T) { test(t, true) })
	t.Run("in whole tables", func(t *testing.T) { test(t, false) })
}

// scene is a server, an Envoy behind a relay, and the virtual hosts that the Envoy should have:
// their domains, by route configuration and host.
type scene struct {
	t     testing.TB
	s     *server
	relay *relay
	envoy *envoy
	delta bool
	// drains means that Envoy may have route configurations of removed listeners.
	drains bool
	want   map[string]map[string]string
}

// newScene starts a server that answers unknown hosts with 502, and an Envoy that has the
// objects of documents.
func newScene(t testing.TB, delta bool, o envoyOptions, want map[string]map[string]string, documents ...string) *scene {
	t.Helper()
	mode := map[bool]string{true: "auto", false: "off"}[delta]
	s := startServer(t, serverOptions{args: []string{"--route-delta", mode}, meshConfig: "outboundTrafficPolicy: {mode: REGISTRY_ONLY}"})
	s.apply(documents...)
	x := &scene{t: t, s: s, relay: startRelay(t, s.xds), delta: delta, drains: o.drain == 0, want: want}
	o.name, o.xds, o.variant = "proxy", x.relay.address, protocol.Delta
	x.envoy = s.startEnvoy(o)
	x.awaitHosts("the first table")
	return x
}

// step makes a change, waits until Envoy has acknowledged it and has the wanted virtual hosts,
// and returns the messages.
func (x *scene) step(what string, change func()) []message {
	x.t.Helper()
	before := len(x.relay.since(0))
	change()
	x.s.awaitSynced(x.s.revision(), "proxy")
	x.awaitHosts(what)
	said := x.relay.since(before)
	for _, m := range said {
		if m.refused != "" {
			x.t.Errorf("%s: Envoy refused %s: %s", what, m.typeURL, m.refused)
		}
	}
	return said
}

// expectHosts fails unless one response had exactly the virtual hosts of want. A minus marks
// removed ones.
func (x *scene) expectHosts(what string, heard []message, want ...string) {
	x.t.Helper()
	if !x.delta {
		return
	}
	var got [][]string
	for _, m := range heard {
		if m.request || m.typeURL != xdstest.VirtualHostType {
			continue
		}
		names := slices.Clone(m.names)
		for _, name := range m.removed {
			names = append(names, "-"+name)
		}
		got = append(got, names)
		x.t.Logf("%s: %v in %d bytes", what, names, m.bytes)
	}
	var wants [][]string
	if len(want) > 0 {
		wants = append(wants, want)
	}
	if diff := cmp.Diff(wants, got); diff != "" {
		x.t.Errorf("%s: virtual hosts were sent otherwise (-want +got):\n%s", what, diff)
	}
}

// expectTables fails unless exactly the route configurations of want were sent.
func (x *scene) expectTables(what string, heard []message, want ...string) {
	x.t.Helper()
	var got []string
	for _, m := range heard {
		if !m.request && m.typeURL == xdstest.RouteType {
			got = append(got, slices.DeleteFunc(slices.Clone(m.names), x.draining)...)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Errorf("%s: route configurations were sent otherwise (-want +got):\n%s", what, diff)
	}
}

// draining reports whether Envoy should no longer have a route configuration, but may have it
// while a listener drains.
func (x *scene) draining(config string) bool { return x.drains && x.want[config] == nil }

// expectOneHost fails unless a change of one virtual host made the server send one small
// response and no more. With whole route configurations, that one is sent.
func (x *scene) expectOneHost(what string, heard []message, config string, want ...string) {
	x.t.Helper()
	if x.delta {
		x.expectTables(what, heard)
		x.expectHosts(what, heard, want...)
	} else {
		x.expectTables(what, heard, config)
	}
}

// awaitHosts waits until Envoy's route configurations have the wanted virtual hosts.
func (x *scene) awaitHosts(what string) {
	x.t.Helper()
	eventually(x.t, what+": the virtual hosts of Envoy", func() error {
		got, err := x.envoy.hosts()
		if err != nil {
			return err
		}
		if x.drains {
			maps.DeleteFunc(got, func(config string, _ map[string]string) bool { return x.draining(config) })
		}
		if diff := cmp.Diff(x.want, got); diff != "" {
			return errors.New(diff[:min(len(diff), 3000)])
		}
		return nil
	})
}

// assignedPrefix is the prefix of addresses that are assigned to hosts.
const assignedPrefix = "240.240."

// hosts returns the domains of Envoy's virtual hosts, by route configuration and name. It
// leaves out catch-all virtual hosts, assigned addresses and names with a trailing dot.
func (e *envoy) hosts() (map[string]map[string]string, error) {
	body, err := e.get("/config_dump?resource=dynamic_route_configs")
	if err != nil {
		return nil, err
	}
	var dump struct {
		Configs []struct {
			RouteConfig struct {
				Name         string `json:"name"`
				VirtualHosts []struct {
					Name    string   `json:"name"`
					Domains []string `json:"domains"`
				} `json:"virtual_hosts"`
			} `json:"route_config"`
		}
	}
	if err := json.Unmarshal(body, &dump); err != nil {
		return nil, err
	}
	out := map[string]map[string]string{}
	for _, c := range dump.Configs {
		into := map[string]string{}
		out[c.RouteConfig.Name] = into
		for _, h := range c.RouteConfig.VirtualHosts {
			if slices.Equal(h.Domains, []string{"*"}) {
				continue
			}
			domains := slices.DeleteFunc(h.Domains, func(d string) bool {
				return strings.HasPrefix(d, assignedPrefix) || strings.HasSuffix(d, ".")
			})
			into[strings.TrimPrefix(h.Name, c.RouteConfig.Name+"/")] = strings.Join(domains, " ")
		}
	}
	return out, nil
}

// site is an object that defines an HTTP service on a port, with addresses.
func site(port int, target *upstream, name string, addresses ...string) string {
	return siteAs(name, port, target, name, addresses...)
}

// siteAs is site with another name of the object.
func siteAs(object string, port int, target *upstream, name string, addresses ...string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $object, namespace: shop}
spec:
  hosts: [$name.shop.test]
  addresses: [$addresses]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: $target}}]
`, "$object", object, "$name", name, "$addresses", strings.Join(addresses, ", "), "$port", port, "$target", target.port)
}

// answering is a VirtualService that answers requests for a host with a status.
func answering(name, gateways string, status int) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  gateways: [$gateways]
  http: [{directResponse: {status: $status}}]
`, "$name", name, "$gateways", gateways, "$status", status)
}

// TestEnvoyVirtualHosts makes every kind of change to the virtual hosts of a sidecar, among a
// thousand that stay unchanged.
func TestEnvoyVirtualHosts(t *testing.T) {
	inBothRouteModes(t, func(t *testing.T, delta bool) {
		unchanged := map[bool]int{true: 1000, false: 20}[delta]
		port, second, up := freePort(t), freePort(t), startUpstream(t, "up")
		table, other := fmt.Sprint(port), fmt.Sprint(second)
		named := func(name string) string { return fmt.Sprintf("%s.shop.test:%d", name, port) }
		full := func(name string) string { return table + "/" + named(name) }
		at := func(name string) request { return request{port: port, host: name + ".shop.test"} }
		hosts := map[string]string{}
		documents := []string{site(port, up, "left", "10.9.0.1"), site(port, up, "right"), siteAs("object", port, up, "old", "10.9.0.2")}
		hosts[named("left")], hosts[named("right")], hosts[named("old")] = "left.shop.test 10.9.0.1", "right.shop.test", "old.shop.test 10.9.0.2"
		for i := range unchanged {
			name := fmt.Sprintf("s%d", i)
			hosts[named(name)] = name + ".shop.test"
			documents = append(documents, site(port, up, name))
		}
		x := newScene(t, delta, envoyOptions{kind: "sidecar"}, map[string]map[string]string{table: hosts}, documents...)
		awaitReply(t, at("s0"), "up")
		x.expectAsked(1)

		said := x.step("update", func() { x.s.apply(answering("s1", "mesh", 418)) })
		awaitReply(t, at("s1"), "418")
		x.expectOneHost("update", said, table, full("s1"))

		hosts[named("new")] = "new.shop.test"
		said = x.step("add", func() { x.s.apply(site(port, up, "new")) })
		awaitReply(t, at("new"), "up")
		x.expectOneHost("add", said, table, full("new"))

		delete(hosts, named("new"))
		said = x.step("delete", func() { x.s.remove(site(port, up, "new")) })
		awaitReply(t, at("new"), "502")
		x.expectOneHost("delete", said, table, "-"+full("new"))

		hosts[named("left")], hosts[named("right")] = "left.shop.test", "right.shop.test 10.9.0.1"
		said = x.step("a domain moves", func() {
			x.s.apply(site(port, up, "left"), site(port, up, "right", "10.9.0.1"), answering("right", "mesh", 410))
		})
		awaitReply(t, request{port: port, host: "10.9.0.1"}, "410")
		awaitReply(t, at("left"), "up")
		x.expectOneHost("a domain moves", said, table, full("left"), full("right"))

		delete(hosts, named("old"))
		hosts[named("young")] = "young.shop.test 10.9.0.2"
		said = x.step("a rename", func() { x.s.apply(siteAs("object", port, up, "young", "10.9.0.2")) })
		awaitReply(t, at("young"), "up")
		awaitReply(t, request{port: port, host: "10.9.0.2"}, "up")
		awaitReply(t, at("old"), "502")
		x.expectOneHost("a rename", said, table, full("young"), "-"+full("old"))

		x.tableStays(table, at("s1"))
		x.secondPort(other, second, up)
		x.expectAsked(1)
		x.proxyReturns(table, at("s1"), unchanged)
		x.expectAsked(4) // on three more streams
		x.s.expectNothingRejected()
		x.envoy.expectNothingRejected()
	})
}

// tableStays changes a route configuration that Envoy has. Its virtual hosts stay and are not
// sent again.
func (x *scene) tableStays(table string, known request) {
	x.t.Helper()
	const policy = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: open, namespace: shop}
spec: {outboundTrafficPolicy: {mode: ALLOW_ANY}, egress: [{hosts: ["*/*"]}]}
`
	said := x.step("the rest may pass", func() { x.s.apply(policy) })
	x.envoy.awaitConfig("allow_any")
	awaitReply(x.t, known, "418")
	x.expectTables("the rest may pass", said, table)
	x.expectHosts("the rest may pass", said)
	said = x.step("the rest may not pass", func() { x.s.remove(policy) })
	awaitReply(x.t, request{port: known.port, host: "nowhere.test"}, "502")
	awaitReply(x.t, known, "418")
	x.expectTables("the rest may not pass", said, table)
	x.expectHosts("the rest may not pass", said)
}

// secondPort adds, removes and adds a listener. Envoy has the virtual hosts of its route
// configuration without requesting them.
func (x *scene) secondPort(table string, port int, up *upstream) {
	x.t.Helper()
	host := fmt.Sprintf("second.shop.test:%d", port)
	for _, what := range []string{"a second port", "a listener that comes again"} {
		x.want[table] = map[string]string{host: "second.shop.test"}
		said := x.step(what, func() { x.s.apply(site(port, up, "second")) })
		awaitReply(x.t, request{port: port, host: "second.shop.test"}, "up")
		x.expectTables(what, said, table)
		x.expectHosts(what, said, table+"/"+host)

		said = x.step("an update of "+what, func() { x.s.apply(answering("second", "mesh", 418)) })
		awaitReply(x.t, request{port: port, host: "second.shop.test"}, "418")
		x.expectOneHost("an update of "+what, said, table, table+"/"+host)

		delete(x.want, table)
		x.step(what+" goes", func() { x.s.remove(site(port, up, "second"), answering("second", "mesh", 418)) })
		awaitClosed(x.t, port)
	}
}

// proxyReturns disconnects Envoy and restarts the server. The server sends what changed
// meanwhile, and nothing that Envoy already has.
func (x *scene) proxyReturns(table string, known request, unchanged int) {
	x.t.Helper()
	for _, what := range []string{"reconnect", "restart", "reconnect after a change"} {
		before := len(x.relay.since(0))
		x.relay.cutStreams()
		switch what {
		case "restart":
			x.s.kill()
			x.s.start()
		case "reconnect after a change":
			x.s.apply(answering("s2", "mesh", 411))
		}
		x.relay.admitStreams()
		x.awaitReturn(before, unchanged)
		x.s.awaitSynced(x.s.revision(), "proxy")
		x.awaitHosts(what)
		awaitReply(x.t, known, "418")
		said := x.relay.since(before)
		if what != "reconnect after a change" {
			x.expectTables(what, said)
			x.expectHosts(what, said)
			continue
		}
		awaitReply(x.t, request{port: known.port, host: "s2.shop.test"}, "411")
		x.expectOneHost(what, x.relay.since(before), table, table+"/"+fmt.Sprintf("s2.shop.test:%d", known.port))
	}
}

// awaitReturn waits until Envoy has requested its route configurations again and, with VHDS,
// has stated its virtual hosts.
func (x *scene) awaitReturn(before, hosts int) {
	x.t.Helper()
	eventually(x.t, "Envoy is back", func() error {
		asked := map[string]int{}
		for _, m := range x.relay.since(before) {
			if m.request && m.stated > 0 {
				asked[m.typeURL] = max(asked[m.typeURL], m.stated)
			}
		}
		if asked[xdstest.RouteType] == 0 || x.delta && asked[xdstest.VirtualHostType] < hosts {
			return fmt.Errorf("it has stated %v", asked)
		}
		return nil
	})
}

// expectAsked fails unless Envoy has requested virtual hosts want times, once on each stream;
// with whole route configurations, never. It also fails if Envoy's wait for a resource timed
// out.
func (x *scene) expectAsked(want int) {
	x.t.Helper()
	if !x.delta {
		want = 0
	}
	asked := 0
	for _, m := range x.relay.since(0) {
		if m.unprompted && m.typeURL == xdstest.VirtualHostType {
			asked++
		}
	}
	if asked != want {
		x.t.Errorf("Envoy asked for virtual hosts %d times, want %d", asked, want)
	}
	waited, err := x.envoy.stats("init_fetch_timeout$")
	if err != nil {
		x.t.Fatal(err)
	}
	if n := nonzero(waited); len(n) > 0 {
		x.t.Errorf("Envoy waited in vain: %v", n)
	}
}

// door is a gateway on a port of 127.0.0.1.
func door(port int) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  selector: {app: edge}
  servers: [{port: {number: $port, name: http, protocol: HTTP}, bind: 127.0.0.1, hosts: ["*.shop.test"]}]
`, "$port", port)
}

// TestEnvoyGatewayVirtualHosts removes all virtual hosts of a gateway and adds some again, and
// moves its port.
func TestEnvoyGatewayVirtualHosts(t *testing.T) {
	inBothRouteModes(t, func(t *testing.T, delta bool) {
		port, second := freePort(t), freePort(t)
		config := func(port int) string { return fmt.Sprintf("http.%d.127.0.0.1", port) }
		named := func(name string, port int) string { return fmt.Sprintf("%s.shop.test:%d", name, port) }
		at := func(name string) request { return request{port: port, host: name + ".shop.test"} }
		table := config(port)
		x := newScene(t, delta, envoyOptions{kind: "router", labels: "app=edge", drain: 1}, map[string]map[string]string{table: {}}, door(port))
		awaitReply(t, at("a"), "404")

		for _, what := range []string{"a table fills", "a table fills again"} {
			x.want[table] = map[string]string{named("a", port): "a.shop.test", named("b", port): "b.shop.test"}
			said := x.step(what, func() { x.s.apply(answering("a", "edge", 410), answering("b", "edge", 411)) })
			awaitReply(t, at("a"), "410")
			awaitReply(t, at("b"), "411")
			x.expectTables(what, said, table)
			x.expectHosts(what, said, table+"/"+named("a", port), table+"/"+named("b", port))

			said = x.step("update", func() { x.s.apply(answering("a", "edge", 418)) })
			awaitReply(t, at("a"), "418")
			x.expectOneHost("update", said, table, table+"/"+named("a", port))

			x.want[table] = map[string]string{named("b", port): "b.shop.test"}
			said = x.step("delete", func() { x.s.remove(answering("a", "edge", 418)) })
			awaitReply(t, at("a"), "404")
			awaitReply(t, at("b"), "411")
			x.expectOneHost("delete", said, table, "-"+table+"/"+named("a", port))

			x.want[table] = map[string]string{}
			said = x.step("the table empties", func() { x.s.remove(answering("b", "edge", 411)) })
			awaitReply(t, at("b"), "404")
			x.expectTables("the table empties", said, table)
		}
		x.s.apply(answering("a", "edge", 410))
		for _, move := range []struct{ from, to int }{{port, second}, {second, port}} {
			delete(x.want, config(move.from))
			x.want[config(move.to)] = map[string]string{named("a", move.to): "a.shop.test"}
			x.step("the gateway's port moves", func() { x.s.apply(door(move.to)) })
			awaitReply(t, request{port: move.to, host: "a.shop.test"}, "410")
			awaitClosed(t, move.from)
		}
		x.expectAsked(1)
		x.s.expectNothingRejected()
		x.envoy.expectNothingRejected()
	})
}

// TestEnvoyKeepsWholeTables: an Envoy with whole route configurations keeps them when it
// connects to a server with VHDS, and no request fails. In the other direction it changes to
// whole ones. After a restart it uses VHDS.
func TestEnvoyKeepsWholeTables(t *testing.T) {
	t.Parallel()
	s, x := startServer(t, serverOptions{args: []string{"--route-delta", "off"}}), newShop(t)
	documents := []string{x.all(50, 50)}
	for i := range 200 {
		documents = append(documents, site(x.service, x.v1, fmt.Sprintf("s%d", i)))
	}
	s.apply(documents...)
	edge, client := s.startPair(protocol.Delta)
	for _, q := range []request{x.atGateway("/"), x.atSidecar("/")} {
		awaitReply(t, q, send(t, q).String())
	}
	loads := []*load{startLoad(t, "gateway", x.atGateway("/")), startLoad(t, "sidecar", x.atSidecar("/"))}
	changed := func(what string, v1 int, want []string) {
		t.Helper()
		before := s.responses()
		s.awaitSynced(s.apply(x.routes(v1, 100-v1)), "edge", "client")
		expectEqual(t, "types sent for weights, "+what, typesOf(less(s.responses(), before)), want)
		for _, l := range loads {
			l.sample(50)
		}
	}
	restart := func(mode string) {
		t.Helper()
		s.kill()
		s.o.args = []string{"--route-delta", mode}
		s.start()
		s.awaitSynced(s.revision(), "edge", "client")
	}
	changed("whole", 40, []string{"RDS"})
	restart("auto")
	changed("whole ones held", 30, []string{"RDS"})
	for _, l := range loads {
		l.expectUnharmed()
	}
	for _, e := range []*envoy{edge, client} {
		e.process.kill()
	}
	s.startPair(protocol.Delta)
	for _, q := range []request{x.atGateway("/"), x.atSidecar("/")} {
		awaitReply(t, q, send(t, q).String())
	}
	loads = []*load{startLoad(t, "gateway", x.atGateway("/")), startLoad(t, "sidecar", x.atSidecar("/"))}
	changed("started anew", 60, []string{"VHDS"})
	restart("off")
	changed("whole again", 70, []string{"RDS"})
	for _, l := range loads {
		l.expectUnharmed()
	}
	s.expectNothingRejected()
}
