package integration

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// routeConfigs is a sidecar with a route configuration ("table") for each of some ports. The test
// disconnects it from its server repeatedly.
type routeConfigs struct {
	*scene
	port map[string]int // by table
	up   *upstream
}

// site is an object that defines a service in a table.
func (x *routeConfigs) site(table, name string, addresses ...string) string {
	return site(x.port[table], x.up, name, addresses...)
}

// changeWhileAway disconnects Envoy, makes a change, restarts the server if restart is set, and waits
// until Envoy is back and has all that the server has.
func (x *routeConfigs) changeWhileAway(what string, restart bool, change func()) []message {
	x.t.Helper()
	before := len(x.relay.since(0))
	x.relay.cutStreams()
	change()
	if restart {
		x.s.kill()
		x.s.start()
	}
	x.relay.admitStreams()
	x.awaitReturn(before, 0)
	x.s.awaitSynced(x.s.revision(), "proxy")
	x.awaitHosts(what)
	return x.relay.since(before)
}

// setWanted sets which virtual hosts a table should have, with their domains.
func (x *routeConfigs) setWanted(table string, hosts ...string) {
	config := fmt.Sprint(x.port[table])
	x.want[config] = map[string]string{}
	for _, domains := range hosts {
		var name string
		_, _ = fmt.Sscan(domains, &name)
		x.want[config][name+":"+config] = domains
	}
}

// answers fails unless requests to hosts of a table get the given replies in the end.
func (x *routeConfigs) answers(table string, replies map[string]string) {
	x.t.Helper()
	for _, host := range slices.Sorted(maps.Keys(replies)) {
		awaitReply(x.t, request{port: x.port[table], host: host}, replies[host])
	}
}

// expectSent fails unless exactly these virtual hosts of a table were sent, in one response. A
// minus marks removed ones. Without VHDS the whole table is sent.
func (x *routeConfigs) expectSent(what string, heard []message, table string, want ...string) {
	x.t.Helper()
	config := fmt.Sprint(x.port[table])
	var got [][]string
	for _, m := range heard {
		switch {
		case m.request:
		case !x.delta && m.typeURL == xdstest.RouteType && slices.Contains(m.names, config):
			return
		case m.typeURL == xdstest.VirtualHostType:
			if names := x.within(config, m); len(names) > 0 {
				got = append(got, names)
			}
		}
	}
	var wants [][]string
	if len(want) > 0 {
		slices.Sort(want)
		wants = append(wants, want)
	}
	expectEqual(x.t, fmt.Sprintf("%s: responses with virtual hosts of table %s", what, table), got, wants)
}

// within returns the virtual hosts of a table in a response, by the names of their services, in
// order.
func (x *routeConfigs) within(config string, m message) []string {
	var out []string
	add := func(sign string, names []string) {
		for _, name := range names {
			var host string
			if _, err := fmt.Sscanf(name, config+"/%s", &host); err == nil {
				out = append(out, sign+host[:len(host)-len(".shop.test:"+config)])
			}
		}
	}
	add("", m.names)
	add("-", m.removed)
	slices.Sort(out)
	return out
}

// TestEnvoyVirtualHostsChangeWhileAway: virtual hosts and whole tables come, go and change
// while Envoy is disconnected from its server, which restarts once. When Envoy is back it has
// exactly the current state, and the server has sent nothing that it already had.
func TestEnvoyVirtualHostsChangeWhileAway(t *testing.T) {
	inBothRouteModes(t, func(t *testing.T, delta bool) {
		x := &routeConfigs{port: map[string]int{"one": freePort(t), "two": freePort(t), "three": freePort(t)}, up: startUpstream(t, "up")}
		x.scene = &scene{want: map[string]map[string]string{}}
		x.setWanted("one", "left.shop.test 10.9.0.1", "right.shop.test", "old.shop.test 10.9.0.2", "gone.shop.test", "stays.shop.test")
		x.setWanted("two", "second.shop.test", "beside.shop.test")
		x.scene = newScene(t, delta, envoyOptions{kind: "sidecar"}, x.want,
			x.site("one", "left", "10.9.0.1"), x.site("one", "right"), siteAs("object", x.port["one"], x.up, "old", "10.9.0.2"),
			x.site("one", "gone"), x.site("one", "stays"), x.site("two", "second"), x.site("two", "beside"), answering("beside", "mesh", 411))
		x.answers("two", map[string]string{"second.shop.test": "up", "beside.shop.test": "411"})
		x.changesWhileAway()
		x.returnsToAnother()
		x.framesWhileAway()
		x.expectAsked(4)
		x.s.expectNothingRejected()
		x.envoy.expectNothingRejected()
	})
}

// changesWhileAway changes hosts of a table in all ways at once, removes a table and adds
// another.
func (x *routeConfigs) changesWhileAway() {
	const what = "changes while away"
	x.setWanted("one", "left.shop.test", "right.shop.test 10.9.0.1", "young.shop.test 10.9.0.2", "new.shop.test", "stays.shop.test")
	x.setWanted("three", "third.shop.test")
	delete(x.want, fmt.Sprint(x.port["two"]))
	heard := x.changeWhileAway(what, false, func() {
		x.s.apply(x.site("one", "left"), x.site("one", "right", "10.9.0.1"), answering("right", "mesh", 410),
			siteAs("object", x.port["one"], x.up, "young", "10.9.0.2"), x.site("one", "new"), x.site("three", "third"))
		x.s.remove(x.site("one", "gone"), x.site("two", "second"), x.site("two", "beside"))
	})
	x.answers("one", map[string]string{
		"left.shop.test": "up", "10.9.0.1": "410", "young.shop.test": "up", "10.9.0.2": "up", "old.shop.test": "502",
		"gone.shop.test": "502", "new.shop.test": "up", "stays.shop.test": "up",
	})
	x.answers("three", map[string]string{"third.shop.test": "up", "second.shop.test": "502"})
	awaitClosed(x.t, x.port["two"])
	x.expectSent(what, heard, "one", "left", "right", "young", "new", "-old", "-gone")
	x.expectSent(what, heard, "three", "third")
}

