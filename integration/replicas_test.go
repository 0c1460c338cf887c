package integration

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// startEtcd runs an etcd with default settings, and returns its address.
func startEtcd(t testing.TB) string {
	t.Helper()
	_, host := startEtcdWithClient(t)
	return host
}

// startEtcdWithClient is startEtcd, with a client for the test.
func startEtcdWithClient(t testing.TB) (client *clientv3.Client, host string) {
	t.Helper()
	at := url.URL{Scheme: "http", Host: local(freePort(t))}
	return etcdtest.Start(t, etcdtest.DefaultLimits, func(c *embed.Config) {
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{at}, []url.URL{at}
	}), at.Host
}

// overlaid are objects that change what others make: an EnvoyFilter, a Telemetry and the mesh
// configuration. They have maps and lists whose order shows.
func overlaid(timeout string) []string {
	return []string{
		envoyFilter(beforeRouter("ANY", luaHeader) + fill(`
  - applyTo: CLUSTER
    patch: {operation: MERGE, value: {connect_timeout: $timeout, metadata: {filter_metadata: {a: {one: 1, two: 2, three: 3}, b: {}, c: {}}}}}
  - applyTo: CLUSTER
    match: {context: SIDECAR_OUTBOUND}
    patch: {operation: ADD, value: {name: own, type: STATIC, connect_timeout: $timeout}}
  - applyTo: HTTP_ROUTE
    patch: {operation: MERGE, value: {typed_per_filter_config: {envoy.filters.http.lua: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.LuaPerRoute, disabled: true}, envoy.filters.http.buffer: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.BufferPerRoute, disabled: true}}}}
  - applyTo: VIRTUAL_HOST
    patch: {operation: ADD, value: {name: own, domains: [own.test], routes: [{match: {prefix: /}, direct_response: {status: 203}}]}}
`, "$timeout", timeout)),
		telemetryOf("shop", "lines", "{accessLogging: [{providers: [{name: lines}]}], tracing: [{providers: [{name: otlp}], randomSamplingPercentage: 7, customTags: {a: {literal: {value: x}}, b: {literal: {value: yes-b}}, c: {literal: {value: zero}}}}]}"),
		meshObject(fill("{defaultHttpRetryPolicy: {attempts: 7}, extensionProviders: [{name: lines, envoyFileAccessLog: {path: /dev/stdout, logFormat: {labels: {a: $timeout, b: other, c: more, d: '%PATH%'}}}}, {name: otlp, opentelemetry: {service: $host, port: 4317}}]}", "$timeout", timeout, "$host", shopHost)),
	}
}

// TestTwoServersOneEtcd runs two servers on one etcd. Each sees what is written through the
// other, and both send a node the same bytes.
func TestTwoServersOneEtcd(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		etcd := startEtcd(t)
		one, two := startServer(t, serverOptions{etcd: etcd}), startServer(t, serverOptions{etcd: etcd})
		x := newShop(t)
		x.v1, x.v2 = &upstream{name: "v1", port: 9001}, &upstream{name: "v2", port: 9002}
		nodes := []xdstest.ClientOptions{
			{Node: xdstest.NewNode("router", "10.0.0.1", "edge", "shop", map[string]string{"app": "edge"}), Variant: v, Follow: true},
			{Node: xdstest.NewNode("sidecar", "10.0.0.2", "client", "shop", nil), Variant: v, Follow: true},
		}
		var atOne, atTwo []*xdstest.Client
		for _, o := range nodes {
			atOne, atTwo = append(atOne, connect(t, one, o)), append(atTwo, connect(t, two, o))
		}
		subscribePolicies(atOne[0])
		subscribePolicies(atTwo[0])
		for i, change := range []func() int64{
			func() int64 { return one.apply(x.all(90, 10)) },
			func() int64 { return two.apply(x.routes(50, 50)) },
			func() int64 { return one.apply(x.entry(x.v2)) },
			func() int64 { return two.apply(x.entry(x.v1, x.v2), fill(tunedRule, "$host", shopHost)) },
			func() int64 { return two.apply(overlaid("7s")...) },
			func() int64 { return one.apply(overlaid("8s")...) },
			func() int64 { return one.remove(x.routes(50, 50)) },
		} {
			revision := change()
			one.awaitSynced(revision, "edge", "client")
			two.awaitSynced(revision, "edge", "client")
			for j := range nodes {
				expectSameBytes(t, fmt.Sprintf("change %d, node %d", i, j), atOne[j], atTwo[j])
			}
		}
		one.expectNothingRejected()
		two.expectNothingRejected()

		// A third server that starts late reads everything at once.
		three := startServer(t, serverOptions{etcd: etcd})
		for j, o := range nodes {
			late := connect(t, three, o)
			if j == 0 {
				subscribePolicies(late)
			}
			three.awaitSynced(one.revision(), []string{"edge", "client"}[j])
			expectSameBytes(t, fmt.Sprintf("a late server, node %d", j), atOne[j], late)
		}
	})
}

