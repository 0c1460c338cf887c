package serviceentry_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	addresses "github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a cache whose snapshots the test makes.
type source struct{ *cache.Feed }

// Run implements cache.ConfigStoreCache.
func (s source) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// mesh is a Store between a source and a Recorder.
type mesh struct {
	xds     *discoverytest.Recorder
	store   *serviceentry.Store
	source  source
	worker  *cache.Worker
	configs pmap.Map[*config.Config]
	health  pmap.Map[*health.Report]
	// given holds the addresses assigned to hosts.
	given pmap.Map[*addresses.Assignment]
}

// tb is the common part of testing.T and rapid.T.
type tb interface {
	Helper()
	Cleanup(func())
	Fatal(...any)
}

// start runs a store until the test ends; wire may add handlers before that.
func start(t tb, o serviceentry.Options, wire ...func(*serviceentry.Store)) *mesh {
	t.Helper()
	m := &mesh{xds: &discoverytest.Recorder{}, worker: cache.NewWorker()}
	m.source = source{cache.NewFeed(cache.FeedOptions{Worker: m.worker, Schemas: schema.Pilot()})}
	o.XDS, o.Worker, o.Configs = m.xds, m.worker, m.source
	m.store = serviceentry.New(o)
	for _, f := range wire {
		f(m.store)
	}
	run(t, m.worker.Run, m.store.Run)
	return m
}

// run runs functions until the test ends.
func run(t tb, functions ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, f := range functions {
		running.Go(func() {
			if err := f(ctx); err != nil {
				panic(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// publish publishes a map of objects as the next revision, and waits until all its rows are
// published.
func (m *mesh) publish(configs pmap.Map[*config.Config]) {
	m.configs = configs
	m.source.Publish(m.source.Snapshot().Next(m.source.Snapshot().Revision()+1, cache.Content{Configs: configs, Health: m.health, Addresses: m.given}))
	m.settle()
}

// settle waits until the worker has run all posted tasks, with their hooks.
func (m *mesh) settle() {
	done := make(chan struct{})
	m.worker.Post(new(int), func() { close(done) })
	<-done
}

// do runs f on the worker, and waits for its rows.
func (m *mesh) do(f func()) {
	m.worker.Post(new(int), f)
	m.settle()
}

// apply stores objects as one revision and returns the calls of the updater.
func (m *mesh) apply(objects ...*config.Config) []string {
	next := m.configs
	for _, o := range objects {
		next = next.Set(o.Key().Path(), o)
	}
	m.publish(next)
	return m.xds.Take()
}

// remove is like apply, and deletes the objects.
func (m *mesh) remove(objects ...*config.Config) []string {
	next := m.configs
	for _, o := range objects {
		next = next.Delete(o.Key().Path())
	}
	m.publish(next)
	return m.xds.Take()
}

// endpoints returns the endpoints of a row, in the Recorder's format.
func (m *mesh) endpoints(namespace, hostname string) []string {
	return m.xds.Endpoints(namespace, hostname)
}

func (m *mesh) row(namespace, hostname string) discovery.Row {
	return m.xds.Rows()[namespace+"/"+hostname]
}

// object returns an object in namespace shop, created at a second.
func object(t tb, kind config.GroupVersionKind, name string, second int64, body string) *config.Config {
	t.Helper()
	document := "apiVersion: networking.istio.io/v1\nkind: " + kind.Kind + "\nmetadata: {name: " + name + ", namespace: shop}\n" + body
	documents, err := config.Decode(name, []byte(document), schema.Pilot().Type)
	if err != nil {
		t.Fatal(err)
	}
	c := documents[0].Config
	c.CreationTimestamp = time.Unix(second, 0).UTC()
	return c
}

// entry returns a ServiceEntry created at second 1, with its spec given in YAML flow style.
func entry(t tb, name, spec string) *config.Config {
	t.Helper()
	return object(t, schema.ServiceEntry, name, 1, "spec: "+spec)
}

// workload returns a WorkloadEntry created at second 1, with its spec given in YAML flow
// style.
func workload(t tb, name, spec string) *config.Config {
	t.Helper()
	return object(t, schema.WorkloadEntry, name, 1, "spec: "+spec)
}

// with returns a changed copy of an object.
func with(c *config.Config, change func(*config.Config)) *config.Config {
	c = c.Clone()
	change(c)
	return c
}

func expect(t testing.TB, got any, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
