package registrytest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// Source is a registry that does not run yet, with its source.
type Source struct {
	Registry discovery.Instance
	// Provider and Cluster must equal those that the registry reports.
	Provider discovery.Provider
	Cluster  string
	// Offer makes the source offer exactly these services. It may return before the registry
	// knows them.
	Offer func(...Service)
	// Would returns the configuration that the registry has, and the one with exactly these
	// services on offer. Any goroutine may call it while nobody calls Offer. It is nil if the
	// registry does not follow the configuration.
	Would func(...Service) (from, to *cache.Snapshot)
	// Namespace is the namespace of all services if the source cannot choose it; empty means
	// that Service.Namespace counts.
	Namespace string
	// Run runs beside the registry; may be nil.
	Run func(context.Context) error
}

// Service is a service that any source can express: a name and one HTTP port.
type Service struct {
	Name, Namespace string
	Port            int
	Instances       []Instance
}

// Instance is one endpoint of a Service, at the service's port.
type Instance struct {
	Address string
	Labels  labels.Instance
}

// Maker makes the registry of one test. It must not run the registry.
type Maker func(t *testing.T, xds discovery.XDSUpdater, worker *cache.Worker) Source

// Run runs the suite.
func Run(t *testing.T, maker Maker) {
	for name, test := range map[string]func(*testing.T, *rig){
		"it says which it is":                                    testInstance,
		"it is synced once its rows are handed over":             testHasSynced,
		"services are told, and in one order":                    testServices,
		"a service is found by its host":                         testGetService,
		"instances are those of the port whose labels match":     testInstancesByPort,
		"a proxy's instances are those where it is":              testProxyInstances,
		"a stand-alone proxy has none":                           testStandAlone,
		"a proxy's labels are those of the workload where it is": testProxyLabels,
		"an identity outranks an address":                        testIdentity,
		"handlers are told of services":                          testServiceHandlers,
		"handlers cannot be appended to one that runs":           testHandlersAfterRun,
		"what does not change is not handed over again":          testNothingTwice,
		"what goes takes its endpoints along":                    testRemoval,
		"a fork stays as the registry was":                       testForkStays,
		"a fork sees a batch, and the registry does not":         testForkSeesBatch,
		"forks do not see each other":                            testForksAreApart,
		"Run ends with its context":                              testRunEnds,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t, maker))
		})
	}
}

// rig is one registry under test.
type rig struct {
	Source
	t      *testing.T
	xds    *discoverytest.Recorder
	worker *cache.Worker
	stop   func() error // stops everything and returns the result of the registry's Run
}

func newRig(t *testing.T, maker Maker) *rig {
	t.Helper()
	r := &rig{t: t, xds: &discoverytest.Recorder{}, worker: cache.NewWorker()}
	r.Source = maker(t, r.xds, r.worker)
	return r
}

func (r *rig) run(offers ...Service) {
	r.t.Helper()
	r.Offer(offers...)
	ctx, cancel := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	ended := make(chan error, 1)
	beside.Go(func() { _ = r.worker.Run(ctx) })
	if r.Source.Run != nil {
		beside.Go(func() {
			if err := r.Source.Run(ctx); err != nil {
				r.t.Errorf("the source: %v", err)
			}
		})
	}
	go func() { ended <- r.Registry.Run(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		beside.Wait()
		return <-ended
	})
	r.t.Cleanup(func() { _ = r.stop() })
	r.await("it is synced", r.Registry.HasSynced)
	r.await("it knows what is offered", func() bool { return len(r.Registry.Services()) >= len(offers) })
	r.settle()
}

// settle waits until the worker has run all posts.
func (r *rig) settle() {
	done := make(chan struct{})
	r.worker.Post(new(int), func() { close(done) })
	<-done
}

func (r *rig) await(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("it does not come true that %s", what)
		}
	}
}

func (r *rig) expect(got, want any) {
	r.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("(-want +got)\n%s", diff)
	}
}

func (r *rig) namespace(s Service) string {
	if r.Source.Namespace != "" {
		return r.Source.Namespace
	}
	return s.Namespace
}

