package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// clusterHost is the host of the Service in the scenarios with a cluster.
const clusterHost = "web.shop.svc.cluster.local"

// ownAddress returns an address of this machine that is not of its loopback: EndpointSlices may not
// have those.
func ownAddress(t testing.TB) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address besides its loopback, which EndpointSlices may not have")
	return ""
}

// clusterScene is a cluster behind a wire that can be cut, a server that follows it, and a sidecar.
type clusterScene struct {
	*server
	t       testing.TB
	cluster kubeAPI
	wire    *wire
	config  string         // the kubeconfig
	address string         // of the pods
	port    int            // of the service
	slice   map[string]int // the port of each pod
}

// write creates or replaces an object of the cluster.
func (c *clusterScene) write(path, name, object string) {
	c.t.Helper()
	code, _, body, err := c.cluster.do(c.t.Context(), "PUT", path+"/"+name, object, nil)
	if err == nil && code == 404 {
		code, _, body, err = c.cluster.do(c.t.Context(), "POST", path, object, nil)
	}
	if err != nil || code != 200 && code != 201 {
		c.t.Fatalf("%s/%s: %d %s %v", path, name, code, body, err)
	}
}

// pod makes a pod that runs and is ready at an address, without an endpoint.
func (c *clusterScene) pod(name, address string, labels map[string]string) {
	c.t.Helper()
	object := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": "shop", "labels": labels},
		"spec": map[string]any{"nodeName": "n1", "serviceAccountName": "web", "containers": []any{map[string]any{"name": "c", "image": "i"}}},
	}
	text, _ := json.Marshal(object)
	c.write("/api/v1/namespaces/shop/pods", name, string(text))
	object["status"] = map[string]any{
		"phase": "Running", "podIP": address, "podIPs": []any{map[string]any{"ip": address}}, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
	}
	text, _ = json.Marshal(object)
	c.write("/api/v1/namespaces/shop/pods/"+name, "status", string(text))
}

// endpoints writes a slice for each of these upstreams, since they serve on ports of their own, and
// deletes those of the others.
func (c *clusterScene) endpoints(up ...*upstream) {
	c.t.Helper()
	const path = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
	for name := range c.slice {
		if !slices.ContainsFunc(up, func(u *upstream) bool { return u.name == name }) {
			if code, _, body, err := c.cluster.do(c.t.Context(), "DELETE", path+"/web-"+name, "", nil); err != nil || code != 200 {
				c.t.Fatalf("%d %s %v", code, body, err)
			}
			delete(c.slice, name)
		}
	}
	for _, u := range up {
		c.slice[u.name] = u.port
		c.write(path, "web-"+u.name, fmt.Sprintf(`{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
"metadata": {"name": "web-%[1]s", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}}, "ports": [{"name": "http", "port": %[2]d}],
"endpoints": [{"addresses": [%[3]q], "nodeName": "n1", "targetRef": {"kind": "Pod", "name": %[1]q, "namespace": "shop"}}]}`, u.name, u.port, c.address))
	}
}

// answered waits until exactly these upstreams answer requests to a host.
func (c *clusterScene) answered(host string, names ...string) {
	c.t.Helper()
	awaitReplies(c.t, request{port: c.port, host: host}, names...)
}

// awaitReplies waits until exactly these upstreams answer a request.
func awaitReplies(t testing.TB, q request, names ...string) {
	t.Helper()
	slices.Sort(names)
	client := clientOf(t)
	eventually(t, q.host+" is answered by "+strings.Join(names, ", "), func() error {
		seen := map[string]int{}
		for range 8 * len(names) {
			got, err := do(t.Context(), client, q)
			if err != nil {
				return err
			}
			seen[got.String()]++
		}
		if got := typesOf(seen); !slices.Equal(got, names) {
			return fmt.Errorf("by %v", seen)
		}
		return nil
	})
}

// podUpstream serves at the address of the pods.
func (c *clusterScene) podUpstream(name string) *upstream {
	c.t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(c.address, "0"))
	if err != nil {
		c.t.Fatal(err)
	}
	return serveUpstream(c.t, name, l)
}

// kubeconfig writes a kubeconfig for a server at an address.
func (a kubeAPI) kubeconfig(t testing.TB, file, address string) {
	t.Helper()
	if err := os.WriteFile(file, a.plain().Kubeconfig("east", address), 0o600); err != nil {
		t.Fatal(err)
	}
}

