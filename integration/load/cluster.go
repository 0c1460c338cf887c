package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/integration/kubeapi"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// clusterName is the name of the cluster in the mesh.
const clusterName = "load"

// cluster is Kubernetes' own API server on an etcd, each a process of its own. No node runs: the
// load tool writes what a kubelet and the controllers would.
type cluster struct {
	kubeapi.API
	kubeconfig string // a file
	stop       func() error
}

// startCluster starts a cluster whose files are in a new directory, and writes what it has of a mesh.
func startCluster(ctx context.Context, o options, mesh refmesh.Mesh, dir string) (k *cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if _, err := os.Stat(o.kubeAPIServer); err != nil {
		return nil, fmt.Errorf("there is no kube-apiserver (%w): run make kube-apiserver", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	etcd, err := startEtcd(ctx, dir)
	if err != nil {
		return nil, err
	}
	k = &cluster{kubeconfig: filepath.Join(dir, "kubeconfig"), stop: etcd.stop}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.stop())
		}
	}()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	server, err := kubeapi.Prepare(kubeapi.Options{Dir: dir, Etcd: "http://" + etcd.address, Port: port, ServiceRange: "10.64.0.0/12"})
	if err != nil {
		return nil, err
	}
	api, _, err := startChild(ctx, exec.Command(o.kubeAPIServer, server.Args...), filepath.Join(dir, "kube-apiserver.log"), regexp.MustCompile("Serving securely"))
	if err != nil {
		return nil, err
	}
	k.API = server.API
	k.stop = func() error {
		k.Client.CloseIdleConnections()
		return errors.Join(api.stop(), etcd.stop())
	}
	if err := os.WriteFile(k.kubeconfig, k.Kubeconfig(clusterName, strings.TrimPrefix(k.URL, "https://")), 0o600); err != nil {
		return nil, err
	}
	if err := k.AwaitReady(ctx); err != nil {
		return nil, err
	}
	if err := k.Install(ctx); err != nil {
		return nil, err
	}
	return k, k.fill(ctx, mesh)
}

// flags returns the flags of a server that follows the cluster.
func (k *cluster) flags() []string {
	ref := clusterName + "=" + k.kubeconfig
	return []string{"--services-kube", ref, "--config-kube", ref}
}

