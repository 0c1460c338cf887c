package xds_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/aggregate"
	"github.com/portolan-mesh/portolan/discovery/memory"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// replica is a server with several registries, from their sources to the inputs
// of a push.
type replica struct {
	mesh    *meshconfig.Config // nil for the default
	t       tb
	worker  *cache.Worker
	feed    *cache.Feed
	server  *xds.DiscoveryServer
	entries *serviceentry.Store
	pods    *memory.Registry // whose workload instances ServiceEntries select
	memory  *memory.Registry

	configs  pmap.Map[*config.Config]
	revision int64
	now      *mesh.PushContext
	sealer   *sealing.Sealer // of secrets; nil where there are none
	proxies  []string        // addresses that ProxyUpdate was called for; written on the worker
}

// tb is what testing.T and rapid.T have in common.
type tb interface {
	Helper()
	Cleanup(func())
	Fatal(...any)
	Fatalf(string, ...any)
}

// still is a cache whose snapshots are published by hand.
type still struct{ *cache.Feed }

func (still) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// updater hands updates on to the server, and notes the proxies of ProxyUpdate.
type updater struct{ *replica }

func (u updater) SvcUpdate(shard discovery.ShardKey, hostname host.Name, namespace string, services []*discovery.Service) {
	u.server.SvcUpdate(shard, hostname, namespace, services)
}

func (u updater) EDSUpdate(shard discovery.ShardKey, hostname host.Name, namespace string, endpoints []*discovery.Endpoint) {
	u.server.EDSUpdate(shard, hostname, namespace, endpoints)
}

func (u updater) EDSCacheUpdate(shard discovery.ShardKey, hostname host.Name, namespace string, endpoints []*discovery.Endpoint) {
	u.server.EDSCacheUpdate(shard, hostname, namespace, endpoints)
}

func (u updater) ConfigUpdate(r *discovery.PushRequest) { u.server.ConfigUpdate(r) }

func (u updater) ProxyUpdate(cluster, ip string) {
	u.server.ProxyUpdate(cluster, ip)
	u.proxies = append(u.proxies, ip)
}

// newReplica runs a replica until the test ends.
func newReplica(t tb, off serviceentry.Switches) *replica {
	t.Helper()
	return newReplicaOf(t, meshconfig.Default(), off)
}

func newReplicaOf(t tb, mesh *meshconfig.Config, off serviceentry.Switches) *replica {
	t.Helper()
	r := &replica{t: t, mesh: mesh, worker: cache.NewWorker()}
	r.feed = cache.NewFeed(cache.FeedOptions{Worker: r.worker, Schemas: schema.Pilot()})
	r.start(still{r.feed}, off)
	r.commit()
	r.push()
	return r
}

// start runs the server and its registries over a cache until the test ends.
func (r *replica) start(configs cache.ConfigStoreCache, off serviceentry.Switches) {
	r.t.Helper()
	to := updater{r}
	all := aggregate.New(aggregate.Options{XDS: to, Worker: r.worker})
	r.server = xds.New(xds.Options{
		Configs: configs, Types: catalogue.Types(), Logger: slog.New(slog.DiscardHandler), Registries: all.Fork, SealingKeys: r.keys, Mesh: r.mesh,
	})
	r.entries = serviceentry.New(serviceentry.Options{Cluster: "c1", XDS: to, Worker: r.worker, Configs: configs, Off: off})
	r.pods = memory.New(memory.Options{Cluster: "k1", XDS: to, Worker: r.worker})
	r.pods.AppendWorkloadHandler(r.entries.WorkloadInstanceHandler)
	r.memory = memory.New(memory.Options{Cluster: "m1", XDS: to, Worker: r.worker})
	for _, registry := range []discovery.Instance{r.entries, r.pods, r.memory} {
		if err := all.Add(registry); err != nil {
			r.t.Fatal(err)
		}
	}
	r.worker.AtTaskEnd(r.server.Commit)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.worker.Run(ctx) })
	r.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func (r *replica) keys() *seal.Ring {
	if r.sealer == nil {
		return nil
	}
	return r.sealer.Keys()
}

