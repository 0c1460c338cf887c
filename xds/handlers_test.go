package xds_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
)

// These tests check what the handlers of registries promise. After a change the push is of
// the expected kind, full or endpoints only. It names exactly the expected keys, and
// ProxyUpdate is called for exactly the expected proxies. What a registry hands over is
// tested in its own package.

// rule is one promise: what there is, what happens, what is pushed.
type rule struct {
	name    string
	before  []*config.Config
	do      func(*replica)
	full    bool
	keys    []string
	proxies []string
}

func (r rule) check(t *testing.T) {
	t.Run(r.name, func(t *testing.T) {
		t.Parallel()
		m := newReplica(t, serviceentry.Switches{})
		m.set(r.before...)
		m.commit()
		m.push()
		r.do(m)
		request, proxies := m.push()
		if request.Full != r.full {
			t.Errorf("full is %t", request.Full)
		}
		if diff := cmp.Diff(r.keys, keys(request)); diff != "" {
			t.Errorf("keys (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff(r.proxies, proxies); diff != "" {
			t.Errorf("proxies (-want +got)\n%s", diff)
		}
	})
}

// changes applies objects in one revision, and removes deletes them in one.
func changes(objects ...*config.Config) func(*replica) {
	return func(r *replica) {
		r.set(objects...)
		r.commit()
	}
}

func removes(objects ...*config.Config) func(*replica) {
	return func(r *replica) {
		r.remove(objects...)
		r.commit()
	}
}

const web = `ports: [{number: 80, name: http, protocol: HTTP}]`

func se(t tb, name, spec string) *config.Config { return objectOf(t, "ServiceEntry", name, spec, 1) }
func we(t tb, name, spec string) *config.Config { return objectOf(t, "WorkloadEntry", name, spec, 1) }

// selects is a ServiceEntry of host NAME.example that selects app=APP.
func selects(t tb, name, app, more string) *config.Config {
	return se(t, "shop/"+name, `{hosts: [`+name+`.example], `+web+`, workloadSelector: {labels: {app: `+app+`}}, `+more+`}`)
}

// checked has a WorkloadEntry ask for health checks.
func checked(c *config.Config) *config.Config {
	c.Annotations = map[string]string{serviceentry.HealthChecksAnnotation: "true"}
	return c
}

func TestConfigHandler(t *testing.T) {
	t.Parallel()
	dr := objectOf(t, "DestinationRule", "shop/a", `{host: a.example}`, 1)
	for _, r := range []rule{
		{name: "full push naming exactly the changed key", do: changes(dr), full: true, keys: []string{"destinationrule/shop/a"}},
		{name: "a deleted object is named too", before: []*config.Config{dr}, do: removes(dr), full: true, keys: []string{"destinationrule/shop/a"}},
		{name: "a WorkloadEntry that nobody selects pushes nothing", do: changes(we(t, "shop/w", `{address: 10.0.0.1}`))},
		{name: "a WorkloadGroup pushes nothing", do: changes(objectOf(t, "WorkloadGroup", "shop/g", `{template: {serviceAccount: web}}`, 1))},
	} {
		r.check(t)
	}
}

func TestServiceHandler(t *testing.T) {
	t.Parallel()
	service := func(port int) *discovery.Service {
		return &discovery.Service{
			Hostname: "m.example", Address: discovery.UnspecifiedIP, Ports: []discovery.Port{{Name: "http", Number: port, Protocol: discovery.HTTP}},
			Attributes: discovery.Attributes{Name: "m", Namespace: "shop"},
		}
	}
	for _, r := range []rule{
		{
			name: "full push with the key of host and namespace",
			do:   func(r *replica) { r.memory.AddService(service(80)) }, full: true, keys: []string{"serviceentry/shop/m.example"},
		},
		{
			name: "endpoints of another registry's service are endpoints only",
			do: func(r *replica) {
				r.memory.AddService(service(80))
				r.push()
				r.memory.SetEndpoints("m.example", "shop", &discovery.Endpoint{Address: "10.0.0.1", Port: 80, ServicePortName: "http", Weight: 1})
			}, keys: []string{"serviceentry/shop/m.example"},
		},
	} {
		r.check(t)
	}
}

func TestWorkloadEntryHandler(t *testing.T) {
	t.Parallel()
	a, b := selects(t, "a", "a", `resolution: STATIC`), selects(t, "b", "b", `resolution: STATIC`)
	dns := selects(t, "dns", "a", `resolution: DNS`)
	w, relabelled := we(t, "shop/w", `{address: 10.0.0.1, labels: {app: a}}`), we(t, "shop/w", `{address: 10.0.0.1, labels: {app: b}}`)
	weighed := we(t, "shop/w", `{address: 10.0.0.1, labels: {app: a}, weight: 2}`)
	account := we(t, "shop/w", `{address: 10.0.0.1, labels: {app: a}, serviceAccount: web}`)
	health := func(healthy bool) func(*replica) {
		return func(r *replica) { r.do(func() { r.entries.SetHealth("shop", "w", healthy) }) }
	}
	sick := checked(w.Clone())
	keyA, keyB := "serviceentry/shop/a.example", "serviceentry/shop/b.example"
	for _, r := range []rule{
		{name: "an add is endpoints only, and its proxy is told", before: []*config.Config{a}, do: changes(w), keys: []string{keyA}, proxies: []string{"10.0.0.1"}},
		{name: "an update is endpoints only, and no proxy is told", before: []*config.Config{a, w}, do: changes(weighed), keys: []string{keyA}},
		{name: "new labels match another ServiceEntry", before: []*config.Config{a, b, w}, do: changes(relabelled), keys: []string{keyA, keyB}},
		{name: "only the old labels matched", before: []*config.Config{a, w}, do: changes(relabelled), keys: []string{keyA}},
		{name: "a delete is endpoints only", before: []*config.Config{a, w}, do: removes(w), keys: []string{keyA}},
		{name: "a selected DNS ServiceEntry is a full push naming its services", before: []*config.Config{dns}, do: changes(w), full: true, keys: []string{"serviceentry/shop/dns.example"}, proxies: []string{"10.0.0.1"}},
		{name: "a changed set of accounts is a full push", before: []*config.Config{a, w}, do: changes(account), full: true, keys: []string{keyA}},
		{name: "no ServiceEntries in the namespace, no work", before: []*config.Config{se(t, "edge/a", `{hosts: [a.example], `+web+`, resolution: STATIC, workloadSelector: {labels: {app: a}}}`)}, do: changes(w)},
		{name: "health is not known: its own proxy is told", before: []*config.Config{a}, do: changes(sick), keys: []string{keyA}, proxies: []string{"10.0.0.1"}},
		{name: "becoming healthy is endpoints only", before: []*config.Config{a, sick}, do: health(true), keys: []string{keyA}},
		{
			name: "becoming unhealthy is endpoints only", before: []*config.Config{a, sick}, keys: []string{keyA},
			do: func(r *replica) {
				health(true)(r)
				r.push()
				health(false)(r)
			},
		},
		{name: "health does not matter where no checks are asked for", before: []*config.Config{a, w}, do: health(false)},
	} {
		r.check(t)
	}
}

func TestServiceEntryHandler(t *testing.T) {
	t.Parallel()
	spec := func(hosts, port, more string) *config.Config {
		return se(t, "shop/s", `{hosts: [`+hosts+`], ports: [{number: `+port+`, name: http, protocol: HTTP}], `+more+`}`)
	}
	const static, static2 = `resolution: STATIC, endpoints: [{address: 10.0.0.1}]`, `resolution: STATIC, endpoints: [{address: 10.0.0.2}]`
	const dns, dns2 = `resolution: DNS, endpoints: [{address: one.example}]`, `resolution: DNS, endpoints: [{address: two.example}]`
	both := []string{"serviceentry/shop/a.example", "serviceentry/shop/b.example"}
	before := []*config.Config{spec("a.example, b.example", "80", static)}
	w := we(t, "shop/w", `{address: 10.0.0.7, labels: {app: a}}`)
	for _, r := range []rule{
		{name: "an added service", do: changes(before...), full: true, keys: both},
		{name: "a deleted service takes its endpoints along", before: before, do: removes(before...), full: true, keys: both},
		{name: "an updated service", before: before, do: changes(spec("a.example, b.example", "81", static)), full: true, keys: both},
		{name: "an unchanged service is not named", before: before, do: changes(spec("a.example, c.example", "80", static)), full: true, keys: []string{both[1], "serviceentry/shop/c.example"}},
		{name: "endpoints alone are endpoints only", before: before, do: changes(spec("a.example, b.example", "80", static2)), keys: both},
		{name: "DNS services with changed endpoints join the full push", before: []*config.Config{spec("a.example", "80", dns)}, do: changes(spec("a.example", "80", dns2)), full: true, keys: both[:1]},
		{
			name: "a changed selector updates all old and new services", before: []*config.Config{w, spec("a.example, b.example", "80", `resolution: STATIC, workloadSelector: {labels: {app: z}}`)},
			do: changes(spec("b.example, c.example", "80", `resolution: STATIC, workloadSelector: {labels: {app: a}}`)), full: true, keys: append(both, "serviceentry/shop/c.example"),
		},
		{name: "an object that says the same pushes nothing", before: before, do: changes(before[0].Clone())},
	} {
		r.check(t)
	}
}

// pod is a workload instance of another registry.
func pod(name, ip string, labels map[string]string) *discovery.WorkloadInstance {
	return &discovery.WorkloadInstance{Name: name, Namespace: "shop", Endpoint: discovery.Endpoint{
		Address: ip, Weight: 1, Labels: maps.Clone(labels), TLSMode: discovery.TLSModeDisabled, Namespace: "shop", WorkloadName: name,
	}}
}

func TestWorkloadInstanceHandler(t *testing.T) {
	t.Parallel()
	app := map[string]string{"app": "a"}
	a := selects(t, "a", "a", `resolution: STATIC`)
	key := []string{"serviceentry/shop/a.example"}
	had := func(then func(*replica)) func(*replica) {
		return func(r *replica) {
			r.pods.SetWorkload(pod("p", "10.0.0.1", app))
			r.push()
			then(r)
		}
	}
	for _, r := range []rule{
		{name: "an instance is endpoints only", before: []*config.Config{a}, do: had(func(r *replica) { r.pods.SetWorkload(pod("q", "10.0.0.2", app)) }), keys: key},
		{name: "a changed address is endpoints only", before: []*config.Config{a}, do: had(func(r *replica) { r.pods.SetWorkload(pod("p", "10.0.0.2", app)) }), keys: key},
		{name: "a delete is endpoints only", before: []*config.Config{a}, do: had(func(r *replica) { r.pods.RemoveWorkload("shop", "p") }), keys: key},
		{name: "a repeated event does nothing", before: []*config.Config{a}, do: had(func(r *replica) {
			r.do(func() {
				w := pod("p", "10.0.0.1", app)
				w.Provider, w.Endpoint.Locality.Cluster = discovery.Memory, "k1"
				r.entries.WorkloadInstanceHandler(w, cache.EventUpdate)
			})
		})},
		{name: "a repeated delete does nothing", before: []*config.Config{a}, do: had(func(r *replica) {
			r.pods.RemoveWorkload("shop", "p")
			r.push()
			r.do(func() {
				w := pod("p", "10.0.0.1", app)
				w.Provider, w.Endpoint.Locality.Cluster = discovery.Memory, "k1"
				r.entries.WorkloadInstanceHandler(w, cache.EventDelete)
			})
		})},
		{name: "selectors of other namespaces do not count", before: []*config.Config{se(t, "edge/a", `{hosts: [a.example], `+web+`, resolution: STATIC, workloadSelector: {labels: {app: a}}}`)}, do: had(func(*replica) {})},
		{name: "a second instance at one address does nothing", before: []*config.Config{a}, do: had(func(r *replica) { r.pods.SetWorkload(pod("q", "10.0.0.1", app)) })},
	} {
		r.check(t)
	}
}
