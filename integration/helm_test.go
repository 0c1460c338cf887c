package integration

import (
	"strings"
	"testing"
)

// chart is a chart with a route, whose label is a value.
const chart = "testdata/apiclients/chart"

// helmStep is a command of Helm: what it says, or how it fails.
type helmStep struct {
	line  string
	fails bool
	says  string
}

// TestHelm: Helm installs, upgrades, rolls back and uninstalls, with its state in ConfigMaps.
func TestHelm(t *testing.T) {
	t.Parallel()
	helm := apiClient(t, "helm")
	s := startSecureServer(t, serverOptions{})
	c := clientRun{path: helm, kubeconfig: s.kubeconfigFile(t), home: t.TempDir(), env: []string{"HELM_DRIVER=configmap"}}
	k := newKubectl(t, s.server)
	k.args = []string{"--kubeconfig=" + c.kubeconfig}
	version := func(want string) {
		t.Helper()
		k.expectOutput(true, "", strings.Fields("get virtualservice web -n shop --show-labels --no-headers"), "version="+want)
	}
	usual := c
	usual.env = nil
	usual.steps(t, helmStep{line: "install shop " + chart + " -n shop --create-namespace", fails: true, says: "set HELM_DRIVER=configmap"})
	k.expectOutput(true, "", strings.Fields("get virtualservices -n shop"), "No resources found")
	c.steps(t, helmStep{line: "install shop " + chart + " -n shop --create-namespace --wait --timeout 30s", says: "STATUS: deployed"})
	version("v1")
	c.steps(t, helmStep{line: "upgrade shop " + chart + " -n shop --set version=v2 --wait --timeout 30s", says: "REVISION: 2"})
	version("v2")
	c.steps(t, helmStep{line: "upgrade shop " + chart + " -n shop --set version=-bad", fails: true, says: "virtualservice/shop/web is invalid"})
	version("v2")
	c.steps(t, helmStep{line: "rollback shop 1 -n shop", says: "Rollback was a success"})
	version("v1")
	c.steps(t,
		helmStep{line: "history shop -n shop", says: "Rollback to 1"},
		helmStep{line: "list -A", says: "shop-1.0.0"},
		helmStep{line: "get manifest shop -n shop", says: "kind: VirtualService"},
		helmStep{line: "uninstall shop -n shop --wait --timeout 30s", says: `release "shop" uninstalled`})
	k.expectOutput(true, "", strings.Fields("get virtualservices,serviceentries,configmaps -n shop"), "No resources found")
}

// steps runs commands of Helm one after the other.
func (c clientRun) steps(t *testing.T, steps ...helmStep) {
	t.Helper()
	for _, step := range steps {
		if out, ok := c.run(t, strings.Fields(step.line)...); ok == step.fails || !strings.Contains(out, step.says) {
			t.Fatalf("helm %s: succeeded is %v, it says nothing of %q: %s", step.line, ok, step.says, out)
		}
	}
}

// TestHelmTemplate: what Helm renders is applied by kubectl.
func TestHelmTemplate(t *testing.T) {
	t.Parallel()
	helm := apiClient(t, "helm")
	s := startServer(t, serverOptions{})
	k := newKubectl(t, s)
	c := clientRun{path: helm, kubeconfig: s.kubeconfigFile(t), home: t.TempDir()}
	rendered, ok := c.run(t, "template", "shop", chart, "--set", "version=v3")
	if !ok {
		t.Fatal(rendered)
	}
	k.expectOutput(true, rendered, strings.Fields("apply -f -"), "virtualservice.networking.istio.io/web created")
	k.expectOutput(true, rendered, strings.Fields("apply -f -"), "web unchanged")
	k.expectOutput(true, rendered, strings.Fields("diff -f -"))
	k.expectOutput(true, "", strings.Fields("get vs web --show-labels"), "version=v3")
}

// TestKustomize: kubectl builds and applies kustomizations, prunes what they lose, and deletes them.
func TestKustomize(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	k := newKubectl(t, s)
	const overlay = "testdata/apiclients/kustomize/overlay"
	k.expectOutput(true, "", strings.Fields("apply -k "+overlay), "serviceentry.networking.istio.io/web-live created", "configmap/settings-live-")
	k.expectOutput(true, "", strings.Fields("apply -k "+overlay), "web-live unchanged")
	k.expectOutput(true, "", strings.Fields("diff -k "+overlay))
	k.expectOutput(true, "", strings.Fields("get se web-live -o yaml"), "address: 10.0.0.2", "env: live")
	stale := strings.Replace(ship("shop", "stale", "10.0.0.3"), "metadata: {", "metadata: {labels: {env: live}, ", 1)
	k.expectOutput(true, stale, strings.Fields("apply -f -"), "stale created")
	k.expectOutput(true, "", strings.Fields("apply -k "+overlay+" --prune -l env=live --prune-allowlist=networking.istio.io/v1/ServiceEntry"), "stale pruned", "web-live unchanged")
	k.expectOutput(true, "", strings.Fields("apply -k "+overlay+" --server-side --force-conflicts"), "web-live serverside-applied")
	k.expectOutput(true, "", strings.Fields("delete -k "+overlay), `"web-live" deleted`)
}
