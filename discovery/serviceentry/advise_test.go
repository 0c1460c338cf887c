package serviceentry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
)

// advice returns the advice of a fork in which these objects are written together, each behind
// the name of its object.
func (m *mesh) advice(objects ...*config.Config) []string {
	fork := m.would(objects...)
	var out []string
	for _, o := range objects {
		for _, a := range fork.Advise(o.Key()) {
			text := o.Name + ": " + a.Field + " " + a.Message
			if a.Remedy != "" {
				text += ": " + a.Remedy
			}
			out = append(out, text+" ("+a.Code+")")
		}
	}
	return out
}

// would returns a fork in which these objects are written; new ones are the youngest.
func (m *mesh) would(objects ...*config.Config) discovery.Advisor {
	from := m.source.Handled()
	all := from.Configs()
	for _, o := range objects {
		written, path := *o, o.Key().Path()
		written.CreationTimestamp = time.Now()
		if old := all.Value(path); old != nil {
			written.CreationTimestamp = old.CreationTimestamp
		}
		all = all.Set(path, &written)
	}
	return m.store.Fork().Apply(from, cache.NewSnapshot(from.Revision()+1, all), &discoverytest.Recorder{}).(discovery.Advisor)
}

// entryFor returns a ServiceEntry of a host, with more fields of its spec.
func entryFor(t tb, name, host, more string) *config.Config {
	return entry(t, name, `{hosts: [`+host+`], `+more+`}`)
}

func in(namespace string, c *config.Config) *config.Config {
	return with(c, func(c *config.Config) { c.Namespace = namespace })
}

const (
	http80 = `ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]`
	tcp80  = `ports: [{number: 80, name: tcp, protocol: TCP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]`
	tcp81  = `ports: [{number: 81, name: tcp, protocol: TCP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]`
	bare80 = `ports: [{number: 80, name: tcp, protocol: TCP}], resolution: NONE`
)

// TestAdviceOnChecksThatDiffer: a service can have only one health check.
func TestAdviceOnChecksThatDiffer(t *testing.T) {
	t.Parallel()
	checked := func(name, path string) *config.Config {
		return with(workload(t, name, "{address: 10.0.0.1, labels: {app: a}}"), func(c *config.Config) {
			c.Annotations = map[string]string{health.CheckPathAnnotation: path}
		})
	}
	selecting := entryFor(t, "a", "a.example", `ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: a}}`)
	m := converted(t, serviceentry.Options{}, checked("one", "/healthz"), workload(t, "plain", "{address: 10.0.0.2, labels: {app: a}}"))
	expect(t, len(m.advice(selecting, checked("two", "/healthz"))), 0)
	expect(t, m.advice(selecting, checked("two", "/ready")), []string{
		"a: spec.workloadSelector selects workloads one and two, whose health checks differ: proxies check those alone that ask for the check of one: " +
			"give all workloads of the service the same portolan.io/health-check-path and portolan.io/health-check-interval (PTL0128)",
	})
}

