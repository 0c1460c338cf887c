package serviceentry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// reportHealth publishes a revision with a health report, and returns the calls of the updater.
func (m *mesh) reportHealth(name, uid string, healthy bool) []string {
	r := &health.Report{Namespace: "shop", Name: name, UID: uid, Healthy: healthy}
	m.health = m.health.Set(r.Path(), r)
	m.publish(m.configs)
	return m.xds.Take()
}

// checked returns a WorkloadEntry with HealthChecksAnnotation.
func checked(t tb, name, uid, address string) *config.Config {
	t.Helper()
	w := object(t, schema.WorkloadEntry, name, 2, "spec: {address: "+address+", labels: {app: a}}")
	w.UID = uid
	w.Annotations = map[string]string{serviceentry.HealthChecksAnnotation: "true"}
	return w
}

func selectingA(t tb) *config.Config {
	t.Helper()
	return object(t, schema.ServiceEntry, "a", 1,
		"spec: {hosts: [a.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: a}}}")
}

func (m *mesh) addresses() []string {
	out := []string{}
	for _, e := range discovery.InUse(m.row("shop", "a.example.com").Endpoints) {
		out = append(out, e.Address)
	}
	return out
}

func TestTheStoredHealthDecidesMembership(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	m.apply(selectingA(t), checked(t, "w", "u1", "10.0.0.1"), checked(t, "x", "u2", "10.0.0.2"))
	want := func(when string, addresses ...string) {
		t.Helper()
		if d := cmp.Diff(append([]string{}, addresses...), m.addresses()); d != "" {
			t.Errorf("%s: %s", when, d)
		}
	}
	want("before the first report")
	m.reportHealth("w", "u1", true)
	want("after one is healthy", "10.0.0.1")
	m.reportHealth("x", "u2", true)
	want("after both are", "10.0.0.1", "10.0.0.2")
	if told := m.reportHealth("w", "u1", false); len(told) != 1 {
		t.Errorf("a change of health tells more than its endpoints: %q", told)
	}
	want("after one failed", "10.0.0.2")
	if told := m.reportHealth("w", "u1", false); len(told) != 0 {
		t.Errorf("the same again: %q", told)
	}
	m.reportHealth("w", "u1", true)
	want("after it recovered", "10.0.0.1", "10.0.0.2")
	m.health = m.health.Delete(health.Path("shop", "w"))
	m.publish(m.configs)
	want("after its health is forgotten", "10.0.0.2")
}

func TestTheHealthOfAnotherIncarnationDoesNotCount(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	m.apply(selectingA(t), checked(t, "w", "u1", "10.0.0.1"))
	m.reportHealth("w", "u1", true)
	m.apply(checked(t, "w", "u2", "10.0.0.1"))
	if got := m.addresses(); len(got) != 0 {
		t.Errorf("made anew: %q", got)
	}
	m.reportHealth("w", "u2", true)
	if got := m.addresses(); len(got) != 1 {
		t.Errorf("told anew: %q", got)
	}
}

func TestHealthThatIsNotAskedForDoesNotCount(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	w := checked(t, "w", "u1", "10.0.0.1")
	w.Annotations = nil
	m.apply(selectingA(t), w)
	if told := m.reportHealth("w", "u1", false); len(told) != 0 || len(m.addresses()) != 1 {
		t.Errorf("%q, %q", told, m.addresses())
	}
}

// TestAWithdrawnWorkloadIsNoEndpoint: whatever its health, and whether that matters. Its own proxy
// keeps its labels, by which policies select it, and its ports.
func TestAWithdrawnWorkloadIsNoEndpoint(t *testing.T) {
	t.Parallel()
	for _, annotation := range []string{health.DrainedAnnotation, health.RemovedAnnotation} {
		m := start(t, serviceentry.Options{})
		static := object(t, schema.WorkloadEntry, "w", 2, "spec: {address: 10.0.0.1, labels: {app: a}}")
		m.apply(selectingA(t), static, checked(t, "x", "u2", "10.0.0.2"))
		m.reportHealth("x", "u2", true)
		for name, with := range map[string]map[string]string{"w": {}, "x": {serviceentry.HealthChecksAnnotation: "true"}} {
			before := object(t, schema.WorkloadEntry, name, 2, "spec: {address: "+map[string]string{"w": "10.0.0.1", "x": "10.0.0.2"}[name]+", labels: {app: a}}")
			before.UID, before.Annotations = map[string]string{"w": static.UID, "x": "u2"}[name], with
			withdrawn := before.Clone()
			if withdrawn.Annotations == nil {
				withdrawn.Annotations = map[string]string{}
			}
			withdrawn.Annotations[annotation] = "a disk"
			m.apply(withdrawn)
			if got := m.addresses(); len(got) != 1 || got[0] == before.Spec.(*networking.WorkloadEntry).GetAddress() {
				t.Errorf("%s of %s: endpoints are %v", annotation, name, got)
			}
			own := &discovery.Proxy{Type: discovery.Sidecar, Namespace: "shop", IPAddresses: []string{before.Spec.(*networking.WorkloadEntry).GetAddress()}}
			if labels, ports := m.store.GetProxyWorkloadLabels(own), m.store.GetProxyServiceInstances(own); labels["app"] != "a" || len(ports) != 1 {
				t.Errorf("%s of %s: its own proxy has the labels %v, and %d ports", annotation, name, labels, len(ports))
			}
			m.apply(before)
			if got := m.addresses(); len(got) != 2 {
				t.Errorf("%s of %s is over: endpoints are %v", annotation, name, got)
			}
		}
	}
}
