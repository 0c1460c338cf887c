package registration_test

import (
	"testing"

	networking "istio.io/api/networking/v1alpha3"

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
	first := one.Join(proxy("a", "10.0.0.1"))
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
	m.awaitState(one, proxy("a", "10.0.0.1").ID, registration.Registered, "")
	m.always("it is drained while its machine is connected", drained)
	first.Depart("the agent ends")
	first.Leave()
	m.always("it is drained while its machine is away", drained)
	stop()
	two, _ := m.server("two")
	second := two.Join(proxy("a", "10.0.0.1"))
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
	node := proxy("a", "10.0.0.1").ID
	one.Join(proxy("a", "10.0.0.1"))
	m.awaitState(one, node, registration.Registered, "")
	m.annotate(health.RemovedAnnotation, "stolen")
	m.awaitState(one, node, registration.Refused, "is removed: stolen")
	removed := func() bool {
		entry := m.entry("web-10.0.0.1")
		return entry != nil && entry.Annotations[health.RemovedAnnotation] == "stolen"
	}
	m.always("it is removed", removed)
	stop()
	m.always("it is removed while no server runs", removed)
	two, _ := m.server("two")
	two.Join(proxy("a", "10.0.0.1"))
	m.awaitState(two, node, registration.Refused, "is removed: stolen")
	m.counts("two", map[string]float64{"portolan_registrations_total": 0, "portolan_registered_proxies": 0})
	m.annotate(health.RemovedAnnotation, "")
	m.awaitState(two, node, registration.Registered, "")
	m.always("it is there", func() bool { return m.entry("web-10.0.0.1") != nil })
}