func TestAdvice(t *testing.T) {
	t.Parallel()
	const private, other = `exportTo: ["."], `, `addresses: [10.1.0.0/24], `
	for _, tc := range []struct {
		name            string
		stored, written []*config.Config
		want            []string
	}{
		{"nothing odd", []*config.Config{entryFor(t, "a", "a.example", http80)}, []*config.Config{entryFor(t, "b", "b.example", http80)}, nil},
		{"what is replaced does not count", []*config.Config{entryFor(t, "a", "a.example", http80)}, []*config.Config{entryFor(t, "a", "a.example", http80)}, nil},
		{
			"a host of another", []*config.Config{entryFor(t, "b", "b.example", http80)}, []*config.Config{entryFor(t, "a", "a.example, B.example", http80)},
			[]string{`a: spec.hosts[1] "b.example" is a host of serviceentry/shop/b too: their endpoints are put together, and the oldest says the rest (PTL0105)`},
		},
		{
			"a host of another namespace", []*config.Config{in("edge", entryFor(t, "b", "b.example", http80))}, []*config.Config{entryFor(t, "a", "b.example", http80)},
			[]string{`a: spec.hosts[0] "b.example" is a host of serviceentry/edge/b too: proxies that see both use that of their own namespace, else the oldest (PTL0105)`},
		},
		{"a host of another namespace that nobody else sees", []*config.Config{in("edge", entryFor(t, "b", "b.example", private+http80))}, []*config.Config{entryFor(t, "a", "b.example", private+http80)}, nil},
		{
			"a host of another that is written with it", nil, []*config.Config{entryFor(t, "a", "a.example", http80), entryFor(t, "b", "a.example", http80)},
			[]string{
				`a: spec.hosts[0] "a.example" is a host of serviceentry/shop/b too: their endpoints are put together, and the oldest says the rest (PTL0105)`,
				`b: spec.hosts[0] "a.example" is a host of serviceentry/shop/a too: their endpoints are put together, and the oldest says the rest (PTL0105)`,
			},
		},
		{
			"an address of another", []*config.Config{entryFor(t, "b", "b.example", `addresses: [10.1.0.7], `+tcp80)}, []*config.Config{entryFor(t, "a", "a.example", `addresses: [10.1.0.8, 10.1.0.7], `+tcp80)},
			[]string{`a: spec.addresses[1] 10.1.0.7 is an address of serviceentry/shop/b too, and both have port 80: all connections are the oldest's (PTL0106)`},
		},
		{
			"an address within a range of another", []*config.Config{entryFor(t, "b", "b.example", other+tcp80)}, []*config.Config{entryFor(t, "a", "a.example", `addresses: [10.1.0.7], `+tcp80)},
			[]string{`a: spec.addresses[0] 10.1.0.7 is an address of serviceentry/shop/b too, and both have port 80: all connections are the oldest's (PTL0106)`},
		},
		{
			"a range around an address of another", []*config.Config{entryFor(t, "b", "b.example", `addresses: [10.1.0.7], `+http80)}, []*config.Config{entryFor(t, "a", "a.example", other+http80)},
			[]string{`a: spec.addresses[0] 10.1.0.0/24 is an address of serviceentry/shop/b too, and both have port 80: only the host of a request tells them apart (PTL0106)`},
		},
		{
			"an address of another that is not HTTP", []*config.Config{entryFor(t, "b", "b.example", other+tcp80)}, []*config.Config{entryFor(t, "a", "a.example", `addresses: [10.1.0.7], `+http80)},
			[]string{`a: spec.addresses[0] 10.1.0.7 is an address of serviceentry/shop/b too, and both have port 80, where that one does not speak HTTP: it gets all that proxies capture on the way to the address: use another address or port, or one protocol (PTL0129)`},
		},
		{
			"an address of another that is HTTP", []*config.Config{entryFor(t, "b", "b.example", other+http80)}, []*config.Config{entryFor(t, "a", "a.example", `addresses: [10.1.0.7], `+tcp80)},
			[]string{`a: spec.addresses[0] 10.1.0.7 is an address of serviceentry/shop/b too, and both have port 80, where that one speaks HTTP: its requests come here, too (PTL0106)`},
		},
		{"an address of another on other ports", []*config.Config{entryFor(t, "b", "b.example", other+tcp81)}, []*config.Config{entryFor(t, "a", "a.example", other+tcp80)}, nil},
		{"a range beside", []*config.Config{entryFor(t, "b", "b.example", `addresses: [10.1.1.0/24, "fd00::/8"], `+tcp80)}, []*config.Config{entryFor(t, "a", "a.example", other+tcp80)}, nil},
		{
			"a port of another, and neither has an address", []*config.Config{entryFor(t, "b", "b.example", bare80)}, []*config.Config{entryFor(t, "a", "a.example", bare80)},
			[]string{`a: spec.ports 80 is a port of serviceentry/shop/b too, and neither has an address: all connections are the oldest's: set addresses, or other ports (PTL0107)`},
		},
		{"a port of another, and both get addresses", []*config.Config{entryFor(t, "b", "b.example", tcp80)}, []*config.Config{entryFor(t, "a", "a.example", tcp80)}, nil},
		{"a port of another, where workloads have the addresses of both", []*config.Config{workload(t, "w", "{address: 10.0.0.1, labels: {app: a}}"), entryFor(t, "b", "b.example", bare80+", workloadSelector: {labels: {app: a}}")},
			[]*config.Config{entryFor(t, "a", "a.example", bare80+", workloadSelector: {labels: {app: a}}")}, nil},
		{"a port of another that is HTTP", []*config.Config{entryFor(t, "b", "b.example", bare80)}, []*config.Config{entryFor(t, "a", "a.example", http80)}, nil},
		{
			"a selector that selects nothing", []*config.Config{workload(t, "w", `{address: 10.0.0.1, labels: {app: b}}`)}, []*config.Config{selecting(t, "a", "a.example")},
			[]string{`a: spec.workloadSelector selects no workload of namespace shop now: there is no endpoint until one has the labels app=a: apply a WorkloadEntry with these labels, or mend the selector (PTL0108)`},
		},
		{
			"a selector whose last workload goes", []*config.Config{workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`)},
			[]*config.Config{selecting(t, "a", "a.example"), workload(t, "w", `{address: 10.0.0.1, labels: {app: b}}`)},
			[]string{`a: spec.workloadSelector selects no workload of namespace shop now: there is no endpoint until one has the labels app=a: apply a WorkloadEntry with these labels, or mend the selector (PTL0108)`,
				`w: spec.labels are selected by no ServiceEntry of namespace shop: the workload is an endpoint of no service, and a proxy at its address does not have its labels: add a ServiceEntry, or a Service of a cluster, whose selector they match, or mend them (PTL0215)`},
		},
		{
			"a workload without labels", []*config.Config{selecting(t, "a", "a.example"), workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`)}, []*config.Config{workload(t, "x", `{address: 10.0.0.1}`)},
			[]string{`x: spec.labels are missing, so no ServiceEntry selects the workload: it is an endpoint of no service: give it the labels of a workloadSelector, or of the selector of a Service of a cluster (PTL0215)`},
		},
		{"a selector of what is there", []*config.Config{workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`)}, []*config.Config{selecting(t, "a", "a.example")}, nil},
		{"a selector of what is written with it", nil, []*config.Config{selecting(t, "a", "a.example"), workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`)}, nil},
		{
			"an endpoint port that no service port has", []*config.Config{selecting(t, "a", "a.example")}, []*config.Config{workload(t, "w", `{address: 10.0.0.1, labels: {app: a}, ports: {http: 80, other: 81}}`)},
			[]string{`w: spec.ports[other] is a port of no ServiceEntry that selects this workload: it has no effect (PTL0109)`},
		},
		{
			"a selected workload with a port that no service has", []*config.Config{workload(t, "w", `{address: 10.0.0.1, labels: {app: a}, ports: {other: 81}}`)}, []*config.Config{selecting(t, "a", "a.example")},
			[]string{`a: spec.workloadSelector selects workload w, whose port "other" no ServiceEntry that selects it has: it has no effect: mend the name in the workload, or add the port (PTL0109)`},
		},
		{
			"a workload with but some of the labels is not selected", []*config.Config{entryFor(t, "a", "a.example", `ports: [{number: 80, name: http}], resolution: STATIC, workloadSelector: {labels: {app: a, v: "1"}}`)},
			[]*config.Config{workload(t, "w", `{address: 10.0.0.1, labels: {app: a, w: "1"}, ports: {other: 81}}`), workload(t, "x", `{address: 10.0.0.1, labels: {v: "1"}, ports: {other: 81}}`)},
			[]string{
				`w: spec.labels are selected by no ServiceEntry of namespace shop: the workload is an endpoint of no service, and a proxy at its address does not have its labels: add a ServiceEntry, or a Service of a cluster, whose selector they match, or mend them (PTL0215)`,
				`x: spec.labels are selected by no ServiceEntry of namespace shop: the workload is an endpoint of no service, and a proxy at its address does not have its labels: add a ServiceEntry, or a Service of a cluster, whose selector they match, or mend them (PTL0215)`,
			},
		},
		{
			"a selector of several labels", []*config.Config{workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`), workload(t, "x", `{address: 10.0.0.1, labels: {v: "1"}}`)},
			[]*config.Config{entryFor(t, "a", "a.example", `ports: [{number: 80, name: http}], resolution: STATIC, workloadSelector: {labels: {app: a, v: "1"}}`)},
			[]string{`a: spec.workloadSelector selects no workload of namespace shop now: there is no endpoint until one has the labels app=a,v=1: apply a WorkloadEntry with these labels, or mend the selector (PTL0108)`},
		},
		{
			"an address that it has already", []*config.Config{entryFor(t, "a", "old.example", other+tcp80)}, []*config.Config{entryFor(t, "a", "a.example", other+tcp80)}, nil,
		},
		{"a workload that nobody selects may have any port", nil, []*config.Config{workload(t, "w", `{address: 10.0.0.1, labels: {app: a}, ports: {other: 81}}`)}, []string{
			`w: spec.labels are selected by no ServiceEntry of namespace shop: the workload is an endpoint of no service, and a proxy at its address does not have its labels: add a ServiceEntry, or a Service of a cluster, whose selector they match, or mend them (PTL0215)`,
		}},
		{
			"a port that another which selects the workload has", []*config.Config{
				selecting(t, "a", "a.example"), workload(t, "w", `{address: 10.0.0.1, labels: {app: a}, ports: {other: 81}}`),
			}, []*config.Config{entryFor(t, "b", "b.example", `ports: [{number: 81, name: other}], resolution: STATIC, workloadSelector: {labels: {app: a}}`)}, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := start(t, serviceentry.Options{})
			m.apply(tc.stored...)
			expect(t, m.advice(tc.written...), tc.want)
		})
	}
}

func TestAdviceCountsInstancesOfOtherRegistries(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	m.do(func() {
		m.store.WorkloadInstanceHandler(&discovery.WorkloadInstance{
			Name: "p", Namespace: "shop", Provider: discovery.Kubernetes,
			Endpoint: discovery.Endpoint{Address: "10.0.0.1", Labels: map[string]string{"app": "a"}},
		}, cache.EventAdd)
	})
	expect(t, m.advice(selecting(t, "a", "a.example")), []string(nil))
}

func TestAdviceOnWhatIsNotThereIsNone(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	m.apply(entryFor(t, "a", "a.example", http80), entryFor(t, "b", "a.example", http80))
	m.remove(entryFor(t, "b", "a.example", http80))
	fork := m.would()
	expect(t, len(fork.Advise(entryFor(t, "a", "a.example", http80).Key())), 0)
	expect(t, len(fork.Advise(entryFor(t, "b", "a.example", http80).Key())), 0)
}

// TestAdviceNeverDisturbsTheWorker asks for advice while objects come and go, for the race
// detector.
func TestAdviceNeverDisturbsTheWorker(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			for _, warning := range m.advice(selecting(t, "z", "a.example"), entryFor(t, "c", "c.example", `addresses: [10.1.0.1], `+tcp80)) {
				if !strings.Contains(warning, "(PTL01") {
					panic(warning)
				}
			}
		}
	}()
	w := workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`)
	for range 50 {
		m.apply(selecting(t, "a", "a.example"), w, entryFor(t, "b", "b.example", `addresses: [10.1.0.0/16], `+tcp80))
		m.remove(w)
	}
	<-done
}
