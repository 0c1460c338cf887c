package explain_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestExplainHeadless: a TCP service without an address of its own is called at the addresses of its
// workloads, and a captured connection goes on to the one that the client chose.
func TestExplainHeadless(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/db", "{hosts: [db.test], location: MESH_INTERNAL, resolution: NONE, ports: [{number: 5432, name: tcp, protocol: TCP}], workloadSelector: {labels: {app: db}}}"),
		xdstest.Object("WorkloadEntry", "shop/db-1", "{address: 10.0.0.3, labels: {app: db}}"),
		xdstest.Object("WorkloadEntry", "shop/db-2", "{address: 10.0.0.4, labels: {app: db}}"),
		xdstest.Object("ServiceEntry", "shop/empty", "{hosts: [empty.test], location: MESH_INTERNAL, resolution: NONE, ports: [{number: 5433, name: tcp, protocol: TCP}], workloadSelector: {labels: {app: none}}}"))
	m := connected{w, []*discovery.Proxy{
		xdstest.Node{IP: "10.1.0.8", Namespace: "shop", Interception: discovery.InterceptionRedirect}.Proxy(t),
		xdstest.Node{IP: "10.1.0.7", Namespace: "shop"}.Proxy(t),
	}}
	for parameters, want := range map[string]string{
		"from=10.1.0.8&to=db.test:5432":    "Forwarded | outbound|5432||db.test 10.0.0.3:5432",
		"from=10.1.0.8&to=10.0.0.4:5432":   "Forwarded | outbound|5432||db.test 10.0.0.4:5432",
		"from=10.1.0.8&to=10.0.0.5:5432":   "Passed | PassthroughCluster 10.0.0.5:5432 | no service is meant: it goes on to the client's destination",
		"from=10.1.0.8&to=10.0.0.4:5433":   "Passed | PassthroughCluster 10.0.0.4:5433 | no service is meant: it goes on to the client's destination",
		"from=10.1.0.8&to=empty.test:5433": "Passed | PassthroughCluster  | the mesh knows no address of empty.test: it goes on to the client's destination",
		"from=10.1.0.7&to=db.test:5432":    "Fails | outbound|5432||db.test  | db.test:5432: the requests go on to the client's destination, which only a proxy that captures traffic knows",
	} {
		e, err := explained(t, m, parameters)
		if err != nil {
			t.Errorf("%s: %v", parameters, err)
			continue
		}
		if got := line(e); got != want {
			t.Errorf("%s:\n%s, want\n%s", parameters, got, want)
		}
	}
}
