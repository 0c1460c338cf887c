package memory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/discovery/memory"
	"github.com/portolan-mesh/portolan/storage/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a registry whose worker runs only when the test says so.
type fixture struct {
	*memory.Registry
	xds    *discoverytest.Recorder
	worker *cache.Worker
}

func newFixture() fixture {
	f := fixture{xds: &discoverytest.Recorder{}, worker: cache.NewWorker()}
	f.Registry = memory.New(memory.Options{Cluster: "m1", XDS: f.xds, Worker: f.worker})
	return f
}

// run runs functions until the test ends.
func run(t *testing.T, functions ...func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, f := range functions {
		running.Go(func() {
			if err := f(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// settle waits until the worker is done, and returns the calls of the updater.
func (f fixture) settle() []string {
	done := make(chan struct{})
	f.worker.Post(new(int), func() { close(done) })
	<-done
	return f.xds.Take()
}

func service(hostname host.Name, address string) *discovery.Service {
	return &discovery.Service{
		Hostname: hostname, Address: address, Ports: []discovery.Port{{Name: "http", Number: 80, Protocol: discovery.HTTP}},
		Attributes: discovery.Attributes{Name: string(hostname), Namespace: "shop"},
	}
}

func endpoint(address string) *discovery.Endpoint {
	return &discovery.Endpoint{Address: address, Port: 80, ServicePortName: "http", Weight: 1}
}

func expect(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRowsFollowTheCalls(t *testing.T) {
	t.Parallel()
	f := newFixture()
	run(t, f.worker.Run)
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"endpoints before their service wait", func() { f.SetEndpoints("a", "shop", endpoint("10.0.0.1")) }, nil},
		{"a service brings them along", func() { f.AddService(service("a", "10.1.0.1")) }, []string{"services shop/a 1", "endpoints (silent) shop/a 1", "wake service=1"}},
		{"another address", func() { f.AddService(service("a", "10.1.0.2")) }, []string{"services shop/a 2", "wake service=1"}},
		{"the same again", func() { f.AddService(service("a", "10.1.0.2")) }, nil},
		{"endpoints alone", func() { f.SetEndpoints("a", "shop", endpoint("10.0.0.1"), endpoint("10.0.0.2")) }, []string{"endpoints shop/a 2"}},
		{"no endpoints", func() { f.SetEndpoints("a", "shop") }, []string{"endpoints shop/a 0"}},
		{"removed", func() { f.RemoveService("a", "shop") }, []string{"services shop/a 0", "wake service=1"}},
		{"removed again", func() { f.RemoveService("a", "shop") }, nil},
	} {
		step.do()
		if diff := cmp.Diff(step.want, f.settle()); diff != "" {
			t.Fatalf("%s (-want +got)\n%s", step.name, diff)
		}
	}
}

func TestLaterSetsReplaceThoseThatWait(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.AddService(service("a", "10.1.0.1"))
	for i := range 100 {
		f.SetEndpoints("a", "shop", endpoint(fmt.Sprint("10.0.0.", i)))
	}
	expect(t, f.worker.Len(), 1)
	run(t, f.worker.Run)
	expect(t, f.settle(), []string{"services shop/a 1", "endpoints (silent) shop/a 1", "wake service=1"})
	expect(t, f.xds.Endpoints("shop", "a"), []string{"http=10.0.0.99:80"})
}

func TestAnyGoroutineMayCall(t *testing.T) {
	t.Parallel()
	f := newFixture()
	run(t, f.worker.Run)
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for n := range 20 {
				hostname := host.Name(fmt.Sprint("h", n))
				f.AddService(service(hostname, fmt.Sprint("10.1.0.", i)))
				f.SetEndpoints(hostname, "shop", endpoint(fmt.Sprint("10.0.0.", i)))
				f.Services()
			}
		})
	}
	callers.Wait()
	f.settle()
	expect(t, len(f.Services()), 8*20)
	expect(t, len(f.xds.Rows()), 20)
	expect(t, f.xds.Redundant(), []string(nil))
}

func TestQueries(t *testing.T) {
	t.Parallel()
	f := newFixture()
	run(t, f.worker.Run)
	own := service("a", "10.1.0.1")
	f.AddService(own)
	f.SetEndpoints("a", "shop", endpoint("10.0.0.1"))
	f.settle()
	got := f.GetService("a")
	expect(t, got.Attributes.Provider, discovery.Memory)
	expect(t, own.Attributes.Provider, discovery.Provider(""))
	expect(t, len(f.InstancesByPort(got, 80, nil)), 1)
	expect(t, len(f.GetProxyServiceInstances(&discovery.Proxy{IPAddresses: []string{"10.0.0.1"}})), 1)
	expect(t, f.Cluster(), "m1")
}

func TestHasSyncedOnceCommitted(t *testing.T) {
	t.Parallel()
	f := newFixture()
	ends := make(chan bool, 3) // HasSynced at the end of each task
	f.worker.AtTaskEnd(func() { ends <- f.HasSynced() })
	f.AddService(service("a", "10.1.0.1"))
	run(t, f.worker.Run, f.Run)
	for range 2 { // the post of the service, then that of Run
		if <-ends {
			t.Error("synced before the hooks of its own task were done")
		}
	}
	f.worker.Post("next", func() {})
	if !<-ends {
		t.Error("not synced although all is committed")
	}
	expect(t, len(f.xds.Rows()), 1)
}

func TestServiceHandlers(t *testing.T) {
	t.Parallel()
	f := newFixture()
	var got []string
	f.AppendServiceHandler(func(old, curr *discovery.Service, event cache.Event) { got = append(got, event.String()) })
	f.AppendWorkloadHandler(func(*discovery.WorkloadInstance, cache.Event) { t.Error("there are no workloads") })
	run(t, f.worker.Run)
	f.AddService(service("a", "10.1.0.1"))
	f.settle()
	f.RemoveService("a", "shop")
	f.settle()
	expect(t, got, []string{"add", "delete"})
}

func TestWorkloadHandlersAreToldOfWhatDiffers(t *testing.T) {
	t.Parallel()
	f := newFixture()
	var events []string
	f.AppendWorkloadHandler(func(w *discovery.WorkloadInstance, event cache.Event) {
		events = append(events, fmt.Sprint(event, " ", w.Provider, " ", w.Endpoint.Locality.Cluster, " ", w.Name, " ", w.Endpoint.Address))
	})
	run(t, f.worker.Run)
	w := func(address string) *discovery.WorkloadInstance {
		return &discovery.WorkloadInstance{Name: "w", Namespace: "shop", Endpoint: discovery.Endpoint{Address: address}}
	}
	for _, do := range []func(){
		func() { f.SetWorkload(w("10.0.0.1")) }, func() { f.SetWorkload(w("10.0.0.1")) }, func() { f.SetWorkload(w("10.0.0.2")) },
		func() { f.RemoveWorkload("shop", "w") }, func() { f.RemoveWorkload("shop", "w") },
	} {
		do()
		if calls := f.settle(); len(calls) > 0 {
			t.Errorf("rows of a workload instance: %q", calls)
		}
	}
	want := []string{"add Memory m1 w 10.0.0.1", "update Memory m1 w 10.0.0.2", "delete Memory m1 w 10.0.0.2"}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
