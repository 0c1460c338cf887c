package registration_test

import (
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

// probed gives a group a probe.
func probed(_ *config.Config, g *networking.WorkloadGroup) {
	g.Probe = &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_TcpSocket{TcpSocket: &networking.TCPHealthCheckConfig{Port: 80}}}
}

// TestTheHealthOfARegisteredMachine: the last report is written once, of the entry that the stream
// registered, and again of an entry that takes its place. A group with a probe has its entries wait
// for a report.
func TestTheHealthOfARegisteredMachine(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.put(group(probed))
	r, _ := m.server("one")
	p, other := proxy("a", "10.0.0.1"), proxy("b", "10.0.0.1")
	stream, refused := join(r, p), join(r, other)
	stream.Report(true, "")
	refused.Report(false, "of another machine")
	m.awaitReports("web-10.0.0.1 true ")
	if e := m.entry("web-10.0.0.1"); !health.Checked(e.Annotations) {
		t.Errorf("the entry is used without a report: %+v", e.Annotations)
	}
	stream.Report(true, "")
	stream.Report(false, "503")
	m.awaitReports("web-10.0.0.1 false 503")
	m.delete(m.entry("web-10.0.0.1").Key())
	m.awaitReports("web-10.0.0.1 false 503")

	m.away.Store(true)
	stream.Report(true, "")
	m.awaitState(r, p.ID, node.Waiting, "the store is away")
	m.away.Store(false)
	m.awaitReports("web-10.0.0.1 true ")
	m.awaitState(r, p.ID, node.Registered, "")
	m.counts("one", map[string]float64{"portolan_machine_health_reports_total": 4})
}

// TestAMachineThatReportsNothing: the group says so after a time, until the first report, and only
// of a group with a probe.
func TestAMachineThatReportsNothing(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.put(group(probed))
	r, _ := m.server("one")
	p := proxy("a", "10.0.0.1")
	stream := join(r, p)
	m.awaitState(r, p.ID, node.Registered, "")
	if got := r.Report(1); len(got) != 0 {
		t.Errorf("before a report is due the server reports %+v", got)
	}
	m.awaitState(r, p.ID, node.Registered, "its agent reports no health")
	if got := r.Report(1); len(got) != 1 || !got[0].Registered {
		t.Errorf("the server reports %+v", got)
	}
	stream.Report(false, "503")
	m.await("the server reports nothing", func() bool { return len(r.Report(1)) == 0 })
	join(r, proxy("b", "10.0.0.2")).Report(true, "")
	m.put(group())
	m.always("nothing to report", func() bool { return len(r.Report(1)) == 0 })
}

// TestTheHealthOfAStaticEntry: the report of a proxy without a group is of the entries at its
// address, in its namespace and network, whose account it has proved, and of no others.
func TestTheHealthOfAStaticEntry(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	for name, adjust := range map[string]func(*config.Config, *networking.WorkloadEntry){
		"static":    func(*config.Config, *networking.WorkloadEntry) {},
		"elsewhere": func(_ *config.Config, e *networking.WorkloadEntry) { e.Address = "10.0.0.2" },
		"network":   func(_ *config.Config, e *networking.WorkloadEntry) { e.Network = "vpc" },
		"account":   func(_ *config.Config, e *networking.WorkloadEntry) { e.ServiceAccount = "db" },
		"namespace": func(c *config.Config, _ *networking.WorkloadEntry) { c.Namespace = "other" },
		"registered": func(c *config.Config, _ *networking.WorkloadEntry) {
			c.Annotations = map[string]string{registration.NodeAnnotation: "x"}
		},
	} {
		spec := &networking.WorkloadEntry{Address: "10.0.0.1", ServiceAccount: "web"}
		c := &config.Config{Meta: config.Meta{GroupVersionKind: schema.WorkloadEntry, Namespace: "shop", Name: name}, Spec: spec}
		adjust(c, spec)
		m.put(c)
	}
	r, _ := m.server("one")
	p := proxy("a", "10.0.0.1")
	p.Group = ""
	stream := join(r, p)
	stream.Report(false, "503")
	m.awaitReports("static false 503")
	key := config.Key{Kind: schema.WorkloadEntry, Namespace: "shop", Name: "static"}
	m.delete(key)
	m.put(&config.Config{Meta: config.Meta{GroupVersionKind: key.Kind, Namespace: "shop", Name: "static", Annotations: map[string]string{health.ChecksAnnotation: "true"}}, Spec: &networking.WorkloadEntry{Address: "10.0.0.1", ServiceAccount: "web"}})
	m.awaitReports("static false 503")
	stream.Report(true, "")
	m.awaitReports("static true ")
	stream.Depart("stopping")
	m.awaitReports("static false stopping")
	stream.Leave()
}

