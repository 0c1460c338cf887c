package xds_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/cache/file"
	"github.com/portolan-mesh/portolan/cache/kube"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/kube/clustersecret"
	"github.com/portolan-mesh/portolan/cache/kube/selection"
	cachememory "github.com/portolan-mesh/portolan/cache/memory"
	"github.com/portolan-mesh/portolan/discovery"
	registries "github.com/portolan-mesh/portolan/discovery/aggregate"
	kubeservices "github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/remote"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/files"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/generate/secret"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// places are a store, a directory and two clusters. A Secret of the store may name a third one.
type places struct {
	t        testing.TB
	store    *memory.Store
	dir      string
	clusters map[string]*clusterAPI
	secrets  secretPlaces
}

func newPlaces(t testing.TB) *places {
	return &places{
		t: t, store: memory.New(schema.Pilot(), memory.Options{Domain: "cluster.local"}), dir: t.TempDir(),
		clusters: map[string]*clusterAPI{"east": newClusterAPI(t), "west": newClusterAPI(t)},
		secrets:  newSecretPlaces(t),
	}
}

// step writes or deletes a random object in one of the sources.
func (s *places) step(draw *rand.Rand) {
	s.t.Helper()
	gone := draw.IntN(4) == 0
	if draw.IntN(30) == 0 {
		s.selectNamespaces([]string{"[]", "[{}]", "[{matchLabels: {app: shop}}]", "[{matchLabels: {app: other}}]"}[draw.IntN(4)])
		return
	}
	name := []string{"east", "west", "store", "files", "north", "east", "west"}[draw.IntN(7)]
	api := s.clusters[name]
	if name == "north" {
		api = s.secrets.remote[draw.IntN(2)]
	}
	switch n := draw.IntN(12); {
	case api != nil && gone:
		api.drop(draw.IntN)
		return
	case api != nil && n < 2:
		api.write(s.pairOfCluster(draw))
		return
	case api != nil:
		api.write(drawnOfCluster(draw))
		return
	case name == "store" && n < 2:
		s.pairOfStore(draw, gone)
		return
	case name == "store" && n < 5:
		s.north(draw)
		return
	}
	d := drawnOfAny(draw)
	namespace := ""
	if d.namespace != "" {
		namespace = fmt.Sprintf(`, "namespace": %q`, d.namespace)
	}
	text := fmt.Sprintf(`{"apiVersion": "%s/%s", "kind": %q, "metadata": {"name": %q%s}, %s}`, d.group, d.version, d.kind, d.name, namespace, d.body)
	file := filepath.Join(s.dir, d.kind+"-"+d.name+".json")
	switch {
	case name == "store" && gone:
		ops := xdstest.Removals(s.t, text)
		if _, err := s.store.Get(s.t.Context(), ops[0].Key.Kind, d.name, d.namespace); err == nil {
			_, _, err = s.store.Apply(s.t.Context(), ops)
			s.check(err)
		}
	case name == "store":
		_, _, err := s.store.Apply(s.t.Context(), xdstest.Ops(s.t, text))
		s.check(err)
	case gone:
		if err := os.Remove(file); !os.IsNotExist(err) {
			s.check(err)
		}
	default:
		s.check(os.WriteFile(file, []byte(text), 0o600))
	}
}

// selectNamespaces sets the selectors of the mesh: only what they match in the clusters counts.
func (s *places) selectNamespaces(selectors string) {
	s.t.Helper()
	_, _, err := s.store.Apply(s.t.Context(), xdstest.Ops(s.t, "{apiVersion: portolan.io/v1, kind: MeshConfig, metadata: {name: default, namespace: istio-system}, spec: {discoverySelectors: "+selectors+"}}"))
	s.check(err)
}

