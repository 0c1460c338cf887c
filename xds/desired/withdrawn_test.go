package desired_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestAWithdrawnMachineKeepsWhatComesIn: a machine that is drained, removed or not healthy is no
// endpoint for its clients. Its own proxy keeps its ports, and the policies that select it.
func TestAWithdrawnMachineKeepsWhatComesIn(t *testing.T) {
	t.Parallel()
	entry := func(annotations string) string {
		return "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w, namespace: shop, annotations: {" + annotations + "}}\n" +
			"spec: {address: 10.0.0.1, labels: {app: w}, serviceAccount: w}\n"
	}
	w := xdstest.NewWorld(t, entry(""),
		xdstest.Object("ServiceEntry", "shop/w", "{hosts: [w.shop.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: w}}}"),
		"apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: w, namespace: shop}\nspec: {selector: {matchLabels: {app: w}}}\n",
		"apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: w, namespace: shop}\nspec: {selector: {matchLabels: {app: w}}, mtls: {mode: STRICT}}\n")
	all := xdstest.NewGroups(catalogue.Types(), w.Context)
	join := func(ip string) xdstest.Member {
		m := all.Join(xdstest.Node{Type: discovery.Sidecar, Namespace: "shop", IP: ip, Interception: discovery.InterceptionRedirect, Certified: true}.Proxy(t))
		t.Cleanup(m.Close)
		return m
	}
	own, client := join("10.0.0.1"), join("10.0.0.9")
	of := func(m xdstest.Member) (inbound map[string]string, endpoints string) {
		m.Follow()
		inbound = map[string]string{}
		for name, version := range m.Versions() {
			if strings.Contains(name, "virtualInbound") || strings.Contains(name, "inbound|") {
				inbound[name] = version
			}
		}
		return inbound, m.Versions()["EDS outbound|80||w.shop.example"]
	}
	inbound, _ := of(own)
	_, before := of(client)
	if len(inbound) < 2 {
		t.Fatalf("what comes in: %v", inbound)
	}
	for _, annotations := range []string{"portolan.io/drained: a disk", "portolan.io/removed: stolen", "proxy.istio.io/health-checks-enabled: 'true'"} {
		w.Apply(entry(annotations))
		now, _ := of(own)
		if d := cmp.Diff(inbound, now); d != "" {
			t.Errorf("%s: what comes in changes (-before +now):\n%s", annotations, d)
		}
		if _, endpoints := of(client); endpoints == before {
			t.Errorf("%s: its clients still have it", annotations)
		}
	}
}
