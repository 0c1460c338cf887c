package xds_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// stress is a mesh under random change, with proxies that come and go.
type stress struct {
	*rand.Rand
	server  *xdstest.Server
	objects map[string]string // documents by kind and name
	proxies []*stressProxy
}

// stressProxy is one proxy over all its streams.
type stressProxy struct {
	node    *corev3.Node
	variant protocol.Variant
	client  *xdstest.Client
}

func (p *stressProxy) connect(t *testing.T, s *xdstest.Server, resume *xdstest.Client) {
	t.Helper()
	p.client = xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: p.node, Variant: p.variant, Follow: true, Resume: resume})
	if resume == nil {
		p.client.Subscribe(xdstest.ClusterType)
		p.client.Subscribe(xdstest.ListenerType)
	}
}

func (x *stress) pick(of ...string) string { return of[x.IntN(len(of))] }

// object draws an object: its kind and name, and the document.
func (x *stress) object() (name, document string) {
	n := fmt.Sprintf("%s/s%d", x.pick("shop", "edge"), x.IntN(6))
	host := fmt.Sprintf("s%d.example", x.IntN(6))
	spec, kind := "", x.pick("ServiceEntry", "ServiceEntry", "ServiceEntry", "VirtualService", "DestinationRule", "WorkloadEntry", "Sidecar", "Gateway")
	switch kind {
	case "ServiceEntry":
		source := x.pick("resolution: DNS, endpoints: [{address: one.example}]",
			"resolution: STATIC, workloadSelector: {labels: {app: w}}",
			fmt.Sprintf("resolution: STATIC, endpoints: [{address: 10.1.0.%d, labels: {v: x}}]", 1+x.IntN(9)),
			fmt.Sprintf("resolution: STATIC, endpoints: [{address: 10.1.0.%d, locality: eu/a}, {address: 10.2.0.%d, locality: us/b}]", 1+x.IntN(9), 1+x.IntN(9)))
		spec = fmt.Sprintf("{hosts: [%s], exportTo: [%s], ports: [{number: %s, name: p, protocol: %s}], %s}",
			host, x.pick("'*'", "."), x.pick("80", "9080"), x.pick("HTTP", "HTTP", "TCP"), source)
	case "VirtualService":
		spec = fmt.Sprintf("{hosts: ['%s'], gateways: [%s], exportTo: [%s], http: [{route: [{destination: {host: s%d.example, port: {number: 80}}}]%s}]}",
			x.pick(host, "*.example"), x.pick("mesh", "edge/s1", "mesh, edge/s2"), x.pick("'*'", "."), x.IntN(6),
			x.pick("", fmt.Sprintf(", mirrors: [{destination: {host: s%d.example, port: {number: 80}}}]", x.IntN(6))))
		switch delegate := fmt.Sprintf("{name: s%d, namespace: %s}", x.IntN(6), x.pick("shop", "edge")); x.pick("", "", "root", "delegate") {
		case "root":
			spec = fmt.Sprintf("{hosts: ['%s'], gateways: [mesh, edge/s2], http: [{match: [{uri: {prefix: /a}}], delegate: %s}, {directResponse: {status: 404}}]}", host, delegate)
		case "delegate":
			spec = fmt.Sprintf("{exportTo: [%s], http: [{route: [{destination: {host: %s, port: {number: 80}}}]}]}", x.pick("'*'", "."), host)
		}
	case "DestinationRule":
		spec = fmt.Sprintf("{host: '%s', %strafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}%s}, subsets: [{name: %s, labels: {v: x}}]}",
			x.pick(host, "*.example"), x.pick("", "", "workloadSelector: {matchLabels: {role: narrow}}, "), 1+x.IntN(3), x.pick("", ", outlierDetection: {}",
				", outlierDetection: {}, loadBalancer: {localityLbSetting: {failoverPriority: [role, v=x]}}",
				", loadBalancer: {zoneAwareLbSetting: {failoverPriority: [role]}}",
				", loadBalancer: {localityLbSetting: {distribute: [{from: eu, to: {eu: 80, us: 20}}]}}"), x.pick("x", "z"))
	case "WorkloadEntry":
		spec = fmt.Sprintf("{address: 10.0.0.%d, locality: %s, labels: {app: w, role: %s}}", 1+x.IntN(4), x.pick("eu/a", "us"), x.pick("gw", "narrow", "other"))
	case "Sidecar":
		spec = fmt.Sprintf("{workloadSelector: {labels: {role: narrow}}, egress: [{hosts: ['%s']}]}", x.pick("./*", "*/"+host, "~/*"))
	case "Gateway":
		spec = fmt.Sprintf("{selector: {role: gw}, servers: [{port: {number: %s, name: http, protocol: HTTP}, hosts: ['%s']}]}",
			x.pick("80", "8080"), x.pick("*", host))
	}
	return kind + " " + n, xdstest.Object(kind, n, spec)
}

