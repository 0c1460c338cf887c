package registration_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/testing/protocmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/discovery/registration"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = time.Minute

// mesh is a store with the registrars of some servers.
type mesh struct {
	*testing.T
	store *memory.Store
	away  atomic.Bool // whether the store answers nothing
	// patience is that of servers that are started from here on.
	patience time.Duration
	// others is what they believe of the proxies of others.
	others func() int

	mu      sync.Mutex
	reports []string // what was written of the health of entries

	metrics map[string]*prometheus.Registry // by server
}

// SetHealth implements storage.HealthKeeper as the store of etcd does, without times.
func (m *mesh) SetHealth(ctx context.Context, update storage.HealthUpdate) (storage.HealthResult, error) {
	if m.away.Load() {
		return storage.HealthResult{}, errAway
	}
	object, err := m.store.Get(ctx, update.Key.Kind, update.Key.Name, update.Key.Namespace)
	if err != nil || object.UID != update.UID {
		return storage.HealthResult{}, storage.ErrNotFound
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reports = append(m.reports, fmt.Sprintf("%s %v %s", update.Key.Name, update.Report.Healthy, update.Report.Message))
	return storage.HealthResult{}, nil
}

// awaitReports waits until exactly these reports were written since the last call.
func (m *mesh) awaitReports(want ...string) {
	m.Helper()
	var got []string
	m.await(fmt.Sprintf("reports %q", want), func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		got = slices.Clone(m.reports)
		return len(got) >= len(want)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(got, want) {
		m.Errorf("reports are %q, want %q", got, want)
	}
	m.reports = nil
}

func newMesh(t *testing.T) *mesh {
	return &mesh{T: t, store: memory.New(schema.Pilot(), memory.Options{}), metrics: map[string]*prometheus.Registry{}}
}

// leaser is the store as a Registrar has it.
type leaser struct {
	*memory.Store
	m *mesh
}

var errAway = fmt.Errorf("%w: the store is away", storage.ErrUnavailable)

func (l leaser) Apply(ctx context.Context, ops []storage.Op) (string, []storage.Result, error) {
	if l.m.away.Load() {
		return "", nil, errAway
	}
	return l.Store.Apply(ctx, ops)
}

func (l leaser) Renew(ctx context.Context, lease storage.LeaseID) error {
	if l.m.away.Load() {
		return errAway
	}
	return l.Store.Renew(ctx, lease)
}

// TestLabelsBeforeTheEntry: who may be registered has the labels of the entry that is to come.
func TestLabelsBeforeTheEntry(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	r, _ := m.server("one")
	p := proxy("a", "10.0.0.1")
	if got := r.Labels(p); got != nil {
		t.Errorf("without the group: %v", got)
	}
	m.put(group())
	want, _ := registration.EntryOf(group(), p)
	if got := r.Labels(p); len(got) == 0 || !maps.Equal(got, want.Labels) {
		t.Errorf("of the group: %v, want %v", got, want.Labels)
	}
	stranger, gateway := proxy("a", "10.0.0.1"), proxy("a", "10.0.0.1")
	stranger.Identity, gateway.Type = "spiffe://cluster.local/ns/shop/sa/other", discovery.Router
	for name, p := range map[string]*discovery.Proxy{"another account": stranger, "a gateway": gateway, "no group": {ID: "c", Namespace: "shop", IPAddresses: []string{"10.0.0.3"}}} {
		if got := r.Labels(p); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// join opens a stream whose machine does not listen to what becomes of it.
func join(r *registration.Registrar, p *discovery.Proxy) discovery.Registration {
	return r.Join(p, func() {})
}

// server runs the Registrar of a server until the test or its stop ends.
func (m *mesh) server(name string) (r *registration.Registrar, stop func()) {
	get := func(key config.Key) *config.Config {
		_, content := m.store.Snapshot()
		return content.Configs.Value(key.Path())
	}
	m.metrics[name] = prometheus.NewRegistry()
	r = registration.New(registration.Options{
		Server: name, Store: leaser{m.store, m}, Health: m, Registerer: m.metrics[name], Entry: get, Group: get, TTL: storage.MinLease, Silence: storage.MinLease, Patience: m.patience, Others: m.others, ComeBack: storage.MinLease / 2,
		Entries: func(namespace string) iter.Seq[*config.Config] {
			entries, _ := m.store.List(context.Background(), schema.WorkloadEntry, namespace)
			return slices.Values(entries)
		},
		Await:    func(context.Context, string) error { return nil },
		Synced:   func() bool { return true },
		Unproved: func() error { return errors.New("prove it") },
		Logger:   slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(m.Context())
	done := make(chan struct{}, 2)
	go func() { _ = r.Run(ctx); done <- struct{}{} }()
	go func() { // as handlers of the cache would
		defer func() { done <- struct{}{} }()
		for {
			select {
			case <-ctx.Done():
				return
			case <-m.store.Changed():
				r.Changed(config.Key{Kind: schema.WorkloadEntry, Namespace: "shop", Name: "web-10.0.0.1"})
				r.Changed(group().Key())
			}
		}
	}()
	stopped := false
	stop = func() {
		cancel()
		if !stopped {
			<-done
			<-done
		}
		stopped = true
	}
	m.Cleanup(stop)
	return r, stop
}

// counts compares metrics of a server with what they are to be.
func (m *mesh) counts(server string, want map[string]float64) {
	m.Helper()
	families, err := m.metrics[server].Gather()
	if err != nil {
		m.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if _, wanted := want[f.GetName()]; wanted {
			one := f.GetMetric()[0]
			got[f.GetName()] = one.GetCounter().GetValue() + one.GetGauge().GetValue()
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		m.Errorf("metrics of %s (-want +got)\n%s", server, diff)
	}
}

func (m *mesh) put(c *config.Config) {
	m.Helper()
	if _, _, err := m.store.Apply(m.Context(), []storage.Op{{Verb: storage.Put, Config: c}}); err != nil {
		m.Fatal(err)
	}
}

func (m *mesh) delete(key config.Key) {
	m.Helper()
	if _, err := m.store.Delete(m.Context(), key.Kind, key.Name, key.Namespace, ""); err != nil {
		m.Fatal(err)
	}
}

// entry returns a WorkloadEntry of the namespace shop, nil if there is none.
func (m *mesh) entry(name string) *config.Config {
	_, content := m.store.Snapshot()
	return content.Configs.Value(config.Key{Kind: schema.WorkloadEntry, Namespace: "shop", Name: name}.Path())
}

// await waits until a condition holds.
func (m *mesh) await(what string, holds func() bool) {
	m.Helper()
	for began := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > limit {
			m.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// always fails the test if a condition ceases to hold within a TTL and a fifth.
func (m *mesh) always(what string, holds func() bool) {
	m.Helper()
	for began := time.Now(); time.Since(began) < storage.MinLease*6/5; time.Sleep(5 * time.Millisecond) {
		if !holds() {
			m.Fatalf("%s: it ceased after %v", what, time.Since(began))
		}
	}
}

func (m *mesh) awaitState(r *registration.Registrar, node string, state node.State, reason string) {
	m.Helper()
	var got []registration.Outcome
	m.await(fmt.Sprintf("%s is %s because of %q", node, state, reason), func() bool {
		got = r.Outcomes()
		for _, o := range got {
			if o.Node == node && o.State == state && strings.Contains(o.Reason, reason) {
				return true
			}
		}
		return false
	})
}

func group(adjust ...func(*config.Config, *networking.WorkloadGroup)) *config.Config {
	spec := &networking.WorkloadGroup{
		Metadata: &networking.WorkloadGroup_ObjectMeta{Labels: map[string]string{"app": "web"}},
		Template: &networking.WorkloadEntry{ServiceAccount: "web", Ports: map[string]uint32{"http": 8080}},
	}
	out := &config.Config{Meta: config.Meta{GroupVersionKind: schema.WorkloadGroup, Namespace: "shop", Name: "web"}, Spec: spec}
	for _, a := range adjust {
		a(out, spec)
	}
	return out
}

// proxy returns a proxy of the group that has proved its service account.
func proxy(name, ip string) *discovery.Proxy {
	return &discovery.Proxy{
		ID: "sidecar~" + ip + "~" + name + "~shop.svc", Type: discovery.Sidecar, Name: name, IPAddresses: []string{ip}, Namespace: "shop",
		Identity: "spiffe://cluster.local/ns/shop/sa/web", ServiceAccount: "web", Group: "web",
	}
}

func TestEntryOf(t *testing.T) {
	t.Parallel()
	full := group(func(c *config.Config, g *networking.WorkloadGroup) {
		c.UID, c.Annotations = "u", map[string]string{registration.NodeLabelsAnnotation: "version, zone"}
		g.Template.Labels, g.Template.Weight, g.Template.Locality, g.Template.Network = map[string]string{"app": "template", "tier": "front"}, 7, "r/z", "template"
		g.Metadata.Annotations = map[string]string{"team": "blue"}
	})
	p := proxy("a", "10.0.0.1")
	p.MetadataLabels = labels.Instance{"app": "payments", "tier": "front", "version": "v2", "istio-locality": "x"}
	p.Locality, p.Network, p.SecretCluster = "east/a", "vpc", "agent"
	entry, refused := registration.EntryOf(full, p)
	if !cmp.Equal(refused, []string{"app"}) {
		t.Errorf("refused are %v", refused)
	}
	if entry.Name != "web-10.0.0.1-vpc" || entry.Namespace != "shop" || len(entry.OwnerReferences) != 1 || entry.OwnerReferences[0].UID != "u" {
		t.Errorf("the entry is %+v", entry.Meta)
	}
	wantLabels := map[string]string{"app": "web", "tier": "front", "version": "v2", labels.TLSMode: "istio"}
	if diff := cmp.Diff(wantLabels, entry.Labels); diff != "" {
		t.Error(diff)
	}
	wantAnnotations := map[string]string{"team": "blue", "istio.io/autoRegistrationGroup": "web"}
	if diff := cmp.Diff(wantAnnotations, entry.Annotations); diff != "" {
		t.Error(diff)
	}
	want := &networking.WorkloadEntry{
		Address: "10.0.0.1", Ports: map[string]uint32{"http": 8080}, ServiceAccount: "web", Weight: 7, Locality: "east/a", Network: "vpc",
		Labels: wantLabels,
	}
	if diff := cmp.Diff(want, entry.Spec, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	plain := proxy("a", "fd00::1")
	plain.MetadataLabels = labels.Instance{labels.TLSMode: "istio"}
	entry, refused = registration.EntryOf(group(func(_ *config.Config, g *networking.WorkloadGroup) { g.Template = nil }), plain)
	spec := entry.Spec.(*networking.WorkloadEntry)
	if entry.Name != "web-fd00--1" || spec.ServiceAccount != "default" || entry.Labels[labels.TLSMode] != "disabled" || !cmp.Equal(refused, []string{labels.TLSMode}) {
		t.Errorf("without a template and a certificate: %+v, %v, refused are %v", entry.Meta, spec, refused)
	}
}

func TestNameOfIsShortEnough(t *testing.T) {
	t.Parallel()
	p := proxy("a", "10.0.0.1")
	p.Group = strings.Repeat("x", 300)
	if name := registration.NameOf(p); len(name) != 253 || !strings.HasSuffix(name, "x-10.0.0.1") {
		t.Errorf("the name is %s", name)
	}
}

// TestAnEntryLivesAsLongAsItsStream: longer than its lease, and half its lease longer than the
// stream.
func TestAnEntryLivesAsLongAsItsStream(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.put(group())
	r, _ := m.server("one")
	leave := join(r, proxy("a", "10.0.0.1"))
	m.awaitState(r, proxy("a", "10.0.0.1").ID, node.Registered, "")
	m.always("the entry", func() bool { return m.entry("web-10.0.0.1") != nil })
	left := time.Now()
	leave.Leave()
	m.await("the entry is gone", func() bool { return m.entry("web-10.0.0.1") == nil })
	if took := time.Since(left); took < storage.MinLease/2 || took > storage.MinLease {
		t.Errorf("the entry was gone after %v", took)
	}
	if got := r.Outcomes(); len(got) != 0 {
		t.Errorf("the outcomes are %+v", got)
	}
}

// TestAProxyTakesItsEntryAlong: to the same server, to another, and from one that has died, without
// a moment in which there is no entry. A stream that lingers yields to the newer one.
func TestAProxyTakesItsEntryAlong(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.put(group())
	one, stopOne := m.server("one")
	two, _ := m.server("two")
	p := proxy("a", "10.0.0.1")
	controller := func(server string) func() bool {
		return func() bool {
			e := m.entry("web-10.0.0.1")
			return e != nil && e.Annotations[registration.ServerAnnotation] == server
		}
	}
	leave := join(one, p)
	m.await("registered", controller("one"))
	uid, since := m.entry("web-10.0.0.1").UID, m.entry("web-10.0.0.1").Annotations[registration.ConnectedAnnotation]
	leave.Leave()
	join(one, p) // lingers
	m.await("registered anew", func() bool { return m.entry("web-10.0.0.1").Annotations[registration.ConnectedAnnotation] != since })
	leave = join(two, p)
	m.await("taken over", controller("two"))
	m.awaitState(one, p.ID, node.Replaced, "to another server")
	m.always("the entry of the newer stream", controller("two"))
	if got := m.entry("web-10.0.0.1").UID; got != uid {
		t.Error("the entry was made anew")
	}
	leave.Leave()
	m.await("back at the stream that lingers", controller("one"))
	stopOne()
	join(two, p)
	m.await("taken over from a dead server", controller("two"))
	m.always("the entry after that", controller("two"))
}

// TestTwoMachinesOfOneAddress: the second is refused while the first is connected.
func TestTwoMachinesOfOneAddress(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.put(group())
	one, _ := m.server("one")
	two, _ := m.server("two")
	first, second, third := proxy("first", "10.0.0.1"), proxy("second", "10.0.0.1"), proxy("third", "10.0.0.1")
	leave := join(one, first)
	m.awaitState(one, first.ID, node.Registered, "")
	leaveSecond := join(one, second)
	m.awaitState(one, second.ID, node.Refused, first.ID)
	join(two, third)
	m.awaitState(two, third.ID, node.Refused, first.ID+", which is connected to another server, or was within the last 3s")
	m.counts("one", map[string]float64{"portolan_registered_proxies": 1, "portolan_registrations_total": 1, "portolan_registrations_refused_total": 1})
	m.counts("two", map[string]float64{"portolan_registered_proxies": 0, "portolan_registrations_total": 0, "portolan_registrations_refused_total": 1})
	leave.Leave()
	m.awaitState(one, second.ID, node.Registered, "")
	m.awaitState(two, third.ID, node.Refused, second.ID)
	leaveSecond.Leave()
	m.awaitState(two, third.ID, node.Registered, "")
	other := proxy("other", "10.0.0.1")
	other.Network = "vpc"
	join(one, other)
	m.awaitState(one, other.ID, node.Registered, "")
}

func TestWhoIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*discovery.Proxy)
		reason string
	}{
		"another account":                          {func(p *discovery.Proxy) { p.Identity = "spiffe://cluster.local/ns/shop/sa/db" }, "for the service account web of shop"},
		"another namespace":                        {func(p *discovery.Proxy) { p.Identity = "spiffe://cluster.local/ns/other/sa/web" }, "for the service account web of shop"},
		"nothing proved":                           {func(p *discovery.Proxy) { p.Identity = "" }, "proved no identity"},
		"nothing proved, on the machine, believed": {func(p *discovery.Proxy) { p.Identity, p.Local = "", true }, "prove it"},
		"nothing proved, on the machine, doubted":  {func(p *discovery.Proxy) { p.Identity, p.Local, p.Doubted = "", true, true }, "proved no identity"},
		"the address of every machine":             {func(p *discovery.Proxy) { p.IPAddresses = []string{"127.0.0.1"} }, "leads nobody to its machine"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			m.put(group())
			r, _ := m.server("one")
			p := proxy("a", "10.0.0.1")
			test.change(p)
			join(r, p)
			m.awaitState(r, p.ID, node.Refused, test.reason)
			if e := m.entry(registration.NameOf(p)); e != nil {
				t.Errorf("there is %+v", e.Meta)
			}
		})
	}
}

// TestGroupsComeAndGo: a stream waits for its group, loses its entry with the group, and gets it
// back. A changed group changes the entry. A group of another account takes it away.
func TestGroupsComeAndGo(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	r, _ := m.server("one")
	p := proxy("a", "10.0.0.1")
	there := func() bool { return m.entry("web-10.0.0.1") != nil }
	join(r, p)
	m.awaitState(r, p.ID, node.Waiting, "the WorkloadGroup shop/web")
	m.put(group())
	m.await("registered when the group comes", there)
	m.awaitState(r, p.ID, node.Registered, "")
	m.delete(group().Key())
	m.await("gone with the group", func() bool { return !there() })
	m.put(group())
	m.await("back with the group", there)
	m.put(group(func(_ *config.Config, g *networking.WorkloadGroup) { g.Metadata.Labels["app"] = "new" }))
	m.await("as the group says now", func() bool { return m.entry("web-10.0.0.1").Labels["app"] == "new" })
	m.put(group(func(_ *config.Config, g *networking.WorkloadGroup) { g.Template.ServiceAccount = "db" }))
	m.await("gone, as the group is for others", func() bool { return !there() })
	m.awaitState(r, p.ID, node.Refused, "for the service account db")
}

// TestPeopleAndEntries: an entry that a person deletes comes back, an edit stays until the next
// connection, and an entry that a person made is left alone.
func TestPeopleAndEntries(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.put(group())
	r, _ := m.server("one")
	p := proxy("a", "10.0.0.1")
	leave := join(r, p)
	m.awaitState(r, p.ID, node.Registered, "")
	uid := m.entry("web-10.0.0.1").UID
	m.delete(m.entry("web-10.0.0.1").Key())
	m.await("back", func() bool { e := m.entry("web-10.0.0.1"); return e != nil && e.UID != uid })

	edited := m.entry("web-10.0.0.1").Clone()
	edited.ResourceVersion, edited.Spec.(*networking.WorkloadEntry).Weight = "", 9
	m.put(edited)
	m.always("the edit", func() bool { return m.entry("web-10.0.0.1").Spec.(*networking.WorkloadEntry).Weight == 9 })
	leave.Leave()
	join(r, p)
	m.await("the edit is gone", func() bool { return m.entry("web-10.0.0.1").Spec.(*networking.WorkloadEntry).Weight == 0 })

	unmarked := m.entry("web-10.0.0.1").Clone()
	unmarked.ResourceVersion, unmarked.Annotations = "", nil
	m.put(unmarked)
	m.await("an edit that drops the annotations is overwritten", func() bool { return m.entry("web-10.0.0.1").Annotations[registration.NodeAnnotation] == p.ID })

	static := m.entry("web-10.0.0.1").Clone()
	static.Name, static.ResourceVersion, static.Annotations = "web-10.0.0.2", "", nil
	m.put(static)
	join(r, proxy("b", "10.0.0.2"))
	m.awaitState(r, proxy("b", "10.0.0.2").ID, node.Refused, "no registration has made it")
	if got := m.entry("web-10.0.0.2"); len(got.Annotations) != 0 {
		t.Errorf("the entry of a person is %+v", got.Meta)
	}
}

// TestAStoreThatIsAwayEndsNothing: the Registrar goes on when the store is back, also if the lease
// has ended meanwhile.
func TestAStoreThatIsAwayEndsNothing(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.put(group())
	r, _ := m.server("one")
	p := proxy("a", "10.0.0.1")
	join(r, p)
	m.awaitState(r, p.ID, node.Registered, "")
	m.away.Store(true)
	m.await("the lease has ended", func() bool { return m.entry("web-10.0.0.1") == nil })
	m.awaitState(r, p.ID, node.Waiting, "the store is away")
	m.away.Store(false)
	m.await("registered again", func() bool { return m.entry("web-10.0.0.1") != nil })
	m.awaitState(r, p.ID, node.Registered, "")
}

// TestManyProxies: many that come at one time are all registered, each once.
func TestManyProxies(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.put(group())
	r, _ := m.server("one")
	want := map[string]bool{}
	for i := range 500 {
		p := proxy(fmt.Sprint(i), fmt.Sprintf("10.0.%d.%d", i/250, i%250+1))
		join(r, p)
		want["shop/"+registration.NameOf(p)] = true
	}
	m.await("all are registered", func() bool {
		n := 0
		for _, o := range r.Outcomes() {
			if o.State == node.Registered {
				n++
			}
		}
		return n == len(want)
	})
	got := map[string]bool{}
	entries, err := m.store.List(t.Context(), schema.WorkloadEntry, "shop")
	for _, e := range entries {
		got[e.Namespace+"/"+e.Name] = true
		if e.ResourceVersion == "" || e.Generation != 1 {
			t.Errorf("%s was written more than once: %+v", e.Name, e.Meta)
		}
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%d entries, want %d, %v", len(got), len(want), err)
	}
}

// TestANewEntryWaitsForListeners: before its proxy has them, nobody sends to a machine, unless it
// takes too long.
func TestANewEntryWaitsForListeners(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.patience = time.Minute
	m.put(group())
	r, _ := m.server("one")
	p := proxy("a", "10.0.0.1")
	stream := join(r, p)
	m.awaitState(r, p.ID, node.Waiting, "its listeners")
	if m.entry("web-10.0.0.1") != nil {
		t.Error("it is registered before it has its listeners")
	}
	stream.Ready()
	m.awaitState(r, p.ID, node.Registered, "")
	m.patience = time.Millisecond
	late, _ := m.server("two")
	other := proxy("b", "10.0.0.2")
	join(late, other)
	m.awaitState(late, other.ID, node.Registered, "")
}
