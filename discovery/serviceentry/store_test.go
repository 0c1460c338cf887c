package serviceentry_test

import (
	"context"
	"fmt"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	cachememory "github.com/portolan-mesh/portolan/cache/memory"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestWorkloadEntryMovesInAndOut walks one WorkloadEntry through its life.
func TestWorkloadEntryMovesInAndOut(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{Cluster: "c1"})
	b := entry(t, "b", `{hosts: [b.example], `+httpPort+`, resolution: STATIC, workloadSelector: {labels: {app: b}}}`)
	elsewhere := with(selecting(t, "a", "a.example"), func(c *config.Config) { c.Namespace = "other" })
	expect(t, m.apply(selecting(t, "a", "a.example"), b, elsewhere), []string{
		"services other/a.example 1", "services shop/a.example 1", "services shop/b.example 1", "wake service=3",
	})

	w := workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`)
	change := func(f func(*networking.WorkloadEntry)) *config.Config {
		w = with(w, func(c *config.Config) { f(c.Spec.(*networking.WorkloadEntry)) })
		return w
	}
	at := func(addresses ...string) []string {
		var out []string
		for _, a := range addresses {
			out = append(out, "http="+a+":80")
		}
		return out
	}
	for _, step := range []struct {
		name  string
		do    func() []string
		calls []string
		a, b  []string
	}{
		{
			"added: endpoints alone, and its proxy is told",
			func() []string { return m.apply(w) },
			[]string{"endpoints shop/a.example 1", "proxy c1/10.0.0.1"}, at("10.0.0.1"), nil,
		},
		{
			"relabelled: it moves, services stay",
			func() []string {
				return m.apply(change(func(w *networking.WorkloadEntry) { w.Labels = map[string]string{"app": "b"} }))
			},
			[]string{"endpoints shop/a.example 0", "endpoints shop/b.example 1"}, nil, at("10.0.0.1"),
		},
		{
			"re-addressed: the proxy at the new address is told",
			func() []string {
				return m.apply(change(func(w *networking.WorkloadEntry) { w.Address = "10.0.0.2" }))
			},
			[]string{"endpoints shop/b.example 1", "proxy c1/10.0.0.2"}, nil, at("10.0.0.2"),
		},
		{
			"annotated: nothing",
			func() []string {
				w = with(w, func(c *config.Config) { c.Annotations = map[string]string{"note": "x"} })
				return m.apply(w)
			},
			nil, nil, at("10.0.0.2"),
		},
		{
			"relabelled away from all",
			func() []string { return m.apply(change(func(w *networking.WorkloadEntry) { w.Labels = nil })) },
			[]string{"endpoints shop/b.example 0"}, nil, nil,
		},
		{
			"re-addressed while nobody selects it: nothing",
			func() []string {
				return m.apply(change(func(w *networking.WorkloadEntry) { w.Address = "10.0.0.3" }))
			},
			nil, nil, nil,
		},
		{
			"relabelled back",
			func() []string {
				return m.apply(change(func(w *networking.WorkloadEntry) { w.Labels = map[string]string{"app": "a"} }))
			},
			[]string{"endpoints shop/a.example 1"}, at("10.0.0.3"), nil,
		},
		{"deleted", func() []string { return m.remove(w) }, []string{"endpoints shop/a.example 0"}, nil, nil},
	} {
		expect(t, step.do(), step.calls)
		expect(t, m.endpoints("shop", "a.example"), step.a)
		expect(t, m.endpoints("shop", "b.example"), step.b)
		expect(t, m.endpoints("other", "a.example"), []string(nil))
		if t.Failed() {
			t.Fatalf("at step %q", step.name)
		}
	}
}

func TestNoServiceEntryInTheNamespaceMeansNoWork(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	w := workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`)
	expect(t, m.apply(w), []string(nil))
	expect(t, m.remove(w), []string(nil))
}