// returnsToAnother restarts the server while the proxy is away, and adds the removed table
// again, with other hosts.
func (x *routeConfigs) returnsToAnother() {
	const what = "a restart while away"
	x.setWanted("one", "left.shop.test", "right.shop.test 10.9.0.1", "young.shop.test 10.9.0.2", "gone.shop.test", "stays.shop.test")
	x.setWanted("two", "second.shop.test", "more.shop.test")
	delete(x.want, fmt.Sprint(x.port["three"]))
	heard := x.changeWhileAway(what, true, func() {
		x.s.apply(x.site("one", "gone"), answering("gone", "mesh", 412), x.site("two", "second"), x.site("two", "more"))
		x.s.remove(x.site("one", "new"), x.site("three", "third"))
	})
	x.answers("one", map[string]string{"gone.shop.test": "412", "new.shop.test": "502", "right.shop.test": "410", "stays.shop.test": "up"})
	x.answers("two", map[string]string{"second.shop.test": "up", "more.shop.test": "up", "beside.shop.test": "502"})
	awaitClosed(x.t, x.port["three"])
	x.expectSent(what, heard, "one", "gone", "-new")
	x.expectSent(what, heard, "two", "second", "more")
}

// framesWhileAway changes all route configurations outside their virtual hosts while the proxy
// is away, and adds a table again. The server sends only those virtual hosts that changed.
func (x *routeConfigs) framesWhileAway() {
	const policy = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: open, namespace: shop}
spec: {outboundTrafficPolicy: {mode: ALLOW_ANY}, egress: [{hosts: ["*/*"]}]}
`
	const what = "frames while away"
	x.setWanted("three", "third.shop.test")
	x.setWanted("two", "second.shop.test")
	heard := x.changeWhileAway(what, false, func() {
		x.s.apply(policy, x.site("three", "third"), answering("stays", "mesh", 413))
		x.s.remove(x.site("two", "more"))
	})
	x.envoy.awaitConfig("allow_any")
	x.answers("one", map[string]string{"gone.shop.test": "412", "right.shop.test": "410", "stays.shop.test": "413"})
	x.answers("two", map[string]string{"second.shop.test": "up"})
	x.answers("three", map[string]string{"third.shop.test": "up"})
	x.expectSent(what, heard, "one", "stays")
	x.expectSent(what, heard, "two", "-more")
	x.expectSent(what, heard, "three", "third")
	x.step("the policy goes", func() { x.s.remove(policy) })
	x.answers("two", map[string]string{"second.shop.test": "up", "more.shop.test": "502"})
}

// TestEnvoyGatewayTableChangesWhileAway removes all virtual hosts of a gateway's table and adds
// others, each while Envoy is disconnected. An Envoy whose table has lost all its virtual hosts
// ignores updates of them, and needs them again with the next route configuration.
func TestEnvoyGatewayTableChangesWhileAway(t *testing.T) {
	inBothRouteModes(t, func(t *testing.T, delta bool) {
		port := freePort(t)
		table := fmt.Sprintf("http.%d.127.0.0.1", port)
		named := func(name string) string { return fmt.Sprintf("%s.shop.test:%d", name, port) }
		at := func(name string) request { return request{port: port, host: name + ".shop.test"} }
		x := &routeConfigs{scene: newScene(t, delta, envoyOptions{kind: "router", labels: "app=edge"}, map[string]map[string]string{
			table: {named("a"): "a.shop.test", named("b"): "b.shop.test"},
		}, door(port), answering("a", "edge", 410), answering("b", "edge", 411))}
		awaitReply(t, at("a"), "410")
		for _, restart := range []bool{false, true} {
			x.want[table] = map[string]string{}
			x.changeWhileAway("a table empties", restart, func() {
				x.s.remove(answering("a", "edge", 410), answering("b", "edge", 411))
			})
			awaitReply(t, at("a"), "404")

			x.want[table] = map[string]string{named("b"): "b.shop.test", named("c"): "c.shop.test"}
			x.changeWhileAway("a table fills", restart, func() {
				x.s.apply(answering("b", "edge", 411), answering("c", "edge", 412))
			})
			awaitReply(t, at("a"), "404")
			awaitReply(t, at("b"), "411")
			awaitReply(t, at("c"), "412")

			x.want[table] = map[string]string{named("a"): "a.shop.test", named("b"): "b.shop.test"}
			x.changeWhileAway("others", restart, func() {
				x.s.apply(answering("a", "edge", 410))
				x.s.remove(answering("c", "edge", 412))
			})
			awaitReply(t, at("a"), "410")
			awaitReply(t, at("c"), "404")
		}
		x.s.expectNothingRejected()
		x.envoy.expectNothingRejected()
	})
}
