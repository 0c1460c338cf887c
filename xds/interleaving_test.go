package xds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
)

// event is one thing that happens to a replica. Events of one source happen in order;
// events of different sources may happen in any order.
type event struct {
	source string
	what   string
	do     func(*replica)
}

// sources draws random events; each method draws those of one source.
type sources struct{ t *rapid.T }

func (s sources) one(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(s.t, label)
}

func (s sources) removal() bool { return rapid.IntRange(0, 3).Draw(s.t, "remove") == 0 }

// configs draws a change of a ServiceEntry or WorkloadEntry, which is one revision.
func (s sources) configs() event {
	namespace, name := s.one("namespace", "shop", "edge"), s.one("name", "r", "s", "z")
	created := int64(name[0])
	var object *config.Config
	if s.one("kind", "ServiceEntry", "WorkloadEntry") == "ServiceEntry" {
		object = objectOf(s.t, "ServiceEntry", namespace+"/"+name, fmt.Sprintf(
			`{hosts: ['%s'], addresses: [%s], ports: [{number: %s, name: http, protocol: %s}], exportTo: [%s], %s}`,
			s.one("host", "a.example", "b.example", "*.example", "m.example"), s.one("address", "", "10.9.0.1", "10.9.0.0/24"),
			s.one("port", "80", "81"), s.one("protocol", "HTTP", "TCP", "GRPC"), s.one("exportTo", "'*'", "."),
			s.one("endpoints", "resolution: STATIC, workloadSelector: {labels: {app: a}}", "resolution: STATIC, workloadSelector: {}", "resolution: STATIC, workloadSelector: {}",
				"resolution: DNS, workloadSelector: {labels: {app: a, v: '1'}}", "resolution: STATIC, endpoints: [{address: 10.0.0.1}, {address: 10.0.0.2}]", "resolution: STATIC, endpoints: [{address: 10.0.0.1, ports: {http: 81}}]",
				"resolution: DNS, endpoints: [{address: one.example}]", "resolution: NONE", "resolution: NONE, workloadSelector: {}", "resolution: DYNAMIC_DNS", "resolution: DNS_ROUND_ROBIN, workloadSelector: {labels: {v: '1'}}")), created)
	} else {
		object = objectOf(s.t, "WorkloadEntry", namespace+"/"+name, fmt.Sprintf(
			`{address: %s, labels: {app: %s, v: '%s'}, serviceAccount: '%s', locality: '%s'}`,
			s.one("ip", "10.0.0.1", "10.0.0.2", "vm.example"), s.one("app", "a", "b"), s.one("v", "1", "2"), s.one("account", "", "web"), s.one("locality", "", "eu/a")), created)
		if rapid.Bool().Draw(s.t, "checked") {
			checked(object)
		}
	}
	remove := s.removal()
	return event{"config", fmt.Sprint(object.Key(), remove, object.Spec), func(r *replica) {
		if remove {
			r.remove(object)
		} else {
			r.set(object)
		}
		r.commit()
	}}
}

func (s sources) health() event {
	namespace, name := s.one("namespace", "shop", "edge"), s.one("name", "r", "s", "z")
	healthy, forget := rapid.Bool().Draw(s.t, "healthy"), s.removal()
	return event{"health", fmt.Sprint(namespace, name, healthy, forget), func(r *replica) {
		r.worker.Post(new(int), func() {
			if forget {
				r.entries.ForgetHealth(namespace, name)
			} else {
				r.entries.SetHealth(namespace, name, healthy)
			}
		})
	}}
}

func (s sources) pods() event {
	name := s.one("pod", "p", "q", "u")
	w := pod(name, s.one("ip", "10.0.0.1", "10.0.0.3"), map[string]string{"app": s.one("app", "a", "b"), "v": s.one("v", "1", "2")})
	remove := s.removal()
	return event{"pods " + name, fmt.Sprint(name, w.Endpoint.Address, w.Endpoint.Labels, remove), func(r *replica) {
		if remove {
			r.pods.RemoveWorkload("shop", name)
		} else {
			r.pods.SetWorkload(w)
		}
	}}
}