func TestADeletedOrRelabelledWorkloadIsNotSelectedLater(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	w, v := workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`), workload(t, "v", `{address: 10.0.0.2, labels: {app: a}}`)
	stays := workload(t, "x", `{address: 10.0.0.3}`)
	m.apply(w, v, stays)
	m.remove(w)
	m.apply(with(v, func(c *config.Config) { c.Spec.(*networking.WorkloadEntry).Labels = map[string]string{"app": "b"} }))
	m.apply(selecting(t, "a", "a.example"), entry(t, "all", `{hosts: [all.example], `+httpPort+`, resolution: STATIC, workloadSelector: {}}`))
	expect(t, m.endpoints("shop", "a.example"), []string(nil))
	expect(t, m.endpoints("shop", "all.example"), []string{"http=10.0.0.2:80", "http=10.0.0.3:80"})
}

func TestServiceEntryHandler(t *testing.T) {
	t.Parallel()
	spec := func(f func(*networking.ServiceEntry)) func(*config.Config) {
		return func(c *config.Config) { f(c.Spec.(*networking.ServiceEntry)) }
	}
	se := entry(t, "se", `{hosts: [a.example, b.example], `+httpPort+`, resolution: STATIC, endpoints: [{address: 10.0.0.1}]}`)
	for _, tc := range []struct {
		name   string
		change func(*config.Config)
		want   []string
	}{
		{"nothing changed", func(c *config.Config) { c.Annotations = map[string]string{"note": "x"} }, nil},
		{
			"endpoints alone", spec(func(s *networking.ServiceEntry) { s.Endpoints[0].Address = "10.0.0.2" }),
			[]string{"endpoints shop/a.example 1", "endpoints shop/b.example 1"},
		},
		{
			"a host added: the others are unchanged", spec(func(s *networking.ServiceEntry) { s.Hosts = append(s.Hosts, "c.example") }),
			[]string{"services shop/c.example 1", "endpoints (silent) shop/c.example 1", "wake service=1"},
		},
		{
			"a host deleted", spec(func(s *networking.ServiceEntry) { s.Hosts = s.Hosts[:1] }),
			[]string{"services shop/b.example 0", "wake service=1"},
		},
		{
			"services and endpoints", spec(func(s *networking.ServiceEntry) { s.Ports[0].Number = 81 }),
			[]string{
				"services shop/a.example 1", "endpoints (silent) shop/a.example 1",
				"services shop/b.example 1", "endpoints (silent) shop/b.example 1", "wake service=2",
			},
		},
		{
			"services alone", spec(func(s *networking.ServiceEntry) { s.ExportTo = []string{"."} }),
			[]string{"services shop/a.example 1", "services shop/b.example 1", "wake service=2"},
		},
		{
			"a changed selector updates all services", spec(func(s *networking.ServiceEntry) {
				s.Endpoints, s.WorkloadSelector = nil, &networking.WorkloadSelector{Labels: map[string]string{"app": "a"}}
			}),
			[]string{
				"services shop/a.example 1", "endpoints (silent) shop/a.example 0",
				"services shop/b.example 1", "endpoints (silent) shop/b.example 0", "wake service=2",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := start(t, serviceentry.Options{})
			expect(t, m.apply(se), []string{
				"services shop/a.example 1", "endpoints (silent) shop/a.example 1",
				"services shop/b.example 1", "endpoints (silent) shop/b.example 1", "wake service=2",
			})
			expect(t, m.apply(with(se, tc.change)), tc.want)
			expect(t, m.xds.Redundant(), []string(nil))
		})
	}
}

func TestDeletedServiceEntryTakesItsEndpointsAlong(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	se := entry(t, "se", `{hosts: [a.example], `+httpPort+`, resolution: STATIC, endpoints: [{address: 10.0.0.1}]}`)
	m.apply(se)
	expect(t, m.remove(se), []string{"services shop/a.example 0", "wake service=1"})
	expect(t, len(m.xds.Rows()), 0)
	expect(t, len(m.store.Services()), 0)
	expect(t, m.apply(se), []string{"services shop/a.example 1", "endpoints (silent) shop/a.example 1", "wake service=1"})
}

func TestOneOfTwoServiceEntriesOfAHostDeleted(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	x := entry(t, "first", `{hosts: [a.example], `+httpPort+`, resolution: STATIC, endpoints: [{address: 10.0.0.1}]}`)
	y := entry(t, "second", `{hosts: [a.example], `+httpPort+`, resolution: STATIC, endpoints: [{address: 10.0.0.2}]}`)
	m.apply(x, y)
	expect(t, m.remove(x), []string{"services shop/a.example 1", "endpoints (silent) shop/a.example 1", "wake service=1"})
	expect(t, m.endpoints("shop", "a.example"), []string{"http=10.0.0.2:80"})
}

func TestABatchCostsOneRebuild(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{Cluster: "c1"})
	m.apply(selecting(t, "se", "a.example"))
	var batch []*config.Config
	var want []string
	for i := range 1000 {
		address := fmt.Sprintf("10.0.%d.%d", i/250, i%250)
		batch = append(batch, workload(t, fmt.Sprintf("w%03d", i), `{address: `+address+`, labels: {app: a}}`))
		want = append(want, "proxy c1/"+address)
	}
	expect(t, m.apply(batch...), append([]string{"endpoints shop/a.example 1000"}, want...))
	expect(t, m.remove(batch...), []string{"endpoints shop/a.example 0"})
}

func TestHandlersAreTold(t *testing.T) {
	t.Parallel()
	var got []string
	m := start(t, serviceentry.Options{}, func(s *serviceentry.Store) {
		s.AppendWorkloadHandler(func(w *discovery.WorkloadInstance, event cache.Event) {
			got = append(got, fmt.Sprintf("workload %s %s %s", event, w.Name, w.Endpoint.Address))
		})
		s.AppendServiceHandler(func(old, curr *discovery.Service, event cache.Event) {
			if curr == nil {
				curr = old
			}
			got = append(got, fmt.Sprintf("service %s %s", event, curr.Hostname))
		})
	})
	se, w := selecting(t, "se", "a.example"), workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`)
	m.apply(se, w)
	m.apply(with(w, func(c *config.Config) { c.Spec.(*networking.WorkloadEntry).Address = "10.0.0.2" }),
		with(se, func(c *config.Config) { c.Spec.(*networking.ServiceEntry).Ports[0].Number = 81 }))
	m.remove(w, se)
	expect(t, got, []string{
		"workload add w 10.0.0.1", "service add a.example",
		"workload update w 10.0.0.2", "service update a.example",
		"workload delete w 10.0.0.2", "service delete a.example",
	})
}

