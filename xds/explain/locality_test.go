package explain_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/explain"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestExplainLocalities: which localities a proxy prefers, in which order and by which shares.
func TestExplainLocalities(t *testing.T) {
	t.Parallel()
	service := func(name string, localities ...string) string {
		var endpoints []string
		for i, l := range localities {
			endpoints = append(endpoints, "{address: 10.1.0."+string(rune('1'+i))+", locality: '"+l+"'}")
		}
		return xdstest.Object("ServiceEntry", "shop/"+name, "{hosts: ["+name+".test], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: ["+strings.Join(endpoints, ", ")+"]}")
	}
	rule := func(name, setting string) string {
		return xdstest.Object("DestinationRule", "shop/"+name, "{host: "+name+".test, trafficPolicy: {outlierDetection: {}, loadBalancer: {localityLbSetting: {"+setting+"}}}}")
	}
	all := []string{"us/a", "eu/a", "eu/b", "ap/a"}
	w := xdstest.NewWorld(t, service("plain", all...), service("near", all...), rule("near", ""), service("failover", all...), rule("failover", "failover: [{from: eu, to: us}]"),
		service("shares", all...), rule("shares", "distribute: [{from: eu/*, to: {eu/*: 80, us/a: 20}}]"), service("nowhere", "", ""), rule("nowhere", "failover: [{from: eu, to: us}]"),
		service("some", "eu/a", ""), rule("some", ""),
		xdstest.Object("WorkloadEntry", "shop/here", "{address: 10.1.0.9, locality: eu/a}"), xdstest.Object("WorkloadEntry", "shop/lost", "{address: 10.1.0.8}"))
	m := connected{w, nil}
	const then = ", as too few endpoints of the ones before are healthy"
	for question, want := range map[string]string{
		"from=shop/here&to=plain.test:80":    "",
		"from=shop/here&to=near.test:80":     "the proxy runs in eu/a: first eu/a, then eu/b, then ap/a and us/a" + then,
		"from=shop/here&to=failover.test:80": "the proxy runs in eu/a: first eu/a, then eu/b, then us/a, then ap/a" + then,
		"from=shop/here&to=shares.test:80":   "the proxy runs in eu/a: eu/a (40 %) and eu/b (40 %) and us/a (20 %)",
		"from=shop/lost&to=shares.test:80":   "nobody says where the proxy runs: ap/a (25 %) and eu/a (25 %) and eu/b (25 %) and us/a (25 %)",
		"from=shop/lost&to=near.test:80":     "nobody says where the proxy runs: ap/a and eu/a and eu/b and us/a",
		"from=shop/here&to=nowhere.test:80":  "the proxy runs in eu/a, and no endpoint says where it does: all count alike",
		"from=shop/here&to=some.test:80":     "the proxy runs in eu/a: first eu/a, then where nobody says" + then,
	} {
		e, err := explained(t, m, question)
		if err != nil || len(e.Destinations) != 1 {
			t.Errorf("%s: %v %+v", question, err, e)
		} else if got := e.Destinations[0].Preference; got != want {
			t.Errorf("%s: %q, want %q", question, got, want)
		}
	}
}

// TestExplainWhatIsLeftOut: workloads that are no endpoint because of their health.
func TestExplainWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	checked := func(name, address, version string) string {
		return "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: " + name + ", namespace: shop, annotations: {proxy.istio.io/health-checks-enabled: 'true'}}\n" +
			"spec: {address: " + address + ", labels: {app: web, version: " + version + "}}\n"
	}
	w := xdstest.NewWorld(t, checked("one", "10.1.0.1", "v1"),
		xdstest.Object("ServiceEntry", "shop/web", "{hosts: [web.test], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: web}}}"),
		xdstest.Object("DestinationRule", "shop/web", "{host: web.test, subsets: [{name: v2, labels: {version: v2}}]}"),
		xdstest.Object("VirtualService", "shop/web", "{hosts: [web.test], http: [{match: [{uri: {prefix: /2}}], route: [{destination: {host: web.test, subset: v2}}]}, {route: [{destination: {host: web.test}}]}]}"),
		xdstest.Object("WorkloadEntry", "shop/client", "{address: 10.1.0.9}"))
	ask := func(path string) explain.Explanation {
		t.Helper()
		e, err := explained(t, connected{w, nil}, "from=shop/client&to=web.test:80&path="+path)
		if err != nil || len(e.Destinations) != 1 {
			t.Fatalf("%v %+v", err, e)
		}
		return e
	}
	unreported := func(name string) string {
		return "workloadentry/shop/" + name + ": it asks for health checks (proxy.istio.io/health-checks-enabled), and nobody has reported its health yet"
	}
	e := ask("/")
	if diff := cmp.Diff([]string{unreported("one")}, e.Destinations[0].LeftOut); diff != "" || e.Outcome != explain.Fails || !strings.Contains(e.Reason, "none of its workloads is known to be healthy") {
		t.Errorf("%s %s (-want +got)\n%s", e.Outcome, e.Reason, diff)
	}
	w.Apply(checked("two", "10.1.0.2", "v2"), xdstest.Object("WorkloadEntry", "shop/three", "{address: 10.1.0.3, labels: {app: web, version: v1}}"))
	for path, want := range map[string][]string{"/": {unreported("one"), unreported("two")}, "/2": {unreported("two")}} {
		if diff := cmp.Diff(want, ask(path).Destinations[0].LeftOut); diff != "" {
			t.Errorf("%s (-want +got)\n%s", path, diff)
		}
	}
}

// TestExplainPortsThatAreNotCaptured: without traffic capture, the oldest service with a port
// gets all connections on it.
func TestExplainPortsThatAreNotCaptured(t *testing.T) {
	t.Parallel()
	entry := func(name, address string) string {
		return xdstest.Object("ServiceEntry", "shop/"+name, "{hosts: ["+name+".test], resolution: STATIC, ports: [{number: 5432, name: tcp, protocol: TCP}], endpoints: [{address: "+address+"}]}")
	}
	w := xdstest.NewWorld(t, entry("a", "10.1.0.1"), entry("b", "10.1.0.2"), xdstest.Object("WorkloadEntry", "shop/vm-1", "{address: 10.1.0.9}"))
	w.Assign("shop", "a.test", "240.240.0.1")
	w.Assign("shop", "b.test", "240.240.0.2")
	m := connected{w, []*discovery.Proxy{xdstest.Node{IP: "10.1.0.8", Namespace: "shop", Interception: discovery.InterceptionRedirect}.Proxy(t)}}
	for question, want := range map[string]string{
		"from=shop/vm-1&to=a.test:5432": "Forwarded | outbound|5432||a.test 10.1.0.1:5432",
		"from=shop/vm-1&to=b.test:5432": "Fails | outbound|5432||a.test 10.1.0.1:5432 | the proxy captures no traffic, so only the port tells connections apart, and those on port 5432 are all for serviceentry/shop/a, which is older: from here nothing reaches b.test",
		"from=10.1.0.8&to=b.test:5432":  "Forwarded | outbound|5432||b.test 10.1.0.2:5432",
	} {
		e, err := explained(t, m, question)
		if got := line(e); err != nil || got != want {
			t.Errorf("%s: %v\n%s, want\n%s", question, err, got, want)
		}
	}
}
