package integration

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// testCluster is a cluster of a scenario, with the clients of its users.
type testCluster struct {
	kubeAPI
	t       testing.TB
	dynamic dynamic.Interface
	kubectl kubectl
}

func newTestCluster(t testing.TB, api kubeAPI) *testCluster {
	t.Helper()
	client, err := dynamic.NewForConfig(&rest.Config{
		Host: api.url, BearerToken: api.token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &testCluster{kubeAPI: api, t: t, dynamic: client, kubectl: kubectl{
		t: t, path: builtTool(t, "kubectl", kubectlBinary, "kubectl"), home: t.TempDir(),
		args: []string{"--server=" + api.url, "--token=" + api.token, "--insecure-skip-tls-verify"},
	}}
}

// clusterResources are the resources of the kinds that scenarios write by client-go.
var clusterResources = map[string]schema.GroupVersionResource{
	"Pod":            {Version: "v1", Resource: "pods"},
	"Node":           {Version: "v1", Resource: "nodes"},
	"Service":        {Version: "v1", Resource: "services"},
	"EndpointSlice":  {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	"VirtualService": {Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"},
	"ServiceEntry":   {Group: "networking.istio.io", Version: "v1", Resource: "serviceentries"},
}

// at returns the client of an object.
func (c *testCluster) at(o *unstructured.Unstructured) dynamic.ResourceInterface {
	resource, ok := clusterResources[o.GetKind()]
	if !ok {
		c.t.Fatalf("no resource is known for the kind %q", o.GetKind())
	}
	if o.GetNamespace() == "" {
		return c.dynamic.Resource(resource)
	}
	return c.dynamic.Resource(resource).Namespace(o.GetNamespace())
}

// apply writes a document by server-side apply, with its status if it has one.
func (c *testCluster) apply(document string) {
	c.t.Helper()
	if err := c.tryApply(document); err != nil {
		c.t.Fatalf("%v: %s", err, document)
	}
}

func (c *testCluster) tryApply(document string) error {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
		return err
	}
	how := metav1.ApplyOptions{FieldManager: "scenario", Force: true}
	if _, err := c.at(o).Apply(c.t.Context(), o.GetName(), o, how); err != nil {
		return err
	}
	if o.Object["status"] == nil {
		return nil
	}
	_, err := c.at(o).ApplyStatus(c.t.Context(), o.GetName(), o, how)
	return err
}

// delete deletes an object.
func (c *testCluster) delete(kind, namespace, name string) {
	c.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"kind": kind, "metadata": map[string]any{"namespace": namespace}}}
	now := int64(0)
	if err := c.at(o).Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		c.t.Fatal(err)
	}
}

// runs makes a pod that runs and is ready at an address.
func (c *testCluster) runs(namespace, name, address, app string) {
	c.t.Helper()
	c.apply(fill(`
apiVersion: v1
kind: Pod
metadata: {name: $name, namespace: $ns, labels: {app: $app}}
spec: {nodeName: n1, serviceAccountName: web, containers: [{name: c, image: i}]}
status:
  phase: Running
  podIP: $address
  podIPs: [{ip: $address}]
  conditions: [{type: Ready, status: "True"}]
`, "$name", name, "$ns", namespace, "$address", address, "$app", app))
}

// The conditions of an endpoint.
const (
	podReady    = "{ready: true, serving: true, terminating: false}"
	podNotReady = "{ready: false, serving: false, terminating: false}"
	podDraining = "{ready: false, serving: true, terminating: true}"
)

