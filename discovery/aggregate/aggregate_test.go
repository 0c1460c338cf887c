package aggregate_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/aggregate"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/discovery/memory"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is an aggregate with a worker that runs.
type fixture struct {
	*aggregate.Registry
	t      *testing.T
	xds    *discoverytest.Recorder
	worker *cache.Worker
	stop   func() error // ends the aggregate and returns the result of Run
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, xds: &discoverytest.Recorder{}, worker: cache.NewWorker()}
	f.Registry = aggregate.New(aggregate.Options{XDS: f.xds, Worker: f.worker})
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() { _ = f.worker.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		working.Wait()
	})
	return f
}

// run runs the aggregate until stop, or the end of the test.
func (f *fixture) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	f.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	f.t.Cleanup(func() { _ = f.stop() })
}

// settle waits until the worker is done, and returns the calls of the updater.
func (f *fixture) settle() []string {
	done := make(chan struct{})
	f.worker.Post(new(int), func() { close(done) })
	<-done
	return f.xds.Take()
}

// registry is a memory registry under a provider and cluster that the test chooses.
type registry struct {
	*memory.Registry
	provider discovery.Provider
	cluster  string
	fails    error
}

func (r *registry) Provider() discovery.Provider { return r.provider }
func (r *registry) Cluster() string              { return r.cluster }

func (r *registry) Run(ctx context.Context) error {
	if r.fails != nil {
		return r.fails
	}
	return r.Registry.Run(ctx)
}

// add adds a registry with one service per host, each with its endpoint at the address.
func (f *fixture) add(provider discovery.Provider, cluster, address string, hosts ...host.Name) *registry {
	f.t.Helper()
	r := &registry{memory.New(memory.Options{Cluster: cluster, XDS: f.xds, Worker: f.worker}), provider, cluster, nil}
	if err := f.Add(r); err != nil {
		f.t.Fatal(err)
	}
	for _, h := range hosts {
		r.AddService(&discovery.Service{
			Hostname: h, Address: address, ClusterVIPs: map[string][]string{cluster: {address}},
			ServiceAccounts: []string{"spiffe://" + cluster},
			Ports:           []discovery.Port{{Name: "http", Number: 80, Protocol: discovery.HTTP}},
			Attributes:      discovery.Attributes{Name: cluster, Namespace: "shop"},
		})
		r.SetEndpoints(h, "shop", &discovery.Endpoint{
			Address: address, Port: 80, ServicePortName: "http", Weight: 1, Labels: labels.Instance{"from": cluster},
		})
	}
	f.settle()
	return r
}

func expect(t *testing.T, got, want any) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// await waits until something holds.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatal("it does not come true")
		}
		time.Sleep(time.Millisecond)
	}
}

// names returns the clusters that services or endpoints come from.
func names(services []*discovery.Service) (out []string) {
	for _, s := range services {
		out = append(out, s.Attributes.Name)
	}
	return out
}

func sources(instances []*discovery.ServiceInstance) (out []string) {
	for _, i := range instances {
		out = append(out, i.Endpoint.Labels["from"])
	}
	return out
}

func TestKubernetesComesFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add(discovery.External, "se", "10.0.0.1", "a.example")
	f.add(discovery.Kubernetes, "k1", "10.0.0.2", "b.example")
	f.add(discovery.Consul, "dc1", "10.0.0.3", "c.example")
	f.add(discovery.Kubernetes, "k2", "10.0.0.4", "d.example")
	expect(t, names(f.Services()), []string{"k1", "k2", "se", "dc1"})
}

func TestKubernetesServicesOfOneHostMerge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add(discovery.Kubernetes, "k1", "10.0.0.1", "a.example")
	f.add(discovery.Kubernetes, "k2", "10.0.0.2", "a.example")
	f.add(discovery.Consul, "dc1", "10.0.0.3", "a.example")
	services := f.Services()
	expect(t, names(services), []string{"k1", "dc1"})
	vips := map[string][]string{"k1": {"10.0.0.1"}, "k2": {"10.0.0.2"}}
	accounts := []string{"spiffe://k1", "spiffe://k2"}
	for _, s := range []*discovery.Service{services[0], f.GetService("a.example")} {
		expect(t, s.Address, "10.0.0.1")
		expect(t, s.ClusterVIPs, vips)
		expect(t, s.ServiceAccounts, accounts)
	}
	// The merge has not changed the registry's own service.
	expect(t, f.Registries()[0].GetService("a.example").ClusterVIPs, map[string][]string{"k1": {"10.0.0.1"}})
}

