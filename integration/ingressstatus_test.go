package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestKubernetesIngressStatus: the leader writes the address of the gateway into an Ingress of
// Kubernetes' own server, and takes it out once the gateway has gone. That of another controller stays
// as it is. No Ingress can be changed here, and errors say where it lives. A server that begins to write
// statuses writes those of objects that do not change too.
func TestKubernetesIngressStatus(t *testing.T) {
	needEnvoy(t)
	needKubeAPIServer(t)
	k := &kubeCluster{t, startKubeAPIServer(t, kubeAPIServerBinary)}
	const all = "/apis/networking.k8s.io/v1/namespaces/shop/ingresses"
	ingress := func(name, class string) string {
		return fmt.Sprintf(`{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": %q, "namespace": "shop"},
			"spec": {"ingressClassName": %q, "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}}`, name, class)
	}
	k.must("POST", "/apis/networking.k8s.io/v1/ingressclasses", `{"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "istio"}, "spec": {"controller": "istio.io/ingress-controller"}}`)
	k.must("POST", all, ingress("ours", "istio"))
	k.must("POST", all, ingress("other", "nginx"))
	k.must("PUT", all+"/other/status", strings.TrimSuffix(ingress("other", "nginx"), "}")+`, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}`)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	k.api.kubeconfig(t, config, strings.TrimPrefix(k.api.url, "https://"))
	k.entry("one")
	s := startServer(t, serverOptions{args: []string{"--config-kube", "east=" + config}})
	s.awaitSource("kube://east", "", 4)
	s.awaitCondition("serviceentries", "one", "Accepted", "True", "was seen by the servers") // by the leader, which saves what it knows when it ends
	restart := func(args ...string) {
		t.Helper()
		if err := s.process.terminate(t); err != nil {
			t.Fatal(err)
		}
		s.o.args = append([]string{"--config-kube", "east=" + config}, args...)
		s.start()
	}
	restart("--write-status")
	k.condition("serviceentries", "one", "Accepted", "True", "was seen by the servers")
	const entry = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/one"
	observed := func(path string) {
		t.Helper()
		eventually(t, "the status is of the last generation", func() error {
			object := k.get(path)
			if got, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration"); got != object.GetGeneration() {
				return fmt.Errorf("%d, not %d", got, object.GetGeneration())
			}
			return nil
		})
	}
	patch := func(path, spec string) {
		t.Helper()
		merge := map[string]string{"Content-Type": "application/merge-patch+json"}
		if code, _, text, err := k.api.do(t.Context(), "PATCH", path, `{"spec":`+spec+`}`, merge); err != nil || code != 200 {
			t.Fatalf("%d %s %v", code, text, err)
		}
		observed(path)
	}
	patch(entry, `{"hosts":["two.example"]}`)
	// Of what Portolan refuses the generation counts too, also if it refuses it for the same reason.
	k.must("POST", virtualServices, `{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"odd"},
		"spec":{"hosts":["a..example"],"http":[{"route":[{"destination":{"host":"one.example"}}]}]}}`)
	k.condition("virtualservices", "odd", "Accepted", "False", "spec.hosts[0]")
	observed(virtualServices + "/odd")
	patch(virtualServices+"/odd", `{"http":[{"route":[{"destination":{"host":"two.example"}}]}]}`)
	s.apply("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: one, namespace: shop}\nspec: {hosts: [one.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}\n")
	k.condition("serviceentries", "one", "Accepted", "False", "it is not in effect: the store has this object too")
	patch(entry, `{"hosts":["three.example"]}`)
	s.must("", "delete", "serviceentry/one", "-n", "shop", "--yes")
	k.condition("serviceentries", "one", "Accepted", "True", "was seen by the servers")
	edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", namespace: "istio-system", ip: "127.0.0.1", labels: "istio=ingressgateway", variant: protocol.Delta})
	has := func(name, want string) error {
		status, _ := json.Marshal(k.get(all + "/" + name).Object["status"])
		if got := string(status); got != want {
			return fmt.Errorf("the status of %s is %s, want %s", name, got, want)
		}
		return nil
	}
	eventually(t, "the Ingress has the address", func() error { return has("ours", `{"loadBalancer":{"ingress":[{"ip":"127.0.0.1"}]}}`) })
	if err := has("other", `{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}`); err != nil {
		t.Error(err)
	}
	var managers []string
	for _, m := range k.get(all + "/ours").GetManagedFields() {
		if m.Subresource == "status" {
			managers = append(managers, m.Manager+" "+string(m.Operation))
		}
	}
	if fmt.Sprint(managers) != "[portolan Apply]" {
		t.Errorf("the managers of the status are %v", managers)
	}
	version := k.get(all + "/ours").GetResourceVersion()
	if out := s.must("", "get", "ingress", "-A"); !strings.Contains(out, "127.0.0.1") || !strings.Contains(out, "SOURCE") || !strings.Contains(out, "kube://east") {
		t.Errorf("the table is\n%s", out)
	}
	for _, line := range []string{
		"delete ingress/ours -n shop --yes", "label ingress/ours -n shop a=b",
		"patch ingress/ours -n shop --type merge -p {\"spec\":{\"ingressClassName\":\"x\"}}",
		"patch ingress/ours -n shop --subresource status --type merge -p {\"status\":{\"conditions\":[{\"type\":\"Mine\",\"status\":\"True\"}]}}",
	} {
		out := s.try("", strings.Fields(line)...)
		if out.code == 0 || !strings.Contains(out.stderr, "kube://east") || !strings.Contains(out.stderr, "-n shop ingresses.networking.k8s.io ours") {
			t.Errorf("portolan %s: exit code %d, %s", line, out.code, out.stderr)
		}
	}
	if now := k.get(all + "/ours").GetResourceVersion(); now != version {
		t.Errorf("it was written again without a change: %s after %s", now, version)
	}
	// While an Ingress of the store is in effect instead, the one of the cluster has no address of ours.
	s.apply(strings.Replace(ingress("ours", "istio"), `"port": {"number": 80}`, `"port": {"number": 81}`, 1))
	eventually(t, "the address of a shadowed Ingress is taken out", func() error { return has("ours", `{"loadBalancer":{}}`) })
	s.must("", "delete", "ingress/ours", "-n", "shop", "--yes")
	eventually(t, "the Ingress has the address again", func() error { return has("ours", `{"loadBalancer":{"ingress":[{"ip":"127.0.0.1"}]}}`) })
	edge.process.Kill()
	eventually(t, "the address is taken out", func() error { return has("ours", `{"loadBalancer":{}}`) })
}