// serves writes the slice of a pod behind a Service.
func (c *testCluster) serves(namespace, service string, pod *upstream, address, conditions string) {
	c.t.Helper()
	c.apply(fill(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
addressType: IPv4
metadata: {name: $service-$pod, namespace: $ns, labels: {kubernetes.io/service-name: $service}}
ports: [{name: http, port: $port, protocol: TCP}]
endpoints: [{addresses: [$address], conditions: $conditions, nodeName: n1, targetRef: {kind: Pod, name: $pod, namespace: $ns}}]
`, "$service", service, "$pod", pod.name, "$ns", namespace, "$port", pod.port, "$address", address, "$conditions", conditions))
}

// kubectlApply applies documents with kubectl.
func (c *testCluster) kubectlApply(documents string) {
	c.t.Helper()
	if out, ok := c.kubectl.run(documents, "apply", "-f", "-"); !ok {
		c.t.Fatalf("kubectl apply: %s", out)
	}
}

// follow writes a kubeconfig for the cluster at an address, with the token of a user, and returns
// its file.
func (c *testCluster) follow(address string) string {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "kubeconfig")
	c.kubeconfig(c.t, file, address)
	return file
}

// startUpstreamAt runs an upstream at an address of this machine, on a port, 0 for a free one.
func startUpstreamAt(t testing.TB, name, address string, port int) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, fmt.Sprint(port)))
	if err != nil {
		t.Fatal(err)
	}
	return serveUpstream(t, name, l)
}

// TestKubernetesTwoClusters: a mesh over two clusters, which are two of Kubernetes' own servers, and the
// objects of the store. kubectl and client-go write, and real requests go through real proxies,
// one of each cluster, in both variants.
func TestKubernetesTwoClusters(t *testing.T) {
	needEnvoy(t)
	path, own := needKubeAPIServer(t), ownAddress(t)
	apis := []kubeAPI{launchKubeAPIServer(t, path), launchKubeAPIServer(t, path)}
	var clusters []*testCluster
	for i := range apis {
		apis[i].awaitReady(t)
		apis[i].install(t)
		c := newTestCluster(t, apis[i])
		c.apply(fill(`{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {topology.kubernetes.io/region: eu, topology.kubernetes.io/zone: $zone}}}`, "$zone", []string{"a", "b"}[i]))
		clusters = append(clusters, c)
	}
	east, west := clusters[0], clusters[1]
	east.kubectlApply(ingressClassDocument)
	eastFile, westFile := east.follow(strings.TrimPrefix(east.url, "https://")), west.follow(strings.TrimPrefix(west.url, "https://"))
	s := startServer(t, serverOptions{
		args: []string{
			"--services-kube", "east=" + eastFile, "--services-kube", "west=" + westFile, "--config-kube", "east=" + eastFile, "--config-kube", "west=" + westFile,
		},
		// Each variant has a namespace of its own, and sees nothing else.
		meshConfig: "defaultServiceExportTo: [.]\ndefaultVirtualServiceExportTo: [.]\ndefaultDestinationRuleExportTo: [.]\n",
	})
	t.Run("variants", func(t *testing.T) {
		inBothVariants(t, func(t *testing.T, v protocol.Variant) {
			x := &twoClusters{
				server: s, t: t, east: newTestCluster(t, apis[0]), west: newTestCluster(t, apis[1]), own: own, port: freePort(t),
				ns: "delta", home: "east", addresses: map[string]string{"east": "10.96.7.7", "west": "10.96.8.7"}, gateway: "10.0.1.1",
			}
			if v == protocol.StateOfTheWorld {
				x.ns, x.home, x.addresses, x.gateway = "world", "west", map[string]string{"east": "10.96.7.9", "west": "10.96.8.9"}, "10.0.1.2"
			}
			x.run(v)
		})
	})
	s.expectNothingRejected()
	if out := s.must("", "source", "list"); strings.Count(out, "kube://") != 2 || !strings.Contains(out, "services/east") || !strings.Contains(out, "services/west") {
		t.Errorf("the sources are\n%s", out)
	}
}

// twoClusters is the scenario of a variant, in a namespace of the mesh.
type twoClusters struct {
	*server
	t          testing.TB
	east, west *testCluster
	own        string // the address of pods
	port       int    // of all services
	ns         string
	// home is the cluster of the proxies; addresses are those of the Service web by cluster.
	home      string
	addresses map[string]string
	gateway   string // the address of the gateway
}

func (x *twoClusters) fill(document string, pairs ...any) string {
	return fill(document, append(pairs, "$ns", x.ns, "$port", x.port, "$own", x.own, "$east", x.addresses["east"], "$west", x.addresses["west"])...)
}

// host returns the host of a Service.
func (x *twoClusters) host(service string) string {
	return service + "." + x.ns + ".svc.cluster.local"
}

// described waits until describe names each cluster of the Service web once, with its address alone, and
// the list of services names each cluster once.
func (x *twoClusters) described() {
	x.t.Helper()
	eventually(x.t, "each definition has its cluster", func() error {
		out := x.must("", "describe", "service", x.host("web"))
		for cluster, address := range x.addresses {
			from := fmt.Sprintf("from cluster %s: Service %s/web", cluster, x.ns)
			row := regexp.MustCompile(`(?m)^Kubernetes .* ` + regexp.QuoteMeta(address) + ` .* ` + from + `$`)
			if strings.Count(out, from) != 1 || !row.MatchString(out) || !strings.Contains(out, "Kubernetes ("+cluster+") ") {
				return fmt.Errorf("%s is not there once:\n%s", from, out)
			}
		}
		if out = x.must("", "describe", "service", "-n", x.ns); !regexp.MustCompile(`(?m)^` + x.host("web") + ` .* Kubernetes \(east,west\) `).MatchString(out) {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

func (x *twoClusters) replies(host string, names ...string) {
	x.t.Helper()
	awaitReplies(x.t, request{port: x.port, host: host}, names...)
}

const twoClustersServices = `
apiVersion: v1
kind: Namespace
metadata: {name: $ns}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: $ns}
spec: {clusterIP: $address, selector: {app: web}, ports: [{name: http, port: $port}]}
`

const eastServices = `
---
apiVersion: v1
kind: Service
metadata: {name: early, namespace: $ns}
spec: {publishNotReadyAddresses: true, selector: {app: early}, ports: [{name: http, port: $port}]}
---
apiVersion: v1
kind: Service
metadata: {name: late, namespace: $ns}
spec: {selector: {app: late}, ports: [{name: http, port: $port}]}
---
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: $ns}
spec: {type: ExternalName, externalName: $own, ports: [{name: http, port: $port}]}
---
apiVersion: v1
kind: Service
metadata: {name: istio-ingressgateway, namespace: $ns}
spec: {selector: {istio: ingressgateway}, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: $ns}
spec: {host: reviews.$ns.example, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: $ns}
spec:
  hosts: [reviews.$ns.example]
  http:
  - route:
    - {destination: {host: reviews.$ns.example, subset: v1}, weight: 70}
    - {destination: {host: reviews.$ns.example, subset: v2}, weight: 30}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: door, namespace: $ns}
