package desired_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// workloads draws random objects around the workloads at two addresses.
type workloads struct{ t *rapid.T }

func (h workloads) one(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(h.t, label)
}

// object draws an object, and its name as World.Delete expects it.
func (h workloads) object() (name, document string) {
	kind := h.one("kind", "ServiceEntry", "ServiceEntry", "WorkloadEntry", "WorkloadEntry", "WorkloadEntry", "Sidecar", "DestinationRule", "VirtualService")
	short, namespace := h.one("name", "x", "q", "z"), h.one("namespace", "shop", "shop", "edge")
	var spec string
	switch kind {
	case "ServiceEntry":
		endpoints := h.one("endpoints", "workloadSelector: {labels: {app: w}}", "workloadSelector: {labels: {app: v}}", "endpoints: [{address: 10.0.0.1}]", "endpoints: [{address: 10.0.0.9}]")
		spec = fmt.Sprintf("{hosts: [%s], addresses: [%s], ports: [{number: %s, name: p, protocol: %s, targetPort: %s}], exportTo: %s, location: %s, resolution: STATIC, %s}",
			h.one("host", "a.shop.example", "b.shop.example"), h.one("address", "", "10.9.0.1"), h.one("port", "80", "81"), h.one("protocol", "HTTP", "TCP"),
			h.one("target", "8080", "8081"), h.one("exportTo", `["*"]`, `["."]`), h.one("location", "MESH_INTERNAL", "MESH_EXTERNAL"), endpoints)
	case "WorkloadEntry":
		spec = fmt.Sprintf("{address: %s, labels: {app: %s, v: %s}, serviceAccount: %s, weight: %s%s}", h.one("ip", "10.0.0.1", "10.0.0.2", "10.0.0.9", "fd00::1", "fd00:0::1"),
			h.one("app", "w", "v"), h.one("v", "x", "q"), h.one("account", "one", "two"), h.one("weight", "1", "2"), h.one("ports", "", ", ports: {p: 9090}"))
	case "Sidecar":
		spec = fmt.Sprintf("{%s egress: [{hosts: ['%s']}]%s}", h.one("selector", "", "workloadSelector: {labels: {v: x}},"), h.one("hosts", "./*", "*/b.shop.example", "~/*"),
			h.one("ingress", "", ", ingress: [{port: {number: 8080, name: in, protocol: HTTP}, defaultEndpoint: 127.0.0.1:80}]"))
	case "DestinationRule":
		spec = fmt.Sprintf("{host: '%s'%s, trafficPolicy: {connectionPool: {tcp: {maxConnections: %s}}}}", h.one("host", "a.shop.example", "*.shop.example"),
			h.one("clients", "", ", workloadSelector: {matchLabels: {app: w}}"), h.one("pool", "1", "2"))
	default:
		spec = fmt.Sprintf("{hosts: ['%s'], http: [{match: [{sourceLabels: {v: %s}}], route: [{destination: {host: b.shop.example}}]}]}", h.one("host", "a.shop.example", "*.shop.example"), h.one("v", "x", "q"))
	}
	return fmt.Sprintf("%s/%s/%s", strings.ToLower(kind), namespace, short), fmt.Sprintf(
		"apiVersion: networking.istio.io/v1\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", kind, short, namespace, spec)
}

// TestWhatIsAWorkloadsOwnFollowsEveryChange: after each single change, the workload's own
// resources equal a new build of them.
func TestWhatIsAWorkloadsOwnFollowsEveryChange(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	nodes := []xdstest.Node{
		{Type: discovery.Sidecar, Namespace: "shop", IP: "10.0.0.1", Interception: discovery.InterceptionRedirect},
		{Type: discovery.Sidecar, Namespace: "shop", IP: "10.0.0.1", Identity: "spiffe://cluster.local/ns/shop/sa/one", Interception: discovery.InterceptionRedirect},
		{Type: discovery.Sidecar, Namespace: "shop", IP: "10.0.0.1", Interception: discovery.InterceptionNone},
		{Type: discovery.Sidecar, Namespace: "edge", IP: "10.0.0.2", Interception: discovery.InterceptionTproxy},
		{Type: discovery.Sidecar, Namespace: "shop", IP: "fd00:0:0::1", Interception: discovery.InterceptionRedirect},
	}
	rapid.Check(t, func(rt *rapid.T) {
		h := workloads{rt}
		mesh := xdstest.NewWorld(t)
		all := xdstest.NewGroups(catalogue.Types(), mesh.Context)
		var members []xdstest.Member
		for _, n := range nodes {
			members = append(members, all.Join(n.Proxy(t)))
		}
		var there []string
		for range rapid.IntRange(4, 20).Draw(rt, "pushes") {
			if len(there) > 0 && rapid.IntRange(0, 4).Draw(rt, "delete") == 0 {
				name := rapid.SampledFrom(there).Draw(rt, "victim")
				mesh.Delete(name)
				there = slices.DeleteFunc(there, func(n string) bool { return n == name })
			} else {
				name, document := h.object()
				mesh.Apply(document)
				if !slices.Contains(there, name) {
					there = append(there, name)
				}
			}
			for i, w := range members {
				if rapid.IntRange(0, 9).Draw(rt, "skip") == 0 {
					continue
				}
				followsLikeAWalk(rt, i, w)
			}
		}
		for _, w := range members {
			w.Close()
		}
	})
}
