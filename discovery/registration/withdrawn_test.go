package registration_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/discovery/registration"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// annotate changes an annotation of the entry as a person would; without a value it takes it away.
func (m *mesh) annotate(annotation, value string) {
	m.Helper()
	for { // the registrar may write the entry in between
		entry := m.entry("web-10.0.0.1").Clone()
		if delete(entry.Annotations, annotation); value != "" {
			entry.Annotations[annotation] = value
		}
		_, _, err := m.store.Apply(m.Context(), []storage.Op{{Verb: storage.Put, Config: entry}})
		if err == nil {
			return
		}
		if !errors.Is(err, storage.ErrConflict) {
			m.Fatal(err)
		}
	}
}

// TestADrainedEntryStays: an entry that a person drains stays drained when the group is edited, its
// machine leaves and comes back, and its server ends. When the drain ends, it is under a lease again.
func TestADrainedEntryStays(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.put(group())
	one, stop := m.server("one")
	first := join(one, proxy("a", "10.0.0.1"))
	m.await("the entry", func() bool { return m.entry("web-10.0.0.1") != nil })
	uid := m.entry("web-10.0.0.1").UID
	drained := func() bool {
		entry := m.entry("web-10.0.0.1")
		return entry != nil && entry.UID == uid && entry.Annotations[health.DrainedAnnotation] == "a disk"
	}
	m.annotate(health.DrainedAnnotation, "a disk")
	m.put(group(func(c *config.Config, _ *networking.WorkloadGroup) {
		c.Annotations = map[string]string{"edited": "yes"}
	}))
	m.awaitState(one, proxy("a", "10.0.0.1").ID, node.Registered, "")
	m.always("it is drained while its machine is connected", drained)
	first.Depart("the agent ends")
	first.Leave()
	m.always("it is drained while its machine is away", drained)
	stop()
	two, _ := m.server("two")
	second := join(two, proxy("a", "10.0.0.1"))
	m.await("the other server has it", func() bool {
		return m.entry("web-10.0.0.1").Annotations[registration.ServerAnnotation] == "two"
	})
	m.always("it is drained with the other server", drained)
	m.annotate(health.DrainedAnnotation, "")
	m.always("it is drained no more, and is renewed", func() bool {
		e := m.entry("web-10.0.0.1")
		return e != nil && e.UID == uid && e.Annotations[health.DrainedAnnotation] == ""
	})
	second.Leave()
	m.await("it goes with its lease", func() bool { return m.entry("web-10.0.0.1") == nil })
}

// TestARemovedEntryIsNotRegistered: the machine of an entry that a person removes is refused by each
// server, also when it comes back, until it is let back.
func TestARemovedEntryIsNotRegistered(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.put(group())
	one, stop := m.server("one")
	id := proxy("a", "10.0.0.1").ID
	join(one, proxy("a", "10.0.0.1"))
	m.awaitState(one, id, node.Registered, "")
	m.annotate(health.RemovedAnnotation, "stolen")
	m.awaitState(one, id, node.Refused, "is removed: stolen")
	removed := func() bool {
		entry := m.entry("web-10.0.0.1")
		return entry != nil && entry.Annotations[health.RemovedAnnotation] == "stolen"
	}
	m.always("it is removed", removed)
	stop()
	m.always("it is removed while no server runs", removed)
	two, _ := m.server("two")
	join(two, proxy("a", "10.0.0.1"))
	m.awaitState(two, id, node.Refused, "is removed: stolen")
	m.counts("two", map[string]float64{"portolan_registrations_total": 0, "portolan_registered_proxies": 0})
	m.annotate(health.RemovedAnnotation, "")
	m.awaitState(two, id, node.Registered, "")
	m.always("it is there", func() bool { return m.entry("web-10.0.0.1") != nil })
}