// change applies a batch of puts and deletes, and returns its revision.
func (x *stress) change(t *testing.T) int64 {
	t.Helper()
	batch := map[string]string{} // by name; empty to delete
	for range 1 + x.IntN(4) {
		if len(x.objects) > 8 && x.IntN(3) == 0 {
			names := slices.Sorted(maps.Keys(x.objects))
			batch[names[x.IntN(len(names))]] = ""
		} else {
			name, document := x.object()
			batch[name] = document
		}
	}
	ops := xdstest.Ops(t)
	for _, name := range slices.Sorted(maps.Keys(batch)) {
		switch document, old := batch[name], x.objects[name]; {
		case document != "":
			ops = append(ops, xdstest.Ops(t, document)...)
			x.objects[name] = document
		case old != "":
			ops = append(ops, xdstest.Removals(t, old)...)
			delete(x.objects, name)
		}
	}
	return x.server.Batch(ops)
}

// disconnect ends the stream of a proxy and begins another one. The proxy states what it
// had, or starts with nothing.
func (x *stress) disconnect(t *testing.T) {
	t.Helper()
	p := x.proxies[x.IntN(len(x.proxies))]
	p.client.Close()
	resume := p.client
	if x.IntN(3) == 0 {
		resume = nil
	}
	p.connect(t, x.server, resume)
}

// TestStress: after random changes and disconnects, every proxy has what a proxy gets that
// has just connected.
func TestStress(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	x := &stress{
		Rand: rand.New(rand.NewPCG(seed, 1)), objects: map[string]string{},
		server: xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.MaxPushes = 2 }),
	}
	for i, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		for j := range 6 {
			kind, namespace := "sidecar", []string{"shop", "edge"}[j%2]
			if j >= 4 {
				kind = "router"
			}
			name := fmt.Sprintf("%s-%d-%d", kind, i, j)
			p := &stressProxy{variant: v, node: xdstest.NewNode(kind, fmt.Sprintf("10.0.0.%d", 1+j), name, namespace, map[string]string{"role": "gw"})}
			p.connect(t, x.server, nil)
			x.proxies = append(x.proxies, p)
		}
	}
	var last int64
	for range 150 {
		last = max(last, x.change(t))
		if x.IntN(3) == 0 {
			x.disconnect(t)
		}
		if x.IntN(5) == 0 {
			settled(t, x.server, last) // at rest now and then
		}
	}
	settled(t, x.server, last)
	for _, p := range x.proxies {
		p.equalsNew(t, x.server, last)
	}
}

// equalsNew compares the proxy with one like it that has just connected.
func (p *stressProxy) equalsNew(t *testing.T, s *xdstest.Server, revision int64) {
	t.Helper()
	fresh := &stressProxy{node: p.node, variant: p.variant}
	fresh.connect(t, s, nil)
	defer fresh.client.Close()
	settled(t, s, revision)
	for _, typeURL := range []string{xdstest.ClusterType, xdstest.EndpointType, xdstest.ListenerType, xdstest.RouteType} {
		difference := func() string { return cmp.Diff(contents(fresh.client, typeURL), contents(p.client, typeURL)) }
		for wait := time.Now().Add(10 * time.Second); difference() != ""; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(wait) {
				t.Fatalf("%s %s, %s (-new +proxy):\n%s", p.variant, p.node.GetId(), typeURL, difference())
			}
		}
	}
}

// contents returns the hashes and versions of what a client holds of a type, by name.
func contents(c *xdstest.Client, typeURL string) map[string]string {
	out := map[string]string{}
	for name, h := range c.Held(typeURL) {
		out[name] = fmt.Sprintf("%x %s", sha256.Sum256(h.Body.GetValue()), h.Version)
	}
	return out
}
