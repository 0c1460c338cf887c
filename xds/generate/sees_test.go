package generate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/names/nds"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// The parts of the objects in a drawn mesh. They determine all names that resources can
// have.
var (
	meshHosts = []string{
		"a.shop.example", "b.shop.example", "a.edge.example", "*.shop.example", "*.example", "*",
		"x.shop.svc.cluster.local", "outside.org", "10.9.0.1", "10.9.0.2", "fd00::9",
	}
	meshPorts     = []int{80, 81, 90, 8080}
	meshSubsets   = []string{"", "v1", "v2"}
	meshAddresses = []string{
		"0.0.0.0", "::", "127.0.0.1", "127.0.0.9", "10.0.0.1", "10.9.0.1", "10.9.0.2", "10.9.0.0", "fd00::9", "240.240.0.1", "240.240.0.2", "2001:2::f0f0:1", "2001:2::f0f0:2",
	}
	meshNamespaces = []string{"default", "shop", "edge", "istio-system"}
)

// drawn draws objects at random.
type drawn struct{ t *rapid.T }

func (d drawn) one(label string, of ...string) string { return rapid.SampledFrom(of).Draw(d.t, label) }

// some draws a list with at least one member.
func (d drawn) some(label string, of ...string) string {
	list := rapid.SliceOfNDistinct(rapid.SampledFrom(of), 1, 3, rapid.ID[string]).Draw(d.t, label)
	return "'" + strings.Join(list, "', '") + "'"
}

func (d drawn) port() string {
	return fmt.Sprint(rapid.SampledFrom(meshPorts).Draw(d.t, "port"))
}

func (d drawn) exportTo() string {
	return d.one("exportTo", "", "exportTo: ['*'], ", "exportTo: ['.'], ", "exportTo: [shop], ", "exportTo: ['~'], ", "exportTo: [default, edge], ")
}

func (d drawn) object(i int) string {
	kinds := map[string]func() string{
		"ServiceEntry": d.serviceEntry, "VirtualService": d.virtualService, "DestinationRule": d.destinationRule,
		"Sidecar": d.sidecar, "Gateway": d.gateway, "WorkloadEntry": d.workloadEntry,
	}
	kind := d.one("kind", "ServiceEntry", "ServiceEntry", "ServiceEntry", "VirtualService", "VirtualService", "DestinationRule",
		"Sidecar", "Sidecar", "Gateway", "WorkloadEntry")
	return xdstest.Object(kind, d.one("namespace", meshNamespaces...)+fmt.Sprintf("/o%d", i), "{"+kinds[kind]()+"}")
}

func (d drawn) serviceEntry() string {
	hosts := d.some("hosts", "a.shop.example", "b.shop.example", "a.edge.example", "*.shop.example", "*.example", "x.shop.svc.cluster.local")
	resolution := d.one("resolution", "NONE", "STATIC, endpoints: [{address: 10.1.0.1, labels: {v: v1}}]",
		"STATIC, workloadSelector: {labels: {app: w}}", "STATIC", "DNS, endpoints: [{address: dns.org}]")
	if strings.Contains(hosts, "*") {
		resolution = "NONE"
	}
	var ports []string
	for i, number := range rapid.SliceOfNDistinct(rapid.SampledFrom(meshPorts), 1, 3, rapid.ID[int]).Draw(d.t, "ports") {
		ports = append(ports, fmt.Sprintf("{number: %d, name: p%d%s}", number, i,
			d.one("protocol", ", protocol: HTTP", ", protocol: TCP", ", protocol: GRPC", ", protocol: TLS", "")))
	}
	addresses := d.one("addresses", "", "", "10.9.0.1", "10.9.0.1, 10.9.0.2", "'fd00::9'", "10.9.0.0/24")
	if strings.HasPrefix(resolution, "DNS") {
		addresses = strings.TrimSuffix(addresses, "/24")
	}
	if d.one("wild", "", "", "", "dynamic") != "" {
		hosts, resolution, addresses = d.one("patterns", "'*.shop.example'", "'*.example'", "'*.shop.example', '*.example'"), "DYNAMIC_DNS", ""
	}
	return fmt.Sprintf("%shosts: [%s], addresses: [%s], ports: [%s], resolution: %s", d.exportTo(), hosts, addresses, strings.Join(ports, ", "), resolution)
}

