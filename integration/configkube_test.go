package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestConfigOfACluster serves the objects of a cluster, which is another server: its API has
// the shape of Kubernetes'. A change there reaches the proxies here. Nothing is lost while the
// cluster is down, also if this server starts meanwhile.
func TestConfigOfACluster(t *testing.T) {
	t.Parallel()
	x := newShop(t)
	hub := startServer(t, serverOptions{})
	hub.apply(x.entry(x.v1, x.v2), x.rule(), x.door(), x.routes(100, 0), probedLedger)
	hub.setHealth("one", "True")
	const name = "kube://east"
	s := startServer(t, serverOptions{args: []string{"--config-kube", "east=" + hub.kubeconfigFile(t), "--write-status"}})
	s.awaitSource(name, "", 7)
	edge, client := s.startPair(protocol.Delta)
	reply := func(version string) {
		t.Helper()
		awaitReply(t, x.atGateway("/"), version)
		awaitReply(t, x.atSidecar("/"), version)
	}
	reply("v1")
	hub.apply(x.routes(0, 100))
	reply("v2")

	if text := s.must("", "get", "serviceentry", "reviews", "-n", "shop", "-o", "yaml"); !strings.Contains(text, "portolan.io/source: "+name) {
		t.Errorf("an object of a cluster does not say so: %s", text)
	}
	for _, from := range []*server{hub, s} {
		whole := from.must("", "get", "se,vs,dr,gw", "-n", "shop", "-o", "yaml")
		if text := s.must(whole, "diff", "-f", "-"); text != "" {
			t.Errorf("the same objects differ from those of a cluster:\n%s", text)
		}
	}
	if text := s.must("", "describe", "serviceentry", "reviews", "-n", "shop"); !strings.Contains(text, name) {
		t.Errorf("describe does not say where an object is from: %s", text)
	}
	if text := s.must("", "source", "list"); !strings.Contains(text, name+"  cluster") {
		t.Errorf("the list of sources lacks the cluster: %s", text)
	}
	out := s.try("", "delete", "virtualservice", "reviews", "-n", "shop", "--yes")
	if words := "the object comes from the source " + name + ", kubectl get -n shop virtualservices.networking.istio.io reviews: change it there"; out.code == 0 || !strings.Contains(out.stderr, words) {
		t.Errorf("deleting an object of a cluster: exit code %d, %s", out.code, out.stderr)
	}
	out = s.try("", "delete", "virtualservice", "--all", "-n", "shop", "--yes")
	if want := "Warning: virtualservice/shop/reviews: the object comes from the source " + name; out.code != 0 || !strings.HasPrefix(out.stderr, want) {
		t.Errorf("deleting all objects of a kind of a cluster: exit code %d, %s", out.code, out.stderr)
	}

	if text := s.must("", "explain", "request", "--from", "client", "--to", fmt.Sprintf("http://%s:%d/", shopHost, x.service)); !strings.Contains(text, "virtualservice/shop/reviews http[0], from "+name) {
		t.Errorf("the explanation of a request does not say where an object is from: %s", text)
	}
	ledger := func(want string) {
		t.Helper()
		s.awaitService("ledger.shop.test", want)
	}
	ledger("1 healthy, 1 left out") // nobody has reported the other one's
	hub.setHealth("one", "False")
	ledger("0 healthy, 2 left out")
	hub.setHealth("two", "True")
	ledger("1 healthy, 1 left out")

	hub.kill()
	named := func(text string) {
		t.Helper()
		eventually(t, "the server is ready, and names the cluster", func() error {
			got, err := s.get("/readyz?verbose", nil)
			if err == nil && !strings.Contains(string(got), "[!] sources: source "+name+text) {
				return fmt.Errorf("%s", got)
			}
			return err
		})
	}
	named(": since ")
	s.awaitMetric(`portolan_source_degraded{source="`+name+`"}`, "1")
	if out := s.try("", "store", "status"); out.code != 1 || !strings.Contains(out.stdout, name+": degraded, 7 objects") || !strings.Contains(out.stdout, "! source "+name+": since ") {
		t.Errorf("the status of the store does not name the cluster: %+v", out)
	}
	const unread = name + " cannot be read as it is now, so what is shown of it may be old or missing: since "
	if out := s.try("", "get", "vs,dr", "-n", "shop"); out.code != 0 || strings.Count(out.stderr, "Warning: source "+unread) != 1 {
		t.Errorf("objects beside a source that is not read: exit code %d, %s", out.code, out.stderr)
	}
	if out := s.try("", "get", "jointokens,meshconfigs"); out.code != 0 || strings.Contains(out.stderr, "Warning") {
		t.Errorf("kinds that no cluster has: %+v", out)
	}
	if text := s.must("", "analyze", "-n", "shop", "--failure-threshold", "error"); !strings.Contains(text, "warning [PTL0182] source/"+name+": cannot be read as it is now") {
		t.Errorf("findings beside a source that is not read: %s", text)
	}
	reply("v2")
	hub.start()
	s.awaitSource(name, "", 7)
	s.awaitMetric(`portolan_source_degraded{source="`+name+`"}`, "0")
	hub.apply(x.routes(100, 0))
	reply("v1")
	hub.kill()
	named(": since ")
	if err := s.process.terminate(t); err != nil { // it saves what the cluster had
		t.Fatal(err)
	}
	began := time.Now()
	s.start()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the server is ready only after %s", took)
	}
	named(": what was known of it at ")
	s.awaitSource(name, "connection refused", 7)
	s.startEnvoy(envoyOptions{kind: "sidecar", name: "late", variant: protocol.StateOfTheWorld, ip: "10.0.0.9"})
	reply("v1")
	ledger("1 healthy, 1 left out")

	hub.start()
	s.awaitSource(name, "", 7)
	hub.apply(x.routes(0, 100))
	reply("v2")
	entries := s.must("", "get", "we", "-n", "shop", "-o", "yaml")
	if out := s.must(entries, "import", "-f", "-", "--wait", "--min-proxies", "0"); !strings.Contains(out, " healthy, as its status says") {
		t.Errorf("the import of the workloads of a cluster: %s", out)
	}
	if text := s.must("", "get", "we", "two", "-n", "shop", "-o", "yaml"); strings.Contains(text, "portolan.io/source") {
		t.Errorf("a workload is not of the store: %s", text)
	}
	ledger("1 healthy, 1 left out") // the same as in the cluster
	hub.remove(x.rule())
	s.awaitSource(name, "", 6)
	s.expectNothingRejected()
	edge.expectNothingRejected()
	client.expectNothingRejected()
}

// probedLedger is a service of two workloads that get traffic only while they are reported healthy.
const probedLedger = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ledger, namespace: shop}
spec:
  hosts: [ledger.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: ledger}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: one, namespace: shop, annotations: {proxy.istio.io/health-checks-enabled: "true"}}
spec: {address: 10.0.0.1, labels: {app: ledger}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: two, namespace: shop, annotations: {proxy.istio.io/health-checks-enabled: "true"}}
spec: {address: 10.0.0.2, labels: {app: ledger}}
`