// setAway makes the cluster go away, or come back: connections end, and no others are taken.
func (c *clusterScene) setAway(away bool) {
	c.t.Helper()
	address := c.wire.address
	if away {
		address = local(freePort(c.t))
	}
	c.cluster.kubeconfig(c.t, c.config, address)
	c.wire.set(away)
}

// TestKubernetesServices takes the services of Kubernetes' own server into the mesh: real requests go
// to pods and to machines, by Services and by ServiceEntries, and on while the cluster is away.
func TestKubernetesServices(t *testing.T) {
	needEnvoy(t)
	path := needKubeAPIServer(t)
	c := &clusterScene{t: t, cluster: startKubeAPIServer(t, path), address: ownAddress(t), port: freePort(t), slice: map[string]int{}}
	c.wire = startWire(t, strings.TrimPrefix(c.cluster.url, "https://"))
	c.write("/api/v1/nodes", "n1", `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/region": "eu", "topology.kubernetes.io/zone": "a"}}}`)
	c.write("/api/v1/namespaces/shop/services", "web", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
"spec": {"clusterIP": "10.96.7.7", "selector": {"app": "web"}, "ports": [{"name": "http", "port": %d}]}}`, c.port))
	one, two := c.podUpstream("one"), c.podUpstream("two")
	c.pod("one", c.address, map[string]string{"app": "web"})
	c.pod("two", c.address, map[string]string{"app": "web"})
	c.endpoints(one)
	c.config = filepath.Join(t.TempDir(), "kubeconfig")
	c.setAway(false)
	c.server = startServer(t, serverOptions{args: []string{"--services-kube", c.config}})
	c.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: protocol.Delta})
	c.answered(clusterHost, "one")
	load := startLoad(t, "sidecar", request{port: c.port, host: clusterHost})
	load.sample(50)
	c.endpoints(one, two)
	c.answered(clusterHost, "one", "two")

	// The Service selects a machine, and a ServiceEntry the pods.
	machine := startUpstream(t, "machine")
	c.apply(fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: machine, namespace: shop},
spec: {address: 127.0.0.1, labels: {app: web}, ports: {http: %d}}}`, machine.port))
	c.answered(clusterHost, "one", "two", "machine")
	alone := startUpstream(t, "alone")
	c.pod("alone", "127.0.0.1", map[string]string{"app": "alone"})
	c.apply(fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: alone, namespace: shop},
spec: {hosts: [alone.example], location: MESH_INTERNAL, resolution: STATIC, workloadSelector: {labels: {app: alone}},
ports: [{number: %d, name: http, protocol: HTTP, targetPort: %d}]}}`, c.port, alone.port))
	c.answered("alone.example", "alone")
	c.answered("10.96.7.7", "one", "two", "machine") // the address of the Service
	for words, args := range map[string][]string{
		"cluster east: Service shop/web": {"describe", "service", clusterHost}, "eu/a": {"describe", "service", clusterHost},
		"services/east": {"source", "list"}, "Kubernetes/east": {"store", "status"},
	} {
		if out := c.must("", args...); !strings.Contains(out, words) {
			t.Errorf("%v: no %q in\n%s", args, words, out)
		}
	}
	c.endpoints(two)
	c.answered(clusterHost, "two", "machine")
	one.stop()

	// The cluster is away: what was known is served, also by a server that starts. A server that
	// stops saves what a cluster has, if the cluster is there.
	c.setAway(true)
	c.awaitReadyz("cluster east: what was known of it is served", true)
	c.awaitMetric(`portolan_source_degraded{source="services/east"}`, "1")
	c.setAway(false)
	c.awaitReadyz("cluster east", false)
	if err := c.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	c.setAway(true)
	began := time.Now()
	c.start()
	t.Logf("ready %v after the start without the cluster", time.Since(began).Round(time.Millisecond))
	c.awaitReadyz("cluster east: what was known of it at", true)
	c.answered(clusterHost, "two", "machine")
	c.answered("alone.example", "alone")
	three := c.podUpstream("three")
	c.pod("three", c.address, map[string]string{"app": "web"})
	c.endpoints(two, three)
	c.setAway(false)
	c.answered(clusterHost, "two", "three", "machine")
	c.awaitReadyz("cluster east", false)
	load.expectUnharmed()
}

// awaitReadyz waits until /readyz has words, or has them no more.
func (c *clusterScene) awaitReadyz(words string, is bool) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("/readyz has %q: %v", words, is), func() error {
		ready, err := c.get("/readyz?verbose", nil)
		if err == nil && strings.Contains(string(ready), words) != is {
			err = fmt.Errorf("it is %s", ready)
		}
		return err
	})
}