func TestGetServiceIsOfTheFirstThatHasIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add(discovery.Consul, "dc1", "10.0.0.1", "a.example")
	f.add(discovery.External, "se", "10.0.0.2", "a.example", "b.example")
	expect(t, f.GetService("a.example").Attributes.Name, "dc1")
	expect(t, f.GetService("b.example").Attributes.Name, "se")
	expect(t, f.GetService("c.example"), (*discovery.Service)(nil))
}

func TestInstancesAreThoseOfAll(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add(discovery.External, "se", "10.0.0.1", "a.example")
	f.add(discovery.Consul, "dc1", "10.0.0.2", "a.example")
	s := f.GetService("a.example")
	expect(t, sources(f.InstancesByPort(s, 80, nil)), []string{"se", "dc1"})
	expect(t, sources(f.InstancesByPort(s, 80, labels.Instance{"from": "dc1"})), []string{"dc1"})
}

func TestProxyInstancesAreOfItsCluster(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add(discovery.Kubernetes, "k1", "10.0.0.1", "a.example")
	f.add(discovery.Kubernetes, "k2", "10.0.0.1", "a.example")
	f.add(discovery.External, "se", "10.0.0.1", "a.example")
	for _, c := range []struct {
		cluster string
		want    []string
	}{
		{"", []string{"k1", "k2", "se"}}, // reports no cluster: every registry answers
		{"k2", []string{"k2"}},           // the other cluster is skipped; the first answer is the only one
		{"vm", []string{"se"}},           // no Kubernetes registry answers
	} {
		proxy := &discovery.Proxy{IPAddresses: []string{"10.0.0.1"}, Namespace: "shop", ClusterID: c.cluster}
		expect(t, sources(f.GetProxyServiceInstances(proxy)), c.want)
		expect(t, f.GetProxyWorkloadLabels(proxy), labels.Instance{"from": c.want[0]})
	}
	stranger := &discovery.Proxy{IPAddresses: []string{"10.9.9.9"}, Namespace: "shop"}
	expect(t, f.GetProxyServiceInstances(stranger), []*discovery.ServiceInstance(nil))
	expect(t, f.GetProxyWorkloadLabels(stranger), labels.Instance(nil))
}

func TestFailureOfOneHidesNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add(discovery.Consul, "dc1", "10.0.0.1", "a.example").fails = errors.New("no token")
	f.add(discovery.Consul, "dc2", "10.0.0.2", "b.example").fails = errors.New("no route")
	healthy := f.add(discovery.External, "se", "10.0.0.3", "c.example")
	f.run()
	await(t, healthy.HasSynced)
	await(t, func() bool { return f.Failed() != nil && strings.Contains(f.Failed().Error(), "2 errors") })
	expect(t, names(f.Services()), []string{"dc1", "dc2", "se"}) // the services known before the end are still served
	err := f.stop()
	for _, part := range []string{"registry Consul/dc1: no token", "registry Consul/dc2: no route"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("Run returned %v, without %q", err, part)
		}
	}
}

func TestRegistriesComeAndGoWhileItRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var events []string
	f.AppendServiceHandler(func(old, curr *discovery.Service, event cache.Event) {
		events = append(events, event.String()+" "+cmp.Or(curr, old).Attributes.Name) // on the worker
	})
	first := f.add(discovery.External, "se", "10.0.0.1", "a.example")
	f.run()
	await(t, first.HasSynced)

	late := f.add(discovery.Consul, "dc1", "10.0.0.2", "a.example")
	await(t, late.HasSynced)
	await(t, f.HasSynced)
	f.settle()

	if err := f.Remove(discovery.ShardKey{Provider: discovery.Consul, Cluster: "dc1"}); err != nil {
		t.Fatal(err)
	}
	// Its rows go; those of the other registry are not touched.
	expect(t, f.settle(), []string{"services shop/a.example 0", "wake service=1"})
	expect(t, names(f.Services()), []string{"se"})
	expect(t, events, []string{"add se", "add dc1", "delete dc1"})
}

func TestAddAndRemoveAreChecked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.add(discovery.Consul, "dc1", "10.0.0.1")
	if err := f.Add(r); err == nil || !strings.Contains(err.Error(), "registry Consul/dc1: there is one already") {
		t.Errorf("Add of a second: %v", err)
	}
	if err := f.Remove(discovery.ShardKey{Provider: discovery.Consul, Cluster: "dc2"}); err == nil {
		t.Error("Remove of none succeeded")
	}
	if f.HasSynced() {
		t.Error("synced before its registry")
	}
}