func (s *places) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// drawnOfAny draws an object of the kinds that all sources have.
func drawnOfAny(draw *rand.Rand) document {
	n := func(of int) int { return draw.IntN(of) }
	pick := func(of ...string) string { return of[n(len(of))] }
	host := func() string { return fmt.Sprintf("h%d.shop.svc.cluster.local", n(4)) }
	istio := func(kind, resource, name, spec string) document {
		return document{group: "networking.istio.io", version: "v1", kind: kind, resource: resource, namespace: "shop", name: name, body: `"spec": ` + spec}
	}
	kubernetes := func(kind, resource, namespace, name, spec string) document {
		return document{group: "networking.k8s.io", version: "v1", kind: kind, resource: resource, namespace: namespace, name: name, body: `"spec": ` + spec}
	}
	switch n(8) {
	case 0:
		of := fmt.Sprintf(`"endpoints": [{"address": "10.1.0.%d", "labels": {"v": "v%d"}}]`, n(4), n(2))
		if n(2) == 0 {
			of = fmt.Sprintf(`"workloadSelector": {"labels": {"app": "w%d"}}`, n(3))
		}
		return istio("ServiceEntry", "serviceentries", fmt.Sprint("e", n(3)), fmt.Sprintf(`{"hosts": ["h%d.shop.svc.cluster.local"], "location": "MESH_INTERNAL", "resolution": "STATIC", "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], %s}`, n(2), of)) // clusters have more
	case 1:
		return istio("WorkloadEntry", "workloadentries", fmt.Sprint("w", n(3)), fmt.Sprintf(`{"address": "10.2.0.%d", "labels": {"app": "w%d"}, "ports": {"http": 8080}}`, n(4), n(3)))
	case 2:
		return istio("VirtualService", "virtualservices", fmt.Sprint("v", n(3)), fmt.Sprintf(`{"hosts": [%q], "gateways": [%q], "http": [{"match": [{"uri": {"prefix": "/%d"}}], "route": [{"destination": {"host": %q}}]}]}`,
			host(), pick("mesh", "shop/g0", "istio-system/i0-istio-autogenerated-k8s-ingress-shop"), n(3), host()))
	case 3:
		return istio("DestinationRule", "destinationrules", fmt.Sprint("d", n(2)), fmt.Sprintf(`{"host": %q, %s"subsets": [{"name": "s", "labels": {"v": "v%d"}}]}`,
			host(), pick("", `"trafficPolicy": {"outlierDetection": {"consecutive5xxErrors": 3}}, `), n(2))) // localities have priorities with outlier detection alone
	case 4:
		return istio("Gateway", "gateways", fmt.Sprint("g", n(2)), fmt.Sprintf(`{"selector": {"istio": "ingressgateway"}, "servers": [{"port": {"number": %d, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]},
			{"port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "hosts": ["h%d.test"], "tls": {"mode": "SIMPLE", "credentialName": %q}}]}`, 80+n(2), n(2), pick("k0", "k1", "kubernetes-gateway://istio-system/k0")))
	case 5:
		return kubernetes("IngressClass", "ingressclasses", "", "istio", fmt.Sprintf(`{"controller": %q}`, pick("istio.io/ingress-controller", "istio.io/ingress-controller", "example.com/other")))
	}
	return kubernetes("Ingress", "ingresses", "shop", fmt.Sprint("i", n(3)), fmt.Sprintf(`{"ingressClassName": "istio", "rules": [{"host": "h%d.test", "http": {"paths": [{"path": "/%d", "pathType": %q, "backend": {"service": {"name": "h%d", "port": {"name": "http"}}}}]}}]}`,
		n(2), n(3), pick("Exact", "Prefix"), n(3)))
}

// drawnOfCluster draws an object of a cluster.
func drawnOfCluster(draw *rand.Rand) document {
	n := func(of int) int { return draw.IntN(of) }
	core := func(kind, resource, namespace, name, body string, labels map[string]string) document {
		return document{version: "v1", kind: kind, resource: resource, namespace: namespace, name: name, body: body, labels: labels}
	}
	switch n(16) {
	case 0, 1:
		return core("Namespace", "namespaces", "", "shop", `"spec": {}`, nil)
	case 2, 3, 4, 5:
		return core("Service", "services", "shop", fmt.Sprint("h", n(4)), `"spec": `+drawnService(draw), nil)
	case 6, 7:
		return core("Pod", "pods", "shop", fmt.Sprint("p", n(3)), fmt.Sprintf(`"spec": {"serviceAccountName": "a%d", "nodeName": "n%d", "hostNetwork": %t, "containers": []}, "status": {"phase": "Running", "podIP": "10.3.0.%d", "podIPs": [{"ip": "10.3.0.%[4]d"}], "conditions": [{"type": "Ready", "status": "True"}]}`,
			n(2), n(2), n(5) == 0, 1+n(3)), map[string]string{"app": fmt.Sprint("w", n(3)), "v": fmt.Sprint("v", n(2))})
	case 8, 9:
		service := fmt.Sprint("h", n(4))
		d := core("EndpointSlice", "endpointslices", "shop", fmt.Sprint(service, "-", n(2)), fmt.Sprintf(`"addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
			"endpoints": [{"addresses": ["10.3.0.%d"], "conditions": {"ready": %t, "terminating": %t}, "zone": "z%d", "targetRef": {"kind": "Pod", "name": "p%d", "namespace": "shop"}}]`,
			1+n(3), n(3) > 0, n(4) == 0, n(2), n(3)), map[string]string{"kubernetes.io/service-name": service})
		d.group = "discovery.k8s.io"
		return d
	case 10, 11:
		return core("Node", "nodes", "", fmt.Sprint("n", n(2)), `"spec": {}`, map[string]string{"topology.kubernetes.io/region": fmt.Sprint("r", n(2)), "topology.kubernetes.io/zone": fmt.Sprint("z", n(2))})
	}
	return drawnOfAny(draw)
}