// TestADepartureIsOfEntriesThatHeedIt: the end of a machine is told of the entries that wait for reports,
// and of no others: nobody would report them healthy again.
func TestADepartureIsOfEntriesThatHeedIt(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	for name, annotations := range map[string]map[string]string{"waits": {health.ChecksAnnotation: "true"}, "plain": nil} {
		m.put(&config.Config{
			Meta: config.Meta{GroupVersionKind: schema.WorkloadEntry, Namespace: "shop", Name: name, Annotations: annotations},
			Spec: &networking.WorkloadEntry{Address: "10.0.0.1", ServiceAccount: "web"},
		})
	}
	r, _ := m.server("one")
	p := proxy("a", "10.0.0.1")
	p.Group = ""
	stream := join(r, p)
	stream.Depart("stopping")
	m.awaitReports("waits false stopping")
	m.always("no report of the other", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.reports) == 0
	})
}

// TestAMachineThatDeparts: its entry goes at once, also if its stream ends with the message, and
// comes back with another stream only.
func TestAMachineThatDeparts(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.put(group())
	r, _ := m.server("one")
	p := proxy("a", "10.0.0.1")
	there := func() bool { return m.entry("web-10.0.0.1") != nil }
	stream := join(r, p)
	m.awaitState(r, p.ID, node.Registered, "")
	stream.Depart("stopping")
	m.await("gone while connected", func() bool { return !there() })
	m.awaitState(r, p.ID, node.Departed, "")
	stream.Report(true, "")
	m.always("no entry", func() bool { return !there() })
	again := join(r, p)
	m.awaitState(r, p.ID, node.Registered, "")
	stream.Leave()
	if !there() {
		t.Error("the end of the stream that departed took the entry of the next")
	}
	newer := join(r, p) // at once, so that the entry may be the lingering stream's still
	newer.Depart("stopping")
	newer.Leave()
	m.await("gone with the newer stream", func() bool { return !there() })
	again.Leave()
	records, err := m.store.Records(t.Context(), storage.Query{})
	if err != nil || len(records) == 0 || records[0].Origin.Message != "the machine has said that it leaves" {
		t.Errorf("the newest record is %+v, %v", records, err)
	}
	last := join(r, p)
	m.awaitState(r, p.ID, node.Registered, "")
	ended := time.Now()
	last.Leave()
	m.await("gone with its lease", func() bool { return !there() })
	if took := time.Since(ended); took < storage.MinLease/2 {
		t.Errorf("a stream that ended without a word took its entry along after %v", took)
	}
}

// TestAMachineThatFallsIll: that a healthy machine is unhealthy is written at once, whenever the
// last report was. All else is written once a second at most.
func TestAMachineThatFallsIll(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.put(group(probed))
	m.put(&config.Config{
		Meta: config.Meta{GroupVersionKind: schema.WorkloadEntry, Namespace: "shop", Name: "static"},
		Spec: &networking.WorkloadEntry{Address: "10.0.0.2", ServiceAccount: "web"},
	})
	r, _ := m.server("one")
	static := proxy("b", "10.0.0.2")
	static.Group = ""
	for entry, p := range map[string]*discovery.Proxy{"web-10.0.0.1": proxy("a", "10.0.0.1"), "static": static} {
		stream := join(r, p)
		stream.Report(true, "")
		m.awaitReports(entry + " true ")
		began := time.Now()
		stream.Report(false, "503")
		m.awaitReports(entry + " false 503")
		ill := time.Since(began)
		stream.Report(true, "")
		m.awaitReports(entry + " true ")
		if back := time.Since(began); ill >= back/2 {
			t.Errorf("%s: unhealthy is written after %v, and healthy again after %v", entry, ill, back)
		}
	}
}

// TestAMachineIsDrainedWithoutAProbe: reports do not matter to the entry of a group without a probe,
// until the machine says that it is not healthy.
func TestAMachineIsDrainedWithoutAProbe(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.put(group())
	r, _ := m.server("one")
	p := proxy("a", "10.0.0.1")
	stream := join(r, p)
	checked := func() bool { return m.entry("web-10.0.0.1").Annotations[health.ChecksAnnotation] == "true" }
	m.awaitState(r, p.ID, node.Registered, "")
	stream.Report(true, "")
	m.awaitReports("web-10.0.0.1 true ")
	if checked() {
		t.Error("without a probe the entry waits for reports")
	}
	stream.Report(false, "drained")
	m.awaitReports("web-10.0.0.1 false drained")
	m.await("the report matters", checked)
	stream.Report(true, "")
	m.awaitReports("web-10.0.0.1 true ")
}