// service finds one of the suite's services. Its object has the name, or its host begins with
// it, depending on the source.
func (r *rig) service(name string) *discovery.Service {
	r.t.Helper()
	for _, s := range r.Registry.Services() {
		if s.Attributes.Name == name {
			return s
		}
	}
	r.t.Fatalf("there is no service %s", name)
	return nil
}

// web and api are the services of most tests. They share an address.
func web() Service {
	return Service{Name: "web", Namespace: "shop", Port: 80, Instances: []Instance{
		{Address: "10.0.0.1", Labels: labels.Instance{"v": "1"}},
		{Address: "10.0.0.2", Labels: labels.Instance{"v": "2"}},
	}}
}

func api() Service {
	return Service{Name: "api", Namespace: "shop", Port: 81, Instances: []Instance{
		{Address: "10.0.0.1", Labels: labels.Instance{"v": "1"}},
	}}
}

func addresses(instances []*discovery.ServiceInstance) []string {
	var out []string
	for _, i := range instances {
		out = append(out, fmt.Sprintf("%s %s:%d", i.Service.Attributes.Name, i.Endpoint.Address, i.Endpoint.Port))
	}
	slices.Sort(out)
	return out
}

func testInstance(_ *testing.T, r *rig) {
	r.expect(r.Registry.Provider(), r.Provider)
	r.expect(r.Registry.Cluster(), r.Cluster)
}

func testHasSynced(t *testing.T, r *rig) {
	if r.Registry.HasSynced() {
		t.Error("synced before it runs")
	}
	r.run(web())
	r.expect(len(r.xds.Rows()), 1)
}

func testServices(_ *testing.T, r *rig) {
	r.run(web(), api())
	services := r.Registry.Services()
	r.expect(len(services), 2)
	r.expect(slices.IsSortedFunc(services, discovery.CompareServices), true)
	s := r.service("web")
	r.expect(s.Attributes.Provider, r.Provider)
	r.expect(s.Attributes.Namespace, r.namespace(web()))
	port, ok := s.Port(80)
	r.expect(ok, true)
	r.expect(port.Protocol, discovery.HTTP)
}

func testGetService(_ *testing.T, r *rig) {
	r.run(web(), api())
	r.expect(r.Registry.GetService(r.service("web").Hostname), r.service("web"))
	r.expect(r.Registry.GetService("unknown.example"), (*discovery.Service)(nil))
	r.expect(r.Registry.GetService(r.service("web").Hostname[1:]), (*discovery.Service)(nil))
}

func testInstancesByPort(_ *testing.T, r *rig) {
	r.run(web(), api())
	for _, tc := range []struct {
		port     int
		selector labels.Instance
		want     []string
	}{
		{80, nil, []string{"web 10.0.0.1:80", "web 10.0.0.2:80"}},
		{80, labels.Instance{}, []string{"web 10.0.0.1:80", "web 10.0.0.2:80"}},
		{80, labels.Instance{"v": "2"}, []string{"web 10.0.0.2:80"}},
		{80, labels.Instance{"v": "3"}, nil},
		{80, labels.Instance{"v": "2", "w": "2"}, nil},
		{82, nil, nil},
	} {
		r.expect(addresses(r.Registry.InstancesByPort(r.service("web"), tc.port, tc.selector)), tc.want)
	}
}

func (r *rig) proxy(ips ...string) *discovery.Proxy {
	return &discovery.Proxy{Namespace: r.namespace(web()), IPAddresses: ips}
}

func testProxyInstances(_ *testing.T, r *rig) {
	r.run(web(), api())
	for _, tc := range []struct {
		ips  []string
		want []string
	}{
		{[]string{"10.0.0.1"}, []string{"api 10.0.0.1:81", "web 10.0.0.1:80"}},
		{[]string{"10.0.0.2"}, []string{"web 10.0.0.2:80"}},
		{[]string{"10.0.0.2", "10.0.0.1"}, []string{"api 10.0.0.1:81", "web 10.0.0.2:80"}}, // one per service port
	} {
		r.expect(addresses(r.Registry.GetProxyServiceInstances(r.proxy(tc.ips...))), tc.want)
	}
}