// TestEnvoyCatchesUp changes and deletes objects while the proxies have no server. When it is
// back, they get exactly the current state.
func TestEnvoyCatchesUp(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		etcd := startEtcd(t)
		s, other := startServer(t, serverOptions{etcd: etcd}), startServer(t, serverOptions{etcd: etcd})
		x, gone, fresh := newShop(t), freePort(t), freePort(t)
		extra := func(name string, port int) string {
			return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: $target}}]
`, "$name", name, "$port", port, "$target", x.v1.port)
		}
		s.apply(x.all(100, 0), extra("gone", gone))
		edge, client := s.startPair(v)
		awaitReply(t, x.atGateway("/"), "v1")
		awaitReply(t, request{port: gone, host: "gone.shop.test"}, "v1")
		untouched := edge.mustHold()[fmt.Sprintf("listeners 127.0.0.1_%d", x.gateway)]
		loads := []*load{startLoad(t, "gateway", x.atGateway("/")), startLoad(t, "sidecar", x.atSidecar("/"))}

		s.kill()
		other.remove(extra("gone", gone))
		revision := other.apply(x.routes(0, 100), extra("fresh", fresh))
		for _, l := range loads {
			expectShare(t, l.name+" without a server", l.sample(50), "v1", 100)
		}
		s.start()
		s.awaitSynced(revision, "edge", "client")
		awaitOnly(t, loads, "v2")
		awaitClosed(t, gone)
		awaitReply(t, request{port: fresh, host: "fresh.shop.test"}, "v1")
		client.awaitCluster(fmt.Sprintf("outbound|%d||gone.shop.test", gone), false)
		edge.awaitCluster(fmt.Sprintf("outbound|%d||gone.shop.test", gone), false)
		if v == protocol.Delta {
			expectEqual(t, "the gateway's listener", edge.mustHold()[fmt.Sprintf("listeners 127.0.0.1_%d", x.gateway)], untouched)
		}
		for _, l := range loads {
			l.expectUnharmed()
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// connect opens the stream of a proxy that requests everything.
func connect(t testing.TB, s *server, o xdstest.ClientOptions) *xdstest.Client {
	t.Helper()
	c := xdstest.Dial(t, s.xds, o)
	c.Subscribe(xdstest.ClusterType)
	c.Subscribe(xdstest.ListenerType)
	return c
}

// subscribePolicies subscribes to the filters of policies that the listeners of a gateway need.
func subscribePolicies(c *xdstest.Client) {
	for slot := range policy.HTTPSlots() {
		c.Subscribe(resource.ExtensionType, slot.Name)
	}
}

// expectSameBytes compares what two clients hold byte by byte.
func expectSameBytes(t *testing.T, what string, a, b *xdstest.Client) {
	t.Helper()
	total := 0
	for _, typeURL := range []string{xdstest.ClusterType, xdstest.EndpointType, xdstest.ListenerType, xdstest.RouteType, resource.ExtensionType} {
		one, two := a.Held(typeURL), b.Held(typeURL)
		var names []string
		for name := range one {
			names = append(names, name)
		}
		for name := range two {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			total++
			if !bytes.Equal(one[name].Body.GetValue(), two[name].Body.GetValue()) || one[name].Version != two[name].Version {
				t.Errorf("%s: %s %s differs: version %q and %q\n%v\n%v", what, typeURL, name,
					one[name].Version, two[name].Version, one[name].Body, two[name].Body)
			}
		}
	}
	if total == 0 {
		t.Errorf("%s: nothing was compared", what)
	}
}