// set puts objects in place of those at their paths; commit publishes them.
func (r *replica) set(objects ...*config.Config) {
	for _, c := range objects {
		r.configs = r.configs.Set(c.Key().Path(), c)
	}
}

func (r *replica) remove(objects ...*config.Config) {
	for _, c := range objects {
		r.configs = r.configs.Delete(c.Key().Path())
	}
}

// commit publishes the present objects as the next revision.
func (r *replica) commit() {
	r.revision++
	r.feed.Publish(cache.NewSnapshot(r.revision, r.configs))
}

// settle waits until the worker has run all posted tasks.
func (r *replica) settle() {
	done := make(chan struct{})
	r.worker.Post(new(int), func() { close(done) })
	<-done
}

// do runs f on the worker.
func (r *replica) do(f func()) {
	r.worker.Post(new(int), f)
	r.settle()
}

// push derives the next context. It returns the request of the push, and the proxies of
// ProxyUpdate since the last call.
func (r *replica) push() (request *discovery.PushRequest, proxies []string) {
	r.settle()
	from := r.now
	r.now = r.now.Next(r.server.Inputs())
	proxies, r.proxies = r.proxies, nil
	return mesh.Diff(from, r.now).Request(), proxies
}

// versions returns the versions of all resources of some proxies, which are the hashes of
// their bytes.
func (r *replica) versions() map[string]string { return r.versionsIn(r.now) }

func (r *replica) versionsIn(push *mesh.PushContext) map[string]string {
	r.t.Helper()
	out := map[string]string{}
	for _, n := range []xdstest.Node{
		{Type: discovery.Sidecar, Namespace: "shop", IP: "10.0.0.1", Labels: map[string]string{"app": "a"}},
		{Type: discovery.Router, Namespace: "edge", IP: "10.0.0.9"},
	} {
		proxy := &discovery.Proxy{
			ID: string(n.Type), Type: n.Type, IPAddresses: []string{n.IP}, Namespace: n.Namespace,
			MetadataLabels: n.Labels, InterceptionMode: discovery.InterceptionNone,
		}
		w := xdstest.NewGroups(catalogue.Types(), func() *mesh.PushContext { return push }).Join(proxy)
		w.Follow()
		for name, version := range w.Versions() {
			out[string(n.Type)+" "+name] = version
		}
		w.Close()
	}
	return out
}

// rows writes down the rows that the server has.
func (r *replica) rows() map[string]string { return rowsOf(r.server.Inputs()) }

func rowsOf(in mesh.Inputs) map[string]string {
	out := map[string]string{}
	for key, row := range in.Services.All() {
		for i, s := range row.Services {
			out[fmt.Sprint("service ", key, " ", i)] = fmt.Sprintf("%+v", *s)
		}
		out["accounts "+key] = fmt.Sprint(row.Accounts)
	}
	for key, row := range in.Endpoints.All() {
		for i, e := range row.Endpoints {
			out[fmt.Sprint("endpoint ", key, " ", i)] = fmt.Sprintf("%+v", *e)
		}
	}
	return out
}

// keys returns the keys of a push as sorted text.
func keys(request *discovery.PushRequest) []string {
	var out []string
	for k := range maps.Keys(request.ConfigsUpdated) {
		out = append(out, k.String())
	}
	slices.Sort(out)
	return out
}

// objectOf decodes one object, created at a second.
func objectOf(t tb, kind, name, spec string, second int64) *config.Config {
	t.Helper()
	documents, err := config.Decode(name, []byte(xdstest.Object(kind, name, spec)), schema.Pilot().Type)
	if err != nil {
		t.Fatal(err)
	}
	c := documents[0].Config
	c.CreationTimestamp, c.Domain = time.Unix(second, 0).UTC(), meshconfig.DefaultDomain
	return c
}