func (d drawn) virtualService() string {
	destination := func() string {
		return fmt.Sprintf("{destination: {host: '%s'%s%s}}", d.one("destination", "a.shop.example", "b.shop.example", "a.edge.example", "x.shop.svc.cluster.local", "nowhere.org"),
			d.one("subset", "", ", subset: v1"), d.one("to", "", ", port: {number: "+d.port()+"}"))
	}
	return fmt.Sprintf("%shosts: [%s], %shttp: [{%sroute: [%s]}, {%s}]", d.exportTo(), d.one("routed", "a.shop.example, outside.org", "a.shop.example, b.shop.example", "'*.shop.example'", "'*.example'", "x.shop.svc.cluster.local", "outside.org", "10.9.0.1", "10.9.0.2, a.edge.example", "'*.shop.example', a.edge.example"),
		d.one("gateways", "", "gateways: [mesh, edge/gw], ", "gateways: [edge/gw], "),
		d.one("match", "", "match: [{sourceLabels: {app: cart}}], ", "match: [{port: 80}], "), destination(),
		d.one("last", "directResponse: {status: 418}", "route: ["+destination()+"]", "redirect: {uri: /x}"))
}

func (d drawn) destinationRule() string {
	return fmt.Sprintf("%shost: '%s', subsets: [{name: %s, labels: {v: v1}}]%s", d.one("clients", d.exportTo(), "workloadSelector: {matchLabels: {app: cart}}, "), d.one("host", meshHosts[:7]...),
		d.one("subset", meshSubsets[1:]...), d.one("policy", "", ", trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}", ", trafficPolicy: {tunnel: {targetHost: t.example, targetPort: 1}}"))
}

func (d drawn) sidecar() string {
	var egress []string
	imports := func() string {
		return d.some("imports", "./*", "~/*", "*/*", "*/a.shop.example", "shop/*", "edge/*.shop.example", "*/*.shop.example",
			"istio-system/*", "*/outside.org", "~shop/*", "./b.shop.example", "default/x.shop.svc.cluster.local")
	}
	for _, port := range rapid.SliceOfNDistinct(rapid.SampledFrom(meshPorts), 0, 2, rapid.ID[int]).Draw(d.t, "listeners") {
		egress = append(egress, fmt.Sprintf("{port: {number: %d, name: e, protocol: %s}, %s%shosts: [%s]}", port,
			d.one("protocol", "HTTP", "TCP", "GRPC"), d.one("bind", "", "", "bind: 127.0.0.9, "),
			d.one("capture", "", "captureMode: NONE, "), imports()))
	}
	if len(egress) == 0 || rapid.Bool().Draw(d.t, "rest") {
		egress = append(egress, "{hosts: ["+imports()+"]}")
	}
	return fmt.Sprintf("%segress: [%s]%s%s", d.one("selects", "", "workloadSelector: {labels: {app: cart}}, "), strings.Join(egress, ", "),
		d.one("policy", "", ", outboundTrafficPolicy: {mode: REGISTRY_ONLY}"),
		d.one("ingress", "", ", ingress: [{port: {number: 9090, name: in, protocol: HTTP}, defaultEndpoint: '127.0.0.1:8080'}]"))
}

func (d drawn) gateway() string {
	return fmt.Sprintf("selector: {istio: gateway}, servers: [{port: {number: %s, name: http, protocol: HTTP}, hosts: [%s]%s}]", d.port(),
		d.some("served", "*", "*.shop.example", "shop/*", "./a.shop.example", "outside.org"), d.one("bind", "", ", bind: 10.9.0.1"))
}

func (d drawn) workloadEntry() string {
	return fmt.Sprintf("address: %s, labels: {app: w, v: v1}", d.one("address", "10.0.0.1", "10.1.0.9"))
}