// TestAMachineIsToldWhatBecameOfIt: each change of the registration is called out, and the standing is
// that which people see: also the drain, the removal, and what another machine has taken.
func TestAMachineIsToldWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	r, _ := m.server("one")
	calls := make(chan struct{}, 100)
	first := r.Join(proxy("a", "10.0.0.1"), func() { calls <- struct{}{} })
	const entry = "workloadentry/shop/web-10.0.0.1"
	await := func(s discovery.Registration, want node.Standing) {
		t.Helper()
		for {
			got, decided := s.Standing()
			if want.Reason != "" && strings.Contains(got.Reason, want.Reason) {
				want.Reason = got.Reason
			}
			if decided && got == want {
				return
			}
			select {
			case <-calls:
			case <-time.After(limit):
				t.Fatalf("it is told %+v, want %+v", got, want)
			}
		}
	}
	await(first, node.Standing{State: node.Waiting, Entry: entry, Reason: "the WorkloadGroup shop/web"})
	m.put(group())
	await(first, node.Standing{State: node.Registered, Entry: entry})
	m.annotate(health.DrainedAnnotation, "a disk")
	await(first, node.Standing{State: node.Registered, Entry: entry, Drained: "a disk"})
	m.annotate(health.RemovedAnnotation, "stolen")
	await(first, node.Standing{State: node.Refused, Entry: entry, Reason: "is removed: stolen", Drained: "a disk"})
	m.annotate(health.RemovedAnnotation, "")
	await(first, node.Standing{State: node.Registered, Entry: entry, Drained: "a disk"})
	second := r.Join(proxy("b", "10.0.0.1"), func() { calls <- struct{}{} })
	await(second, node.Standing{State: node.Refused, Entry: entry, Reason: "is registered by the proxy"})
}

// TestAMachineIsToldOfTheEntryThatPeopleWrote: a machine that asks for no registration is told which
// entry is at its address, in its network and of its account, when that is drained, and when it goes.
func TestAMachineIsToldOfTheEntryThatPeopleWrote(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	r, _ := m.server("one")
	calls := make(chan struct{}, 100)
	p := proxy("a", "10.0.0.1")
	p.Group = ""
	stream := r.Join(p, func() { calls <- struct{}{} })
	await := func(want node.Standing) {
		t.Helper()
		for {
			got, decided := stream.Standing()
			if decided && got == want {
				return
			}
			select {
			case <-calls:
			case <-time.After(limit):
				t.Fatalf("it is told %+v, %v, want %+v", got, decided, want)
			}
		}
	}
	written := func(name, ip string, annotations map[string]string) *config.Config {
		return &config.Config{
			Meta: config.Meta{GroupVersionKind: schema.WorkloadEntry, Namespace: "shop", Name: name, Annotations: annotations},
			Spec: &networking.WorkloadEntry{Address: ip, ServiceAccount: "web"},
		}
	}
	await(node.Standing{})
	m.put(written("other", "10.0.0.2", nil))
	m.put(written("b", "10.0.0.1", nil))
	await(node.Standing{State: node.Written, Entry: "workloadentry/shop/b"})
	m.put(written("b", "10.0.0.1", map[string]string{health.DrainedAnnotation: "a disk"}))
	await(node.Standing{State: node.Written, Entry: "workloadentry/shop/b", Drained: "a disk"})
	m.put(written("a", "10.0.0.1", nil))
	await(node.Standing{State: node.Written, Entry: "workloadentry/shop/b", Drained: "a disk", Reason: "beside workloadentry/shop/a"})
	m.put(written("b", "10.0.0.1", nil))
	await(node.Standing{State: node.Written, Entry: "workloadentry/shop/a", Reason: "beside workloadentry/shop/b"})
	m.delete(written("b", "", nil).Key())
	await(node.Standing{State: node.Written, Entry: "workloadentry/shop/a"})
	m.put(written("a", "10.0.0.1", map[string]string{health.RemovedAnnotation: "stolen"}))
	await(node.Standing{State: node.Refused, Entry: "workloadentry/shop/a", Reason: "workloadentry/shop/a is removed: stolen: portolan machine remove --end lets it back"})
	m.delete(written("a", "", nil).Key())
	await(node.Standing{})
	stream.Leave()
}