// drawnService draws the spec of a Service: one with an address of the cluster, a headless one, or another
// name.
func drawnService(draw *rand.Rand) string {
	n := func(of int) int { return draw.IntN(of) }
	const ports = `"ports": [{"name": "http", "port": 80, "protocol": "TCP"}]`
	switch n(4) {
	case 0:
		return fmt.Sprintf(`{"clusterIP": "None", "publishNotReadyAddresses": %t, "selector": {"app": "w%d"}, %s}`, n(2) == 0, n(3), ports)
	case 1:
		return fmt.Sprintf(`{"type": "ExternalName", "externalName": %q, %s}`, []string{"h0.shop.svc.cluster.local", "h1.shop.svc.cluster.local", "web.example"}[n(3)], ports)
	}
	return fmt.Sprintf(`{"clusterIP": "10.96.0.%d", "clusterIPs": ["10.96.0.%[1]d"], "internalTrafficPolicy": %q, "selector": {"app": "w%d"}, %s}`, 1+n(3), []string{"Cluster", "Cluster", "Local"}[n(3)], n(3), ports)
}

// follower is a server of all places.
type follower struct {
	xds    *xds.DiscoveryServer
	synced func() bool
}

// serve runs a server.
func (s *places) serve() *follower {
	s.t.Helper()
	worker, logger := cache.NewWorker(), slog.New(slog.DiscardHandler)
	stored := cachememory.New(s.store, cachememory.Options{Worker: cache.NewWorker()})
	const settle = 5 * time.Millisecond
	directory := file.New(file.Options{
		Dir: s.dir, Worker: cache.NewWorker(), Schemas: schema.Pilot(), Domain: "cluster.local",
		Timing: files.Timing{Settle: settle, MaxSettle: 4 * settle, Hold: 4 * settle, Rescan: 20 * settle},
	})
	all := []aggregate.Source{{Name: "store", Cache: stored}, {Name: "files", Cache: directory}}
	confirmed, selectors, connections := []func() bool{}, selection.NewSelectors(), map[string]*cluster.Cluster{}
	for _, name := range []string{"east", "west"} {
		connections[name] = s.clusters[name].connect(name, selectors)
		one := kube.New(kube.Options{Cluster: connections[name].Share(cluster.User{}), Worker: cache.NewWorker(), Schemas: schema.Pilot(), Domain: "cluster.local"})
		confirmed = append(confirmed, one.Confirmed)
		all = append(all, aggregate.Source{Name: "kube://" + name, Cache: one, Behind: true})
	}
	configs, err := aggregate.MakeCache(aggregate.Options{Worker: worker, Store: stored, FirstSync: time.Hour, Sources: all, Merged: func(merged *cache.Snapshot) {
		if err := selectors.Set(mesh.MeshConfigAt(meshconfig.Default(), merged).GetDiscoverySelectors()); err != nil {
			s.t.Error(err)
		}
	}})
	s.check(err)
	secrets := clustersecret.Options{Worker: worker}
	for _, name := range []string{"east", "west"} {
		secrets.Sources = append(secrets.Sources, clustersecret.Source{Cluster: connections[name].Share(cluster.User{}), Namespaces: []string{secretNamespace}})
	}
	ofClusters, keys := clustersecret.New(secrets), func() *seal.Ring { return &s.secrets.ring }
	var registry *registries.Registry
	server := xds.New(xds.Options{
		Configs: configs, Types: catalogue.Types(), Logger: logger, SealingKeys: keys, ClusterSecrets: ofClusters.Set, Registries: func() discovery.Fork { return registry.Fork() },
		Synced: func() bool { return configs.HasSynced() && registry.HasSynced() },
	})
	registry = registries.New(registries.Options{XDS: server, Worker: worker})
	entries := serviceentry.New(serviceentry.Options{XDS: server, Worker: worker, Configs: configs})
	s.check(registry.Add(entries))
	clusters := kubeservices.New(kubeservices.Options{XDS: server, Worker: worker, Configs: configs})
	entries.ExchangeWorkloads(clusters)
	for _, name := range []string{"east", "west"} {
		s.check(registry.Add(clusters.Registry(connections[name].Share(cluster.User{}))))
	}
	named := remote.New(remote.Options{
		Configs: configs.Handled, Keys: keys, Root: secretNamespace, Flags: []string{"east", "west"}, Clusters: clusters, Registries: registry,
		Connect: func(o cluster.Options) (*cluster.Cluster, error) {
			o.RetryMin, o.RetryMax, o.Selectors = time.Millisecond, 10*time.Millisecond, selectors
			return cluster.New(o)
		},
	})
	worker.AtTaskEnd(named.Follow)
	worker.AtTaskEnd(server.Commit)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{worker.Run, configs.Run, registry.Run, server.Run, named.Run, ofClusters.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				s.t.Errorf("server: %v", err)
			}
		})
	}
	s.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return &follower{server, func() bool {
		return server.Context() != nil && configs.HasSynced() && named.HasSynced() && registry.HasSynced() && ofClusters.HasSynced() && !slices.ContainsFunc(confirmed, func(of func() bool) bool { return !of() })
	}}
}