// memory changes services of hosts that ServiceEntries have too.
func (s sources) memory() event {
	hostname, namespace := host.Name(s.one("host", "a.example", "m.example")), s.one("namespace", "shop", "edge")
	service := &discovery.Service{
		Hostname: hostname, Address: discovery.UnspecifiedIP,
		Ports:      []discovery.Port{{Name: "http", Number: rapid.IntRange(80, 81).Draw(s.t, "number"), Protocol: discovery.HTTP}},
		Attributes: discovery.Attributes{Name: "m", Namespace: namespace},
	}
	endpoint := &discovery.Endpoint{Address: s.one("ip", "10.0.0.1", "10.0.0.4"), Port: 80, ServicePortName: "http", Weight: 1, Namespace: namespace}
	switch do := s.one("do", "add", "endpoints", "remove"); do {
	case "add":
		return event{"memory", fmt.Sprint(do, hostname, namespace), func(r *replica) { r.memory.AddService(service) }}
	case "endpoints":
		return event{"memory", fmt.Sprint(do, hostname, namespace), func(r *replica) { r.memory.SetEndpoints(hostname, namespace, endpoint) }}
	default:
		return event{"memory", fmt.Sprint(do, hostname, namespace), func(r *replica) { r.memory.RemoveService(hostname, namespace) }}
	}
}

// shuffled draws an order of events that keeps the order within each source.
func shuffled(t *rapid.T, events []event) []event {
	bySource := map[string][]event{}
	for _, e := range events {
		bySource[e.source] = append(bySource[e.source], e)
	}
	var order []string
	for _, e := range events {
		order = append(order, e.source)
	}
	var out []event
	for _, source := range rapid.Permutation(order).Draw(t, "order") {
		out = append(out, bySource[source][0])
		bySource[source] = bySource[source][1:]
	}
	return out
}

// run makes events happen, some of them before the last one was handled, with some pushes
// in between.
func (r *replica) run(t *rapid.T, events []event) {
	for _, e := range events {
		e.do(r)
		switch rapid.IntRange(0, 2).Draw(t, "pause") {
		case 0:
			r.settle()
		case 1:
			r.push()
		}
	}
	r.push()
}

// TestAnyOrderOfEventsEndsInTheSameWorld: the events of several registries may come in any
// order, with any number of pushes in between. The rows are the same, and all resources are
// equal byte by byte.
func TestAnyOrderOfEventsEndsInTheSameWorld(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := sources{t}
		var events []event
		for range rapid.IntRange(10, 40).Draw(t, "events") {
			draw := map[string]func() event{"config": s.configs, "health": s.health, "pods": s.pods, "memory": s.memory}
			events = append(events, draw[s.one("source", "config", "config", "health", "pods", "pods", "memory")]())
		}
		one := newReplica(t, serviceentry.Switches{})
		one.run(t, events)
		other := newReplica(t, serviceentry.Switches{})
		other.run(t, shuffled(t, events))
		late := newReplica(t, serviceentry.Switches{}) // sees only the last configuration
		late.configs = one.configs
		late.commit()
		late.run(t, slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.source == "config" }))
		for name, r := range map[string]*replica{"another order": other, "the last configuration": late} {
			if diff := cmp.Diff(one.rows(), r.rows()); diff != "" {
				t.Fatalf("%s: rows (-one +other)\n%s\n%s", name, diff, written(events))
			}
			if diff := cmp.Diff(one.versions(), r.versions()); diff != "" {
				t.Fatalf("%s: resources (-one +other)\n%s\n%s", name, diff, written(events))
			}
		}
	})
}

func written(events []event) string {
	var lines []string
	for _, e := range events {
		lines = append(lines, e.source+": "+e.what)
	}
	return strings.Join(lines, "\n")
}