// fill writes what the cluster has of a mesh.
func (k *cluster) fill(ctx context.Context, mesh refmesh.Mesh) error {
	nodes := map[string]bool{}
	var first, rest []func(context.Context) error
	for n := range refmesh.Namespaces {
		first = append(first, k.creates("/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: refmesh.Namespace(n)}}))
	}
	for _, object := range mesh.ObjectsOfCluster() {
		spec, isService := object.Spec.(*networking.ServiceEntry)
		if !isService {
			rest = append(rest, func(ctx context.Context) error { return k.create(ctx, object) })
			continue
		}
		for e, endpoint := range spec.Endpoints {
			if locality := endpoint.Locality; !nodes[locality] {
				nodes[locality] = true
				first = append(first, k.creates("/api/v1/nodes", nodeIn(locality)))
			}
			rest = append(rest, k.runs(podOf(object, e)))
		}
		rest = append(rest, k.creates(core(object, "services"), serviceOf(object)), k.creates(slicesPath(object), sliceOf(object)))
	}
	// Proxies shall not see the service of the API server: the mesh does not have it.
	hidden := func(ctx context.Context) error {
		return k.patch(ctx, "/api/v1/namespaces/default/services/kubernetes", `{"metadata":{"annotations":{"networking.istio.io/exportTo":"~"}}}`)
	}
	if err := together(ctx, append(first, hidden)); err != nil {
		return err
	}
	return together(ctx, rest)
}

// together runs functions, some at the same time, until one fails.
func together(ctx context.Context, all []func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for _, one := range all {
		group.Go(func() error { return one(ctx) })
	}
	return group.Wait()
}

// creates returns a function that creates an object of Kubernetes.
func (k *cluster) creates(path string, object any) func(context.Context) error {
	return func(ctx context.Context) error {
		text, err := json.Marshal(object)
		if err != nil {
			return err
		}
		_, err = k.Send(ctx, "POST", path, string(text), nil)
		return err
	}
}

// runs returns a function that creates a pod and then says that it runs.
func (k *cluster) runs(pod *corev1.Pod) func(context.Context) error {
	path := "/api/v1/namespaces/" + pod.Namespace + "/pods"
	return func(ctx context.Context) error {
		text, err := json.Marshal(pod)
		if err != nil {
			return err
		}
		if err := k.creates(path, pod)(ctx); err != nil {
			return err
		}
		_, err = k.Send(ctx, "PUT", path+"/"+pod.Name+"/status", string(text), nil)
		return err
	}
}

// create creates an object of Istio.
func (k *cluster) create(ctx context.Context, object *config.Config) error {
	text, err := config.ToJSON(object, "")
	if err != nil {
		return err
	}
	_, err = k.Send(ctx, "POST", istioPath(object), string(text), nil)
	return err
}

// change writes a changed object: of a ServiceEntry the EndpointSlice, of any other its spec.
func (k *cluster) change(ctx context.Context, object *config.Config) error {
	text, err := config.ToJSON(object, "")
	if _, isService := object.Spec.(*networking.ServiceEntry); isService {
		text, err = json.Marshal(map[string]any{"endpoints": sliceOf(object).Endpoints})
	}
	if err != nil {
		return err
	}
	return k.patch(ctx, pathOf(object)+"/"+object.Name, string(text))
}

func (k *cluster) patch(ctx context.Context, path, body string) error {
	_, err := k.Send(ctx, "PATCH", path, body, map[string]string{"Content-Type": "application/merge-patch+json"})
	return err
}

// watch begins a bare watch of what change writes.
func (k *cluster) watch(ctx context.Context, object *config.Config) (*watching, error) {
	ctx, cancel := context.WithCancel(ctx)
	at := k.URL + pathOf(object) + "?watch=1&fieldSelector=metadata.name%3D" + object.Name
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	q.Header.Set("Authorization", "Bearer "+k.Token)
	a, err := k.Client.Do(q)
	if err != nil {
		cancel()
		return nil, err
	}
	if a.StatusCode != http.StatusOK {
		cancel()
		return nil, errors.Join(fmt.Errorf("watch %s: %s", at, a.Status), a.Body.Close())
	}
	from := json.NewDecoder(a.Body)
	return watchBy(ctx, func() { cancel(); _ = a.Body.Close() }, func() error {
		var event json.RawMessage
		return from.Decode(&event)
	}), nil
}

// pathOf returns where the cluster has the objects that change writes.
func pathOf(object *config.Config) string {
	if object.Kind == schema.ServiceEntry.Kind {
		return slicesPath(object)
	}
	return istioPath(object)
}

func istioPath(object *config.Config) string {
	return "/apis/" + object.GroupVersionKind.APIVersion() + "/namespaces/" + object.Namespace + "/" + strings.ToLower(object.Kind) + "s"
}

func slicesPath(object *config.Config) string {
	return "/apis/discovery.k8s.io/v1/namespaces/" + object.Namespace + "/endpointslices"
}

func core(object *config.Config, resource string) string {
	return "/api/v1/namespaces/" + object.Namespace + "/" + resource
}

// nodeIn returns the node of all pods in a locality.
func nodeIn(locality string) *corev1.Node {
	parts := strings.Split(locality, "/")
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(locality), Labels: map[string]string{
		corev1.LabelTopologyRegion: parts[0], corev1.LabelTopologyZone: parts[1], "topology.istio.io/subzone": parts[2],
	}}}
}

func nodeName(locality string) string { return strings.ReplaceAll(locality, "/", "-") }

// serviceOf returns the Service that a ServiceEntry stands for.
func serviceOf(entry *config.Config) *corev1.Service {
	spec := entry.Spec.(*networking.ServiceEntry)
	out := &corev1.Service{ObjectMeta: metaOf(entry, entry.Name, entry.Labels), Spec: corev1.ServiceSpec{
		ClusterIP: spec.Addresses[0], Selector: map[string]string{"app": entry.Name},
	}}
	for _, p := range spec.Ports {
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{Name: p.Name, Port: int32(p.Number)})
	}
	return out
}

// sliceOf returns the endpoints of a ServiceEntry, each of which is a pod.
func sliceOf(entry *config.Config) *discoveryv1.EndpointSlice {
	spec := entry.Spec.(*networking.ServiceEntry)
	out := &discoveryv1.EndpointSlice{
		ObjectMeta:  metaOf(entry, entry.Name, map[string]string{discoveryv1.LabelServiceName: entry.Name}),
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, p := range spec.Ports {
		name, port := p.Name, int32(p.Number)
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: &name, Port: &port})
	}
	for e, endpoint := range spec.Endpoints {
		node := nodeName(endpoint.Locality)
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{endpoint.Address}, NodeName: &node,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: entry.Namespace, Name: podName(entry, e)},
		})
	}
	return out
}

func podName(entry *config.Config, e int) string { return fmt.Sprintf("%s-%d", entry.Name, e) }

// podOf returns the pod of an endpoint, which runs.
func podOf(entry *config.Config, e int) *corev1.Pod {
	endpoint := entry.Spec.(*networking.ServiceEntry).Endpoints[e]
	return &corev1.Pod{
		ObjectMeta: metaOf(entry, podName(entry, e), endpoint.Labels),
		Spec: corev1.PodSpec{
			NodeName: nodeName(endpoint.Locality), ServiceAccountName: endpoint.ServiceAccount, Containers: []corev1.Container{{Name: "app", Image: "app"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: endpoint.Address, PodIPs: []corev1.PodIP{{IP: endpoint.Address}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

func metaOf(entry *config.Config, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: entry.Namespace, Name: name, Labels: labels}
}