spec:
  ingressClassName: istio
  rules: [{host: $ns.door.test, http: {paths: [{pathType: Prefix, path: /web, backend: {service: {name: web, port: {name: http}}}}]}}]
`

// storeObjects are those of the store: a service of its own, one that selects pods, and a route for a
// Service of a cluster.
const storeObjects = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: $ns}
spec:
  hosts: [reviews.$ns.example]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: $v1}, labels: {version: v1}}, {address: 127.0.0.1, ports: {http: $v2}, labels: {version: v2}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: alone, namespace: $ns}
spec:
  hosts: [alone.$ns.example]
  location: MESH_INTERNAL
  resolution: STATIC
  workloadSelector: {labels: {app: alone}}
  ports: [{number: $port, name: http, protocol: HTTP, targetPort: $alone}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: late, namespace: $ns}
spec:
  hosts: [late.$ns.svc.cluster.local]
  http:
  - match: [{uri: {prefix: /mixed}}]
    route:
    - {destination: {host: web.$ns.svc.cluster.local}, weight: 50}
    - {destination: {host: reviews.$ns.example, subset: v1}, weight: 50}
  - route: [{destination: {host: late.$ns.svc.cluster.local}}]
`

func (x *twoClusters) run(v protocol.Variant) {
	x.t.Helper()
	v1, v2 := startUpstream(x.t, "v1"), startUpstream(x.t, "v2")
	e1, w1 := startUpstreamAt(x.t, "e1", x.own, 0), startUpstreamAt(x.t, "w1", x.own, 0)
	early, late := startUpstreamAt(x.t, "early", x.own, 0), startUpstreamAt(x.t, "late", x.own, 0)
	startUpstreamAt(x.t, "outside", x.own, x.port)
	eastPod := startUpstreamAt(x.t, "east-pod", "127.0.0.1", 0)
	startUpstreamAt(x.t, "west-pod", "127.0.0.2", eastPod.port)
	plain := freePort(x.t)

	x.east.kubectlApply(x.fill(twoClustersServices+eastServices, "$address", x.addresses["east"]))
	x.west.kubectlApply(x.fill(twoClustersServices, "$address", x.addresses["west"]))
	for c, pod := range map[*testCluster]*upstream{x.east: e1, x.west: w1} {
		c.runs(x.ns, pod.name, x.own, "web")
		c.serves(x.ns, "web", pod, x.own, podReady)
	}
	x.east.runs(x.ns, "early", x.own, "early")
	x.east.runs(x.ns, "late", x.own, "late")
	x.east.runs(x.ns, "edge", x.gateway, "edge")
	x.east.serves(x.ns, "early", early, x.own, podNotReady)
	x.east.serves(x.ns, "late", late, x.own, podNotReady)
	x.east.serves(x.ns, "istio-ingressgateway", &upstream{name: "edge", port: plain}, x.gateway, podReady)
	x.server.apply(x.fill(storeObjects, "$v1", v1.port, "$v2", v2.port, "$alone", eastPod.port))
	client := x.launchEnvoy(envoyOptions{kind: "sidecar", name: "client-" + x.ns, namespace: x.ns, variant: v, clusterID: x.home})
	edge := x.launchEnvoy(envoyOptions{kind: "router", name: "edge-" + x.ns, namespace: x.ns, variant: v, ip: x.gateway, labels: "istio=ingressgateway"})
	client.awaitReady()
	edge.awaitReady()

	// One host in both clusters: the endpoints of both, at the addresses of the proxy's cluster.
	x.replies(x.host("web"), "e1", "w1")
	x.replies(x.addresses[x.home], "e1", "w1")
	for cluster, address := range x.addresses {
		dump, err := client.get("/config_dump")
		if err != nil {
			x.t.Fatal(err)
		}
		if is := strings.Contains(string(dump), `"`+address+`"`); is != (cluster == x.home) {
			x.t.Errorf("a proxy of the cluster %s has the address in %s: %v", x.home, cluster, is)
		}
	}
	x.described()

	x.replies(x.host("outside"), "outside")
	x.replies(x.host("early"), "early")
	x.replies(x.host("late"), "503")
	x.east.serves(x.ns, "late", late, x.own, podReady)
	x.replies(x.host("late"), "late")

	// Objects of a cluster route to the services of the store, and those of the store to Services.
	share := func(path, host, name string, percent int) {
		x.t.Helper()
		sample := startLoad(x.t, host, request{port: x.port, host: host, path: path})
		expectShare(x.t, host+path, sample.sample(400), name, percent)
		sample.expectUnharmed()
	}
	x.replies("reviews."+x.ns+".example", "v1", "v2")
	share("/", "reviews."+x.ns+".example", "v1", 70)
	share("/mixed", x.host("late"), "v1", 50)

	// Pods of both clusters are selected by an object of the store, and a machine by both Services.
	x.east.runs(x.ns, "alone", "127.0.0.1", "alone")
	x.west.runs(x.ns, "alone", "127.0.0.2", "alone")
	x.replies("alone."+x.ns+".example", "east-pod", "west-pod")
	x.west.delete("Pod", x.ns, "alone")
	x.replies("alone."+x.ns+".example", "east-pod")
	machine := startUpstream(x.t, "machine")
	entry := x.fill(`{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: machine, namespace: $ns},
spec: {address: 127.0.0.1, labels: {app: web}, ports: {http: $machine}}}`, "$machine", machine.port)
	x.server.apply(entry)
	x.replies(x.host("web"), "e1", "w1", "machine")
	awaitReplies(x.t, request{port: plain, host: x.ns + ".door.test", path: "/web"}, "e1", "w1", "machine")
	x.remove(entry)
	x.replies(x.host("web"), "e1", "w1")
	x.roll(e1, plain)
	client.expectNothingRejected()
	edge.expectNothingRejected()
}

