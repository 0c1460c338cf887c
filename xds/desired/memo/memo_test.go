package memo_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/desired/memo"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asking is a generator whose resource says what ask finds in the view.
type asking struct {
	ask    func(*mesh.View) string
	builds *atomic.Int32
}

func (asking) TypeURL() string                                  { return "asking" }
func (asking) Affected(*mesh.View, mesh.Delta) iter.Seq[string] { return slices.Values([]string{"x"}) }
func (a asking) Build(v *mesh.View, _ string) (proto.Message, []resource.Need, error) {
	a.builds.Add(1)
	answer := a.ask(v)
	if answer == "" {
		return nil, nil, errors.New("no answer")
	}
	return wrapperspb.String(answer), nil, nil
}

func service(v *mesh.View, h host.Name) string {
	if s := v.Service(h); s != nil {
		return s.Namespace
	}
	return "none"
}

// TestSharing: views share a resource if and only if they give the same answers to its
// queries.
func TestSharing(t *testing.T) {
	t.Parallel()
	documents := []string{
		xdstest.HTTPService("shop/a", "a.example", "10.1.0.1"),
		xdstest.Object("ServiceEntry", "shop/b", "{hosts: [b.example], exportTo: ['.'], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}]}"),
		xdstest.Object("Sidecar", "narrow/s", "{egress: [{hosts: ['shop/a.example']}]}"),
		xdstest.Object("Sidecar", "blind/s", "{egress: [{hosts: ['~/*']}]}"),
		xdstest.Object("VirtualService", "shop/v", "{hosts: [v.example], http: [{match: [{sourceLabels: {v: x}}], directResponse: {status: 200}}]}"),
	}
	shop, edge := xdstest.Node{Namespace: "shop"}, xdstest.Node{Namespace: "edge"}
	labelled := xdstest.Node{Namespace: "shop", IP: "10.0.0.2", Labels: map[string]string{"v": "x"}}
	for _, tc := range []struct {
		name   string
		ask    func(*mesh.View) string
		a, b   xdstest.Node
		shared bool
	}{
		{"one service, two namespaces", func(v *mesh.View) string { return service(v, "a.example") }, shop, edge, true},
		{"one service, a scope that imports it", func(v *mesh.View) string { return service(v, "a.example") }, shop, xdstest.Node{Namespace: "narrow"}, true},
		{"a scope that does not", func(v *mesh.View) string { return service(v, "a.example") }, shop, xdstest.Node{Namespace: "blind"}, false},
		{"a private service", func(v *mesh.View) string { return service(v, "b.example") }, shop, edge, false},
		{"a service that neither sees", func(v *mesh.View) string { return service(v, "c.example") }, shop, edge, true},
		{"the namespace itself", func(v *mesh.View) string {
			if v.InNamespace("shop") {
				return "in"
			}
			return "out"
		}, shop, edge, false},
		{"labels that nobody asks for", func(v *mesh.View) string { return service(v, "a.example") }, shop, labelled, true},
		{"labels that matter", func(v *mesh.View) string {
			if v.HasLabels(labels.Instance{"v": "x"}) {
				return "x"
			}
			return "not x"
		}, shop, labelled, false},
		{"addresses", func(v *mesh.View) string { return v.InstanceIP(false) }, shop, labelled, false},
		{"another shape", func(v *mesh.View) string { return service(v, "a.example") }, shop, xdstest.Node{Namespace: "shop", Type: discovery.Router}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w, m := xdstest.NewWorld(t, documents...), memo.New()
			g := asking{tc.ask, new(atomic.Int32)}
			a, err := m.Build(w.View(tc.a), g, "x")
			if err != nil {
				t.Fatal(err)
			}
			b, err := m.Build(w.View(tc.b), g, "x")
			if err != nil {
				t.Fatal(err)
			}
			if (a == b) != tc.shared || (g.builds.Load() == 1) != tc.shared {
				t.Errorf("shared %v after %d builds, want %v", a == b, g.builds.Load(), tc.shared)
			}
			m.Release(a)
			m.Release(b)
			if m.Len() != 0 {
				t.Errorf("%d are held by nobody", m.Len())
			}
		})
	}
}

