package xdstest

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube/clustersecret"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/discovery/modules"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/phase"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/generate/endpoint"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// World is a mesh made from YAML, without a store or a server: objects go
// through the registry of ServiceEntries, as in the product, into Inputs and a
// PushContext. It belongs to one goroutine.
type World struct {
	// Unsettled leaves PeerAuthentications in the phase in which nobody has followed them.
	Unsettled bool

	tb       testing.TB
	worker   *cache.Worker
	feed     *cache.Feed
	recorder *discoverytest.Recorder

	configs   pmap.Map[*config.Config]
	addresses pmap.Map[*address.Assignment]
	health    pmap.Map[*health.Report]
	revision  int64
	inputs    mesh.Inputs
	sealer    *sealing.Sealer
	push      *mesh.PushContext
}

// staticCache is a cache without a source: tests publish its snapshots.
type staticCache struct{ *cache.Feed }

// Run implements cache.ConfigStoreCache.
func (staticCache) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// NewWorld makes a world with the objects in documents. It ends with the test.
func NewWorld(tb testing.TB, documents ...string) *World {
	tb.Helper()
	w := &World{tb: tb, worker: cache.NewWorker(), recorder: &discoverytest.Recorder{}, sealer: newSealer(tb, memory.New(schema.Pilot(), memory.Options{}))}
	w.feed = cache.NewFeed(cache.FeedOptions{Worker: w.worker, Schemas: schema.Pilot()})
	serviceentry.New(serviceentry.Options{
		XDS: w.recorder, Worker: w.worker, Configs: staticCache{w.feed},
		DefaultExportTo: func(configs *cache.Snapshot) []string {
			return mesh.MeshConfigAt(cmp.Or(w.inputs.MeshFile, meshconfig.Default()), configs).GetDefaultServiceExportTo()
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.worker.Run(ctx); err != nil {
			tb.Errorf("worker: %v", err)
		}
	})
	tb.Cleanup(func() {
		cancel()
		running.Wait()
	})
	w.Apply(documents...)
	return w
}

// Apply creates or replaces the objects in documents, as one revision. Each object is a second
// younger than the one before it; replacing it keeps its age. The default namespace is
// "default".
func (w *World) Apply(documents ...string) {
	w.tb.Helper()
	var objects []*config.Config
	for _, document := range documents {
		decoded, err := config.Decode("test", []byte(document), schema.Pilot().Type)
		if err != nil {
			w.tb.Fatalf("decode: %v", err)
		}
		for _, d := range decoded {
			objects = append(objects, d.Config)
		}
	}
	w.Put(objects...)
}

// Put is Apply of decoded objects. The world takes ownership of them.
func (w *World) Put(objects ...*config.Config) {
	w.tb.Helper()
	w.revision++
	for age, object := range objects {
		w.put(object, age)
	}
	w.commit()
	w.settle()
}

// settle writes the PeerPhases as the leader does once all proxies follow, in one step.
func (w *World) settle() {
	w.tb.Helper()
	var settled []*config.Config
	for namespace, policies := range w.push.PeerChanges() {
		settled = append(settled, &config.Config{Meta: config.Meta{GroupVersionKind: schema.PeerPhase, Namespace: namespace, Name: schema.PeerPhaseName}, Spec: &phase.Peers{Settled: policies.Write()}})
	}
	if w.Unsettled || len(settled) == 0 {
		return
	}
	for _, object := range settled {
		w.put(object, 0)
	}
	w.commit()
}

func (w *World) put(object *config.Config, age int) {
	w.tb.Helper()
	if object.Namespace == "" && !schema.Pilot().Kind(object.GroupVersionKind).ClusterScoped {
		object.Namespace = "default"
	}
	object.Domain = meshconfig.DefaultDomain
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	object.CreationTimestamp = epoch.Add(time.Duration(w.revision)*time.Hour + time.Duration(age)*time.Second)
	if _, err := schema.Pilot().Kind(object.GroupVersionKind).Validate(object); err != nil {
		w.tb.Fatalf("%s is not valid: %v", object.Key(), err)
	}
	path := object.Key().Path()
	old, ok := w.configs.Get(path)
	object = sealed(w.tb, w.sealer, object, old)
	w.inputs.SealingKeys = w.sealer.Keys()
	if ok {
		object.CreationTimestamp = old.CreationTimestamp
		if config.SameContent(old, object) {
			return
		}
	}
	w.configs = w.configs.Set(path, object)
}

// Delete removes an object, named as in "virtualservice/shop/reviews".
func (w *World) Delete(name string) {
	w.tb.Helper()
	w.revision++
	for path, object := range w.configs.All() {
		if object.Key().String() == name {
			w.configs = w.configs.Delete(path)
			w.commit()
			w.settle()
			return
		}
	}
	w.tb.Fatalf("delete %s: there is no such object", name)
}

// Assign assigns an IPv4 address to a host of ServiceEntries without addresses. The IPv6
// address is derived from it.
func (w *World) Assign(namespace, hostname, ipv4 string) {
	w.tb.Helper()
	w.revision++
	ip := netip.MustParseAddr(ipv4)
	assignment := &address.Assignment{
		Namespace: namespace, Host: hostname, IPv4: ip, IPv6: address.DefaultRanges().IPv6For(ip), Revision: w.revision,
	}
	w.addresses = w.addresses.Set(assignment.Path(), assignment)
	w.commit()
}

// Report sets what is reported of the health of a WorkloadEntry.
func (w *World) Report(r *health.Report) {
	w.tb.Helper()
	w.revision++
	w.health = w.health.Set(r.Path(), r)
	w.commit()
}

// Offer sets the row of a service of another registry.
func (w *World) Offer(row discovery.Row) {
	w.tb.Helper()
	w.recorder.SvcUpdate(discovery.ShardKey{}, row.Hostname, row.Namespace, row.Services)
	w.recorder.EDSUpdate(discovery.ShardKey{}, row.Hostname, row.Namespace, row.Endpoints)
	w.commit()
}

// SetModules sets which modules of WasmPlugins were fetched.
func (w *World) SetModules(set modules.Set) {
	w.tb.Helper()
	w.inputs.Modules = set
	w.commit()
}

// SetClusterSecrets sets the secrets of clusters.
func (w *World) SetClusterSecrets(set clustersecret.Set) {
	w.tb.Helper()
	w.inputs.ClusterSecrets = set
	w.commit()
}

// SetMesh replaces the mesh configuration, given in YAML.
func (w *World) SetMesh(document string) {
	w.tb.Helper()
	parsed, _, err := meshconfig.Parse([]byte(document))
	if err != nil {
		w.tb.Fatal(err)
	}
	w.inputs.MeshFile = parsed
	w.commit()
}

// SetHTTP3 sets whether gateways accept HTTP/3.
func (w *World) SetHTTP3(on bool) { w.changeMesh(func(c *meshconfig.Config) { c.HTTP3 = on }) }

// SetHostConsent sets whether the mesh asks who speaks for a host.
func (w *World) SetHostConsent(on bool) {
	w.changeMesh(func(c *meshconfig.Config) { c.HostConsent = on })
}

func (w *World) changeMesh(change func(*meshconfig.Config)) {
	to := meshconfig.Default()
	if w.inputs.MeshFile != nil {
		*to = *w.inputs.MeshFile
	}
	change(to)
	w.inputs.MeshFile = to
	w.commit()
}

// commit runs the handlers, waits for them, and derives the next context.
func (w *World) commit() {
	w.feed.Publish(w.feed.Snapshot().Next(w.revision, cache.Content{Configs: w.configs, Addresses: w.addresses, Health: w.health}))
	done := make(chan struct{})
	w.worker.Post("committed", func() { close(done) })
	<-done
	w.inputs.Configs = w.feed.Handled()
	w.inputs.Services = pmap.Map[*mesh.ServiceRow]{}
	w.inputs.Endpoints = pmap.Map[*mesh.EndpointRow]{}
	services, endpoints := w.push.Inputs().Services, w.push.Inputs().Endpoints
	for _, row := range w.recorder.Rows() {
		key := rows.Key(row.Hostname, row.Namespace)
		if len(row.Services) > 0 {
			service := rows.NewService(row.Services, row.Endpoints)
			if old := services.Value(key); old.Equal(service) {
				service = old
			}
			w.inputs.Services = w.inputs.Services.Set(key, service)
		}
		if len(row.Endpoints) > 0 {
			e := rows.NewEndpoints(row.Hostname, row.Namespace, []rows.ShardEndpoints{{Shard: discovery.ShardKey{Provider: discovery.External}, Endpoints: row.Endpoints}})
			if old := endpoints.Value(key); old.Equal(e) {
				e = old
			} else {
				e.Follow(old)
			}
			w.inputs.Endpoints = w.inputs.Endpoints.Set(key, e)
		}
	}
	w.push = w.push.Next(w.inputs)
}

// Context returns the current mesh.
func (w *World) Context() *mesh.PushContext { return w.push }

// Node describes a proxy. The comments of the fields give the defaults.
type Node struct {
	Type      discovery.ProxyType // Sidecar
	IP        string              // 10.0.0.1
	Namespace string              // default
	Domain    string              // its DNS domain, that of its namespace in the cluster
	Labels    map[string]string
	Identity  string // that the proxy has proved; none
	// DNSCapture means that applications beside it connect to assigned addresses.
	DNSCapture bool
	// SelfDiscovery means that it knows the endpoints of its own service.
	SelfDiscovery bool
	// HTTPProxyPort is the port on which it is an HTTP proxy according to its own metadata;
	// none.
	HTTPProxyPort string
	// RouteDelta means that it uses VHDS.
	RouteDelta bool
	// Returning means that it has resources of an earlier stream.
	Returning bool
	// Interception is how it captures traffic; NONE.
	Interception discovery.InterceptionMode
	// MoreIPs are further addresses.
	MoreIPs []string
	// Locality is where it says that it runs: region/zone/subzone.
	Locality string
	// Certified means that it has a certificate of its own, in files.
	Certified bool
	// SecretCluster is the cluster of its bootstrap that serves its certificate.
	SecretCluster string
	// Listeners are those that a gRPC server has asked for.
	Listeners []string
	// SystemRoots is the file of the authorities that its machine trusts; unknown.
	SystemRoots string
	// Group is the WorkloadGroup in which it asks to be registered; none.
	Group string
	// NodeName is the node of Kubernetes that it is on, and ClusterID the cluster; none.
	NodeName, ClusterID string
	// Remote means that it connects from another machine than the server's.
	Remote bool
}

// Proxy returns the proxy that the server would make of a connection from the node.
func (n Node) Proxy(tb testing.TB) *discovery.Proxy {
	tb.Helper()
	if n.Type == "" {
		n.Type = discovery.Sidecar
	}
	if n.IP == "" {
		n.IP = "10.0.0.1"
	}
	if n.Namespace == "" {
		n.Namespace = "default"
	}
	labels := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for k, v := range n.Labels {
		labels.Fields[k] = structpb.NewStringValue(v)
	}
	kind, generator := n.Type, ""
	if kind == discovery.Proxyless { // the type is in the metadata, not in the id
		kind, generator = discovery.Sidecar, string(kind)
	}
	chain, key, roots := "", "", ""
	if n.Certified {
		chain, key, roots = "/certs/own.crt", "/certs/own.key", "/certs/roots.crt"
	}
	proxy, err := discovery.ParseProxy(&corev3.Node{
		Id:       string(kind) + "~" + n.IP + "~test~" + cmp.Or(n.Domain, n.Namespace+".svc.cluster.local"),
		Locality: upstream.Locality(n.Locality),
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"GENERATOR":             structpb.NewStringValue(generator),
			"NAMESPACE":             structpb.NewStringValue(n.Namespace),
			"INTERCEPTION_MODE":     structpb.NewStringValue(string(cmp.Or(n.Interception, discovery.InterceptionNone))),
			"INSTANCE_IPS":          structpb.NewStringValue(strings.Join(append([]string{n.IP}, n.MoreIPs...), ",")),
			"LABELS":                structpb.NewStructValue(labels),
			"DNS_CAPTURE":           structpb.NewBoolValue(n.DNSCapture),
			"ENABLE_SELF_DISCOVERY": structpb.NewBoolValue(n.SelfDiscovery),
			"HTTP_PROXY_PORT":       structpb.NewStringValue(n.HTTPProxyPort),
			"SYSTEM_ROOTS":          structpb.NewStringValue(n.SystemRoots),
			"NODE_NAME":             structpb.NewStringValue(n.NodeName),
			"CLUSTER_ID":            structpb.NewStringValue(n.ClusterID),
			"SDS_CLUSTER":           structpb.NewStringValue(n.SecretCluster),
			"AUTO_REGISTER_GROUP":   structpb.NewStringValue(n.Group),
			"TLS_CLIENT_CERT_CHAIN": structpb.NewStringValue(chain),
			"TLS_CLIENT_KEY":        structpb.NewStringValue(key),
			"TLS_CLIENT_ROOT_CERT":  structpb.NewStringValue(roots),
		}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	proxy.Identity, proxy.RouteDelta, proxy.Returning = n.Identity, n.RouteDelta, n.Returning
	proxy.Local, proxy.Listeners = !n.Remote, n.Listeners
	return proxy
}

// View returns the world as a node sees it, including the rows of its own workload.
func (w *World) View(n Node) *mesh.View {
	proxy := n.Proxy(w.tb)
	return mesh.NewView(w.push, w.push.ClassOf(proxy)).Of(proxy)
}

// Class returns the class of a node.
func (w *World) Class(n Node) mesh.Class { return w.push.ClassOf(n.Proxy(w.tb)) }

// Build builds all resources of a node, type by type. For a composed resource, the generators
// must include that of its parts.
func (w *World) Build(n Node, generators ...generate.Generator) []*resource.Resource {
	w.tb.Helper()
	return BuildAt(w.tb, w.push, n, generators...)
}

// BuildAt builds all resources of a node, as World.Build does, for a context.
func BuildAt(tb testing.TB, push *mesh.PushContext, n Node, generators ...generate.Generator) []*resource.Resource {
	tb.Helper()
	builder := generate.NewBuilder(push, n.Proxy(tb), generators)
	var out []*resource.Resource
	seen := map[string]bool{}
	for _, g := range generators {
		if seen[g.TypeURL()] {
			continue
		}
		seen[g.TypeURL()] = true
		all, err := builder.All(g.TypeURL())
		if err != nil {
			tb.Fatal(err)
		}
		for _, built := range all {
			out = append(out, built.Resource)
		}
		if g.TypeURL() == resource.ListenerType {
			filters, err := builder.Needed(resource.ExtensionType, all)
			if err != nil {
				tb.Fatal(err)
			}
			for _, built := range filters {
				out = append(out, built.Resource)
			}
		}
	}
	return out
}

// Generators returns the generators of the types that a simulation reads, in the order of
// delivery.
func Generators() []generate.Generator {
	return []generate.Generator{cluster.Generator{}, endpoint.Generator{}, listener.Generator{}, route.Generator{}, virtualhost.Generator{}}
}

// Inbound returns the generators of a workload's own resources.
func Inbound() []generate.Generator {
	return []generate.Generator{cluster.Inbound{}, endpoint.Local{}, listener.Inbound{}, policy.Generator{}}
}

// Simulate simulates the proxy of a node.
func (w *World) Simulate(n Node) *simulate.Proxy {
	w.tb.Helper()
	p, err := simulate.New(w.Build(n, append(Generators(), Inbound()...)...))
	if err != nil {
		w.tb.Fatal(err)
	}
	return p
}

// Object writes the YAML of a networking or security object: its kind, "namespace/name" (the
// namespace may be left out) and its spec, a mapping in braces.
func Object(kind, name, spec string) string {
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		namespace, short = "default", name
	}
	group, version := "networking.istio.io", "v1"
	switch {
	case kind == "EnvoyFilter":
		version = "v1alpha3"
	case strings.HasSuffix(kind, "Authentication") || kind == "AuthorizationPolicy":
		group = "security.istio.io"
	case kind == "WasmPlugin":
		group, version = schema.WasmPlugin.Group, schema.WasmPlugin.Version
	case kind == "HostGrant":
		group = schema.HostGrant.Group
	case kind == "Telemetry":
		group = schema.Telemetry.Group
	}
	return fmt.Sprintf("apiVersion: %s/%s\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec: %s\n",
		group, version, kind, short, namespace, spec)
}

// HTTPService writes a ServiceEntry of a host with port 80 for HTTP and one
// endpoint for each address.
func HTTPService(name, hostname string, addresses ...string) string {
	var endpoints []string
	for _, a := range addresses {
		endpoints = append(endpoints, "{address: "+a+"}")
	}
	return Object("ServiceEntry", name, fmt.Sprintf(
		"{hosts: ['%s'], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [%s]}",
		hostname, strings.Join(endpoints, ", ")))
}