func TestQueries(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{Cluster: "c1"})
	m.apply(selecting(t, "se", "a.example"), workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`))
	service := m.store.GetService("a.example")
	expect(t, len(m.store.InstancesByPort(service, 80, nil)), 1)
	proxy := &discovery.Proxy{Namespace: "shop", IPAddresses: []string{"10.0.0.1"}}
	expect(t, len(m.store.GetProxyServiceInstances(proxy)), 1)
	expect(t, m.store.GetProxyWorkloadLabels(proxy)["app"], "a")
	expect(t, m.store.Provider(), discovery.External)
	expect(t, m.store.Cluster(), "c1")
}

// TestOverAStore runs the registry as the server does: it writes objects to a store that a
// cache follows.
func TestOverAStore(t *testing.T) {
	t.Parallel()
	worker, xds := cache.NewWorker(), &discoverytest.Recorder{}
	configs := cachememory.New(memory.New(schema.Pilot(), memory.Options{}), cachememory.Options{Worker: worker})
	store := serviceentry.New(serviceentry.Options{XDS: xds, Worker: worker, Configs: configs})
	committed := make(chan struct{}, 1)
	worker.AtTaskEnd(func() { committed <- struct{}{} }) // where a server commits
	if store.HasSynced() {
		t.Error("synced before the cache runs")
	}
	run(t, worker.Run, configs.Run, store.Run)
	<-committed

	ops := []storage.Op{
		{Verb: storage.Create, Config: selecting(t, "se", "a.example")},
		{Verb: storage.Create, Config: workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`)},
	}
	if _, _, err := configs.Apply(context.Background(), ops); err != nil {
		t.Fatal(err)
	}
	<-committed
	expect(t, xds.Endpoints("shop", "a.example"), []string{"http=10.0.0.1:80"})
	if !store.HasSynced() {
		t.Error("not synced after the second task")
	}
	if err := configs.RegisterEventHandler(schema.ServiceEntry, nil); err == nil {
		t.Error("a handler was registered while the cache runs")
	}
}

func TestNewAfterTheCacheRunsPanics(t *testing.T) {
	t.Parallel()
	worker := cache.NewWorker()
	feed := cache.NewFeed(cache.FeedOptions{Worker: worker, Schemas: schema.Pilot()})
	if err := feed.Seal(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a store was made that would never be told of anything")
		}
	}()
	serviceentry.New(serviceentry.Options{XDS: &discoverytest.Recorder{}, Worker: worker, Configs: source{feed}})
}