func testStandAlone(_ *testing.T, r *rig) {
	r.run(web())
	r.expect(addresses(r.Registry.GetProxyServiceInstances(r.proxy("10.0.0.9"))), []string(nil))
	r.expect(r.Registry.GetProxyWorkloadLabels(r.proxy("10.0.0.9")), labels.Instance(nil))
}

func testProxyLabels(_ *testing.T, r *rig) {
	r.run(web())
	r.expect(r.Registry.GetProxyWorkloadLabels(r.proxy("10.0.0.2"))["v"], "2")
	r.expect(r.Registry.GetProxyWorkloadLabels(r.proxy("10.0.0.9", "10.0.0.1"))["v"], "1")
}

func testIdentity(_ *testing.T, r *rig) {
	r.run(web())
	proxy := r.proxy("10.0.0.2")
	proxy.Identity = "spiffe://cluster.local/ns/shop/sa/stranger"
	r.expect(r.Registry.GetProxyWorkloadLabels(proxy), labels.Instance(nil))
}

func testServiceHandlers(_ *testing.T, r *rig) {
	var mu sync.Mutex
	var events []string
	r.Registry.AppendServiceHandler(func(old, curr *discovery.Service, event cache.Event) {
		s := curr
		if s == nil {
			s = old
		}
		mu.Lock()
		defer mu.Unlock()
		events = append(events, event.String()+" "+s.Attributes.Name)
	})
	r.Registry.AppendWorkloadHandler(func(*discovery.WorkloadInstance, cache.Event) {})
	hears := func(want ...string) {
		r.t.Helper()
		r.await(fmt.Sprint("handlers hear ", want), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(events, want)
		})
	}
	r.run(web())
	hears("add web")
	changed := web()
	changed.Port = 8080
	r.Offer(changed)
	hears("add web", "update web")
	r.Offer()
	hears("add web", "update web", "delete web")
}

func testHandlersAfterRun(_ *testing.T, r *rig) {
	r.run()
	r.await("Run takes no more handlers", func() (refused bool) {
		defer func() { refused = recover() != nil }()
		r.Registry.AppendServiceHandler(func(_, _ *discovery.Service, _ cache.Event) {})
		return false
	})
}

func testNothingTwice(_ *testing.T, r *rig) {
	r.run(web(), api())
	changed := web()
	changed.Instances = changed.Instances[:1]
	r.Offer(changed, api())
	r.await("an instance goes", func() bool { return r.endpoints("web") == 1 })
	r.Offer(changed)
	r.await("a service goes", func() bool { return len(r.Registry.Services()) == 1 })
	r.settle()
	r.expect(r.xds.Redundant(), []string(nil))
}

// endpoints counts the published endpoints of a service.
func (r *rig) endpoints(name string) int {
	s := r.service(name)
	return len(r.xds.Rows()[r.namespace(Service{Namespace: "shop"})+"/"+string(s.Hostname)].Endpoints)
}

func testRemoval(_ *testing.T, r *rig) {
	r.run(web(), api())
	hostname := host.Name(r.service("web").Hostname)
	r.Offer(api())
	r.await("the service goes", func() bool { return len(r.Registry.Services()) == 1 })
	r.await("its rows go", func() bool { return len(r.xds.Rows()) == 1 })
	r.expect(r.Registry.GetService(hostname), (*discovery.Service)(nil))
	r.expect(addresses(r.Registry.GetProxyServiceInstances(r.proxy("10.0.0.2"))), []string(nil))
	r.Offer(api(), web())
	r.await("it is back, with its endpoints", func() bool { return len(r.xds.Rows()) == 2 && r.endpoints("web") == 2 })
}

func testRunEnds(t *testing.T, r *rig) {
	r.run(web())
	if err := r.stop(); err != nil {
		t.Errorf("Run returned %v at the end of its context", err)
	}
}