// bytesAt returns what proxies get, by proxy, type and name.
func bytesAt(t testing.TB, push *mesh.PushContext) map[string]string {
	t.Helper()
	out := map[string]string{}
	generators := append(xdstest.Generators(), xdstest.Inbound()...)
	for name, node := range map[string]xdstest.Node{
		"sidecar": {Namespace: "shop", IP: "10.2.0.1"}, "pod": {Namespace: "shop", IP: "10.3.0.1", NodeName: "n0", ClusterID: "east"}, "elsewhere": {Namespace: "shop", IP: "10.3.0.2", ClusterID: "west", DNSCapture: true}, "client": {Type: discovery.Proxyless, Namespace: "shop", IP: "10.9.0.1"},
		"gateway": {Type: discovery.Router, Namespace: "istio-system", IP: "10.9.0.2", Labels: map[string]string{"istio": "ingressgateway"}},
	} {
		for _, r := range xdstest.BuildAt(t, push, node, generators...) {
			out[fmt.Sprint(name, " ", r.Body.GetTypeUrl(), " ", r.Name)] = r.Version
		}
		builder := generate.NewBuilder(push, node.Proxy(t), append(slices.Clone(generators), secret.Generator{}))
		listeners, err := builder.All(resource.ListenerType)
		if err != nil {
			t.Fatal(err)
		}
		secrets, err := builder.Needed(resource.SecretType, listeners)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range secrets {
			out[fmt.Sprint(name, " ", of.Resource.Body.GetTypeUrl(), " ", of.Resource.Name)] = of.Resource.Version
		}
	}
	return out
}

// TestHistoriesOfSources writes to a store, a directory and two clusters at random, and selects
// namespaces of the clusters. Two servers that
// follow send equal bytes. So does a server that starts at the end, and so does a new context of the
// same inputs.
func TestHistoriesOfSources(t *testing.T) {
	t.Parallel()
	for seed := range uint64(longtest.Histories(3, 200)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			draw, s := rand.New(rand.NewPCG(seed, 40)), newPlaces(t)
			followers := []*follower{s.serve(), s.serve()}
			for _, one := range followers {
				xdstest.Eventually(t, "the server is synced", one.synced)
			}
			for range 300 {
				s.step(draw)
				if draw.IntN(8) == 0 { // changes come one by one, or several at once
					now := followers[0].xds.Context()
					if diff := cmp.Diff(bytesAt(t, mesh.New(now.Inputs())), bytesAt(t, now)); diff != "" {
						t.Fatalf("Next differs from New: %s", diff)
					}
				}
			}
			fresh := s.serve()
			xdstest.Eventually(t, "the new server is synced", fresh.synced)
			var diff string
			defer func() {
				if t.Failed() {
					t.Log(diff)
				}
			}()
			for i, one := range followers {
				xdstest.Eventually(t, fmt.Sprintf("server %d has equal bytes", i), func() bool {
					want, now := bytesAt(t, fresh.xds.Context()), one.xds.Context()
					diff = cmp.Diff(want, bytesAt(t, now))
					return diff == "" && len(want) > 0
				})
				now := one.xds.Context()
				if diff := cmp.Diff(bytesAt(t, mesh.New(now.Inputs())), bytesAt(t, now)); diff != "" {
					t.Fatalf("Next differs from New: %s", diff)
				}
			}
		})
	}
}
