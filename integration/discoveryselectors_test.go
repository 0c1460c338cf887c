package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// labelled labels a namespace of the cluster, or takes the label away.
func (f *faultyCluster) labelled(namespace, label string) {
	f.t.Helper()
	if out, ok := f.cluster.kubectl.run("", "label", "namespace", namespace, label, "--overwrite"); !ok {
		f.t.Fatal(out)
	}
}

// selectNamespaces sets the discoverySelectors of the mesh.
func (f *faultyCluster) selectNamespaces(selectors string) {
	f.t.Helper()
	f.server.apply("{apiVersion: portolan.io/v1, kind: MeshConfig, metadata: {name: default, namespace: istio-system}, spec: {discoverySelectors: " + selectors + "}}")
}

// expectNothingWrong waits until the server names nothing of the cluster.
func (f *faultyCluster) expectNothingWrong() {
	f.t.Helper()
	eventually(f.t, "nothing is wrong", func() error {
		ready, err := f.server.get("/readyz?verbose", nil)
		if err == nil && (strings.Contains(string(ready), "source "+configSource) || strings.Contains(string(ready), "cluster east:")) {
			err = errors.New(string(ready))
		}
		return err
	})
}

// absent waits until an upstream does not answer requests to hosts.
func (f *faultyCluster) absent(upstream string, hosts ...string) {
	f.t.Helper()
	client := clientOf(f.t)
	for _, host := range hosts {
		eventually(f.t, host+" is not served", func() error {
			got, err := do(f.t.Context(), client, request{port: f.port, host: host})
			if err == nil && got.String() == upstream {
				err = fmt.Errorf("%s answers", upstream)
			} else {
				err = nil
			}
			return err
		})
	}
}

// TestKubernetesDiscoverySelectors: what is in a namespace of a cluster comes and goes with the labels of
// the namespace, with the selectors of the mesh, and with the right to read Namespaces. Requests to
// another namespace do not notice.
func TestKubernetesDiscoverySelectors(t *testing.T) {
	needEnvoy(t)
	needKubeAPIServer(t)
	f := startFaultyCluster(t)
	if out, ok := f.cluster.kubectl.run("", "create", "namespace", "stall"); !ok {
		t.Fatal(out)
	}
	f.labelled("shop", "mesh=on")
	stall := startUpstreamAt(t, "stall", f.own, 0)
	f.cluster.apply(fill(`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: stall}, spec: {selector: {app: web}, ports: [{name: http, port: $port}]}}`, "$port", f.port))
	f.cluster.runs("stall", "stall", f.own, "web")
	f.cluster.serves("stall", "web", stall, f.own, podReady)
	f.cluster.apply(fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: stall, namespace: stall}
spec: {hosts: [stall.example], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: $port, name: http, protocol: HTTP}], endpoints: [{address: $own, ports: {http: $target}}]}
`, "$port", f.port, "$own", f.own, "$target", stall.port))
	f.server.apply(fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: pods, namespace: stall}
spec: {hosts: [pods.example], location: MESH_INTERNAL, resolution: STATIC, workloadSelector: {labels: {app: web}}, ports: [{number: $port, name: http, protocol: HTTP, targetPort: $target}]}
`, "$port", f.port, "$target", stall.port))
	hosts := []string{"web.stall.svc.cluster.local", "stall.example", "pods.example"} // of both sources, and of the store by pods
	present := func() {
		t.Helper()
		for _, host := range hosts {
			awaitReplies(t, request{port: f.port, host: host}, "stall")
		}
	}
	present()

	// Without the right nothing changes, and the right is named.
	f.selectNamespaces("[{matchLabels: {mesh: 'on'}}]")
	f.named("the account follower may not list and watch namespaces for the discoverySelectors of the mesh: see docs/operations/mesh-config.md or portolan source describe ")
	present()
	f.k.must("POST", rbacPath+"clusterroles", clusterRole(t, namespacesPage))
	f.k.bind("portolan-namespaces", "follower")
	f.absent("stall", hosts...)
	f.expectNothingWrong()

	f.labelled("stall", "mesh=on")
	present()
	f.labelled("stall", "mesh-")
	f.absent("stall", hosts...)
	f.selectNamespaces("[{matchExpressions: [{key: mesh, operator: Exists}]}, {matchLabels: {kubernetes.io/metadata.name: stall}}]")
	present()
	f.selectNamespaces("[{matchLabels: {mesh: 'on'}}]")
	f.absent("stall", hosts...)
	if out := f.server.must("", "get", "se", "-A"); strings.Contains(out, "stall.example") || !strings.Contains(out, "entry.example") {
		t.Errorf("objects are\n%s", out)
	}

	// The right is taken away: the last labels count, also for a server that starts.
	if err := f.server.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	f.k.must("DELETE", rbacPath+"clusterrolebindings/portolan-namespaces-follower", "")
	f.server.start()
	f.named("the account follower may not list and watch namespaces")
	f.labelled("stall", "mesh=on")
	f.absent("stall", hosts...)
	awaitReplies(t, request{port: f.port, host: faultyEntry}, "entry")
	f.k.bind("portolan-namespaces", "follower")
	present()
	f.labelled("stall", "mesh-")
	f.absent("stall", hosts...)

	f.server.must("", "delete", "meshconfig", "default", "-n", "istio-system", "--yes")
	present()
	f.expectNothingWrong()
	for _, l := range f.loads {
		l.expectUnharmed()
	}
}