// everyName lists all names, of any type, that resources can have in a mesh of these
// hosts and ports.
func everyName() []string {
	out := []string{
		names.VirtualOutboundListener, names.VirtualInboundListener, names.BlackHoleCluster, names.PassthroughCluster, names.AllowAnyDynamicDNSCluster, nds.TableName,
	}
	for _, h := range meshHosts {
		out = append(out, nds.TableName+"/"+h)
	}
	for _, port := range meshPorts {
		number := uint32(port)
		configs := []string{
			names.SidecarRouteConfig(number), names.GatewayHTTPRouteConfig(number, ""), names.GatewayHTTPRouteConfig(number, "10.9.0.1"), names.HTTPProxyRouteConfig,
		}
		for _, h := range meshHosts {
			own := names.ServiceRouteConfig(h, number)
			out = append(out, names.HostPort(h, number), own, route.HostName(own, h, port))
			for _, subset := range meshSubsets {
				out = append(out, names.Cluster(names.Outbound, number, subset, h))
			}
			for _, config := range configs {
				out = append(out, route.HostName(config, h, port))
			}
		}
		out = append(out, configs...)
		for _, address := range meshAddresses {
			out = append(out, names.Listener(address, number))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lookers returns proxies of all kinds.
func lookers() []xdstest.Node {
	cart := map[string]string{"app": "cart"}
	out := []xdstest.Node{
		{Type: discovery.Router, Namespace: "edge", Labels: map[string]string{"istio": "gateway"}},
		{Namespace: "shop", Labels: cart, DNSCapture: true, MoreIPs: []string{"fd00::1"}, HTTPProxyPort: "8080"},
		{Namespace: "edge", Labels: cart, Interception: discovery.InterceptionRedirect, MoreIPs: []string{"fd00::1"}},
	}
	for _, namespace := range []string{"default", "shop"} {
		for _, kind := range []xdstest.Node{
			{}, {Interception: discovery.InterceptionRedirect}, {Type: discovery.Proxyless}, {Type: discovery.Proxyless, Labels: cart},
		} {
			kind.Namespace = namespace
			out = append(out, kind)
		}
	}
	return out
}

// builtNames returns those names for which a generator makes a resource.
func builtNames(t *rapid.T, g generate.Generator, v *mesh.View, names []string) []string {
	var out []string
	for _, name := range names {
		r, err := generate.Build(g, v, name)
		if err != nil {
			t.Fatalf("build %s: %v", name, err)
		}
		if r != nil {
			out = append(out, name)
		}
	}
	return out
}

// TestWhereAllIsLookedAtNothingIsPassedOver: for a Whole delta, Affected yields every
// name for which the generator makes a resource, whatever the mesh and the Sidecars.
func TestWhereAllIsLookedAtNothingIsPassedOver(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	every := everyName()
	rapid.Check(t, func(rt *rapid.T) {
		w := xdstest.NewWorld(t)
		w.Apply(xdstest.Object("Gateway", "edge/gw", "{selector: {istio: gateway}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"))
		for i := range rapid.IntRange(1, 14).Draw(rt, "objects") {
			w.Apply(drawn{rt}.object(i))
		}
		w.Assign("shop", "a.shop.example", "240.240.0.1")
		w.Assign("default", "b.shop.example", "240.240.0.2")
		for _, n := range lookers() {
			v := mesh.NewView(w.Context(), w.Context().ClassOf(n.Proxy(t)))
			for _, typ := range catalogue.Types() {
				g := typ.Generator
				if n.Type == discovery.Proxyless {
					g = typ.Proxyless
				}
				if g == nil {
					continue
				}
				found := slices.Compact(slices.Sorted(g.Affected(v, mesh.Diff(nil, w.Context()))))
				if diff := cmp.Diff(builtNames(rt, g, v, every), builtNames(rt, g, v, found)); diff != "" {
					rt.Errorf("%s of a %s of %s %v: all there is -, found +\n%s", typ.Name, n.Type, n.Namespace, n.Labels, diff)
				}
			}
		}
	})
}
