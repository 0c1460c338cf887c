package registration_test

import (
	"strings"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/discovery/registration"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
)

// annotate changes an annotation of the entry as a person would; without a value it takes it away.
func (m *mesh) annotate(annotation, value string) {
	m.Helper()
	entry := m.entry("web-10.0.0.1").Clone()
	if delete(entry.Annotations, annotation); value != "" {
		entry.Annotations[annotation] = value
	}
	m.put(entry)
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
			got := s.Standing()
			if want.Reason != "" && strings.Contains(got.Reason, want.Reason) {
				want.Reason = got.Reason
			}
			if got == want {
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
	if got := r.Join(&discovery.Proxy{ID: "c", Namespace: "shop", IPAddresses: []string{"10.0.0.3"}}, func() {}).Standing(); got != (node.Standing{}) {
		t.Errorf("a machine that asks for none is told %+v", got)
	}
}