// TestReaders: Readers finds the resources that were built from a row, also from an
// absent one, as long as they are in use.
func TestReaders(t *testing.T) {
	t.Parallel()
	w, m := xdstest.NewWorld(t), memo.New()
	g := asking{func(v *mesh.View) string { return service(v, "a.example") }, new(atomic.Int32)}
	view := w.View(xdstest.Node{})
	first, err := m.Build(view, g, "x")
	if err != nil {
		t.Fatal(err)
	}
	before := w.Context()
	w.Apply(xdstest.HTTPService("a", "a.example", "10.1.0.1"))
	changed := mesh.Diff(before, w.Context()).Keys()
	if got := m.Readers("asking", view.Shape(), changed); !slices.Equal(got, []string{"x"}) {
		t.Errorf("readers of a service that appeared: %v", got)
	}
	router := w.View(xdstest.Node{Type: discovery.Router}).Shape()
	if got := append(m.Readers("asking", router, changed), m.Readers("another", view.Shape(), changed)...); len(got) > 0 {
		t.Errorf("readers of another shape and type: %v", got)
	}
	second, err := m.Build(w.View(xdstest.Node{}), g, "x")
	if err != nil {
		t.Fatal(err)
	}
	if second == first {
		t.Error("a trace holds although an answer differs")
	}
	m.Release(first)
	if got := m.Readers("asking", view.Shape(), changed); !slices.Equal(got, []string{"x"}) {
		t.Errorf("readers after the older trace is gone: %v", got)
	}
	m.Release(second)
	if got := m.Readers("asking", view.Shape(), changed); len(got) > 0 || m.Len() > 0 {
		t.Errorf("readers after all are gone: %v", got)
	}
}

// TestAFailedBuildIsNotKept.
func TestAFailedBuildIsNotKept(t *testing.T) {
	t.Parallel()
	w, m := xdstest.NewWorld(t), memo.New()
	g := asking{func(*mesh.View) string { return "" }, new(atomic.Int32)}
	if _, err := m.Build(w.View(xdstest.Node{}), g, "x"); err == nil {
		t.Error("built")
	}
	if m.Len() != 0 {
		t.Errorf("%d are held", m.Len())
	}
}

// TestManyAtOnce: users of several namespaces come and go at the same time, and each gets
// what its own view says.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	w, m := xdstest.NewWorld(t, xdstest.Object("ServiceEntry", "shop/b",
		"{hosts: [b.example], exportTo: ['.'], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}]}")), memo.New()
	g := asking{func(v *mesh.View) string { return service(v, "b.example") }, new(atomic.Int32)}
	want := map[string]string{}
	for namespace, answer := range map[string]string{"shop": "shop", "edge": "none", "other": "none"} {
		r, err := resource.New("x", wrapperspb.String(answer))
		if err != nil {
			t.Fatal(err)
		}
		want[namespace] = r.Version
	}
	var running sync.WaitGroup
	for range 2 {
		for namespace, version := range want {
			view := w.View(xdstest.Node{Namespace: namespace})
			running.Go(func() {
				for range 200 {
					trace, err := m.Build(view, g, "x")
					if err != nil || trace.Resource.Version != version {
						t.Errorf("%s: built %v, %v", namespace, trace, err)
						return
					}
					m.Release(trace)
				}
			})
		}
	}
	running.Wait()
	if m.Len() != 0 {
		t.Errorf("%d are held by nobody", m.Len())
	}
}

// TestSharingOfWorkloads: workloads share what they would build from the same, and share nothing
// with groups.
func TestSharingOfWorkloads(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		xdstest.Object("AuthorizationPolicy", "shop/all", "{}"),
		xdstest.Object("AuthorizationPolicy", "shop/web", "{selector: {matchLabels: {app: web}}}"),
	)
	g := asking{func(v *mesh.View) string { return fmt.Sprint(len(v.OwnPolicies()), " policies") }, &atomic.Int32{}}
	m := memo.New()
	build := func(n xdstest.Node) *memo.Built {
		n.Namespace = "shop"
		b, err := m.BuildOwn(w.View(n), g, "x")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	one := build(xdstest.Node{Labels: map[string]string{"app": "db"}})
	two := build(xdstest.Node{IP: "10.0.0.2", Labels: map[string]string{"app": "cache", "v": "1"}})
	web := build(xdstest.Node{IP: "10.0.0.3", Labels: map[string]string{"app": "web"}})
	if one != two || one == web || g.builds.Load() != 2 {
		t.Errorf("built %d times", g.builds.Load())
	}
	group, err := m.Build(w.View(xdstest.Node{Namespace: "shop"}), g, "x")
	if err != nil || group == one {
		t.Errorf("a group shares what is of a workload: %v", err)
	}
	m.Release(one, two, web, group)
	if m.Len() != 0 {
		t.Errorf("%d are left", m.Len())
	}
}