// roll replaces the pod of the east again and again, as a Deployment does: each drains before it goes.
// No request fails, neither of the sidecar nor of the gateway.
func (x *twoClusters) roll(old *upstream, plain int) {
	x.t.Helper()
	loads := []*load{
		startLoad(x.t, "sidecar", request{port: x.port, host: x.host("web")}),
		startLoad(x.t, "gateway", request{port: plain, host: x.ns + ".door.test", path: "/web"}),
	}
	for i := range 3 {
		pod := startUpstreamAt(x.t, fmt.Sprintf("e%d", i+2), x.own, 0)
		x.east.runs(x.ns, pod.name, x.own, "web")
		x.east.serves(x.ns, "web", pod, x.own, podReady)
		x.replies(x.host("web"), old.name, pod.name, "w1")
		x.east.serves(x.ns, "web", old, x.own, podDraining)
		x.replies(x.host("web"), pod.name, "w1")
		awaitReplies(x.t, request{port: plain, host: x.ns + ".door.test", path: "/web"}, pod.name, "w1")
		x.east.delete("EndpointSlice", x.ns, "web-"+old.name)
		x.east.delete("Pod", x.ns, old.name)
		old.stop()
		old = pod
	}
	for _, l := range loads {
		l.expectUnharmed()
	}
}
