package desired_test

import (
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// entries is a generator of parts: it makes one of the directory "hosts" for each host,
// with the protocol of its first port.
type entries struct{ built *atomic.Int32 }

func (entries) TypeURL() string { return "entries" }

func (entries) Affected(_ *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		for c := range d.Hosts() {
			if !yield("hosts/" + c.Key) {
				return
			}
		}
	}
}

func (e entries) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	s := v.Service(host.Name(strings.TrimPrefix(name, "hosts/")))
	if s == nil {
		return nil, nil, nil
	}
	e.built.Add(1)
	return wrapperspb.String(string(s.Hostname) + " of " + string(s.Service().Ports[0].Protocol)), nil, nil
}

// directory is a composer of entries.
type directory struct {
	composed *atomic.Int32
	fails    *atomic.Bool
}

func (directory) TypeURL() string  { return "directory" }
func (directory) PartsURL() string { return "entries" }

func (directory) Affected(_ *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if d.Whole {
			yield("hosts")
		}
	}
}

func (directory) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	if name != "hosts" {
		return nil, nil, nil
	}
	return wrapperspb.String("of " + v.Mesh("trust_domain").GetTrustDomain() + ":"), nil, nil
}

func (d directory) Compose(own *resource.Resource, parts iter.Seq[*resource.Resource]) (*resource.Resource, error) {
	if d.composed.Add(1); d.fails.Load() {
		return nil, errors.New("not in the mood")
	}
	lines := []string{string(own.Body.Value)}
	for p := range parts {
		lines = append(lines, string(p.Body.Value))
	}
	return resource.New(own.Name, wrapperspb.String(strings.Join(lines, "\n")))
}

// composition is a mesh, with members of the groups of some nodes whose resources are
// composed.
type composition struct {
	*xdstest.World
	entries   entries
	directory directory
	groups    xdstest.Groups
	members   []xdstest.Member
}

func newComposition(t *testing.T, patches []generate.Patch, nodes ...xdstest.Node) *composition {
	t.Helper()
	c := &composition{
		World:   xdstest.NewWorld(t),
		entries: entries{new(atomic.Int32)}, directory: directory{new(atomic.Int32), new(atomic.Bool)},
	}
	// The parts come after the whole in the order of sending.
	types := []generate.ResourceType{
		generate.ResourceType{Name: "directory", Generator: c.directory}.Patched(patches...),
		generate.ResourceType{Name: "entries", Generator: c.entries}.Patched(patches...),
	}
	c.groups = xdstest.NewGroups(types, c.Context)
	for _, n := range nodes {
		c.members = append(c.members, c.groups.Join(n.Proxy(t)))
	}
	t.Cleanup(func() {
		for _, p := range c.members {
			p.Close()
		}
		if n := c.groups.Built(); n != 0 {
			t.Errorf("%d resources are held by nobody", n)
		}
	})
	c.follow(t)
	return c
}

// follow brings all members to the newest context, and compares them with a build of
// everything.
func (c *composition) follow(t *testing.T) {
	t.Helper()
	for i, p := range c.members {
		p.Follow()
		want, err := p.Walked()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, p.Versions()); d != "" {
			t.Fatalf("member %d (-walk +member):\n%s", i, d)
		}
	}
}

func (c *composition) at(member int) *resource.Resource {
	return c.members[member].Set("directory").Value("hosts")
}

// TestOneChangedPartCostsItsOwnBuilding: only the part is built again, and all classes
// with the same parts share one composition.
func TestOneChangedPartCostsItsOwnBuilding(t *testing.T) {
	t.Parallel()
	c := newComposition(t, nil, xdstest.Node{Namespace: "shop"}, xdstest.Node{Namespace: "edge"})
	var documents []string
	for _, h := range []string{"a", "b", "c"} {
		documents = append(documents, xdstest.HTTPService("shop/"+h, h+".example", "10.1.0.1"))
	}
	private := strings.Replace(xdstest.HTTPService("edge/p", "p.example", "10.1.0.1"), "{hosts", "{exportTo: ['.'], hosts", 1)
	for _, step := range []struct {
		name            string
		change          func()
		built, composed int32
		same            bool // whether both classes have one directory
	}{
		{"three hosts", func() { c.Apply(documents...) }, 3, 1, true},
		{"one more", func() { c.Apply(xdstest.HTTPService("shop/d", "d.example", "10.1.0.1")) }, 1, 1, true},
		{"one of them another", func() {
			c.Apply(strings.Replace(documents[0], "protocol: HTTP", "protocol: TCP", 1))
		}, 1, 1, true},
		{"one that a class alone sees", func() { c.Apply(private) }, 1, 1, false},
		{"one less", func() { c.Delete("serviceentry/shop/d") }, 0, 2, false},
		{"both see the same again", func() { c.Delete("serviceentry/edge/p") }, 0, 0, true},
		{"a change of no part", func() { c.Apply(xdstest.Object("WorkloadEntry", "shop/w", "{address: 10.9.0.9}")) }, 0, 0, true},
	} {
		step.change()
		c.entries.built.Store(0)
		c.directory.composed.Store(0)
		for _, p := range c.members {
			p.Follow()
		}
		if built, composed := c.entries.built.Load(), c.directory.composed.Load(); built != step.built || composed != step.composed {
			t.Errorf("%s: built %d and composed %d, want %d and %d", step.name, built, composed, step.built, step.composed)
		}
		if same := c.at(0) == c.at(1); same != step.same {
			t.Errorf("%s: one directory for both: %v, want %v", step.name, same, step.same)
		}
		c.follow(t)
	}
}

// TestACompositionThatFailsKeepsTheLast, and is tried again with the next change.
func TestACompositionThatFailsKeepsTheLast(t *testing.T) {
	t.Parallel()
	c := newComposition(t, nil, xdstest.Node{})
	c.Apply(xdstest.HTTPService("a", "a.example", "10.1.0.1"))
	c.follow(t)
	last := c.at(0)
	c.directory.fails.Store(true)
	c.Apply(xdstest.HTTPService("b", "b.example", "10.1.0.1"))
	c.members[0].Follow()
	if c.at(0) != last {
		t.Error("the last directory was not kept")
	}
	c.directory.fails.Store(false)
	c.Apply(xdstest.Object("WorkloadEntry", "w", "{address: 10.9.0.9}"))
	c.follow(t)
	if c.at(0) == last {
		t.Error("the directory was not put together again")
	}
}

// curfew is a patch. While there is a service night.example, it removes all resources of
// hosts and adds the resource "hosts/closed".
type curfew struct{}

const night = "night.example"

func (curfew) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		for c := range d.Hosts() {
			if d.Whole || c.Key == night {
				yield("hosts/closed")
				return
			}
		}
	}
}

func (curfew) Apply(v *mesh.View, name string, message proto.Message, needs []resource.Need) (proto.Message, []resource.Need, error) {
	closed := v.Service(night) != nil
	switch {
	case name == "hosts/closed" && closed:
		return wrapperspb.String("closed"), nil, nil
	case name == "hosts" && closed:
		return wrapperspb.String("by night"), nil, nil
	case strings.HasPrefix(name, "hosts/") && closed:
		return nil, nil, nil
	}
	return message, needs, nil
}

// TestPatches: patches add and remove names and edit resources, composed ones too, and do
// so again when what they read changes.
func TestPatches(t *testing.T) {
	t.Parallel()
	c := newComposition(t, []generate.Patch{curfew{}}, xdstest.Node{}, xdstest.Node{Namespace: "edge"})
	names := func() []string { return slices.Collect(c.members[0].Set("entries").Keys()) }
	c.Apply(xdstest.HTTPService("a", "a.example", "10.1.0.1"), xdstest.HTTPService("b", "b.example", "10.1.0.1"))
	c.follow(t)
	if d := cmp.Diff([]string{"hosts/a.example", "hosts/b.example"}, names()); d != "" {
		t.Errorf("by day (-want +got):\n%s", d)
	}
	c.Apply(xdstest.HTTPService("night", night, "10.1.0.1"))
	// The patch removes the resources that exist. They are built again, since they have
	// read that there was no night.
	c.follow(t)
	if d := cmp.Diff([]string{"hosts/closed"}, names()); d != "" {
		t.Errorf("by night (-want +got):\n%s", d)
	}
	if body := string(c.at(0).Body.Value); !strings.Contains(body, "by night") || !strings.Contains(body, "closed") {
		t.Errorf("by night the directory is %q", body)
	}
}

// greeter is a generator of inbound resources: it makes one for each service of the
// workload, with its address.
type greeter struct{ built *atomic.Int32 }

func (greeter) TypeURL() string { return "entries" }

func (greeter) Affected(v *mesh.View, _ mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, s := range v.InboundServices() {
			if !yield("mine/" + string(s.Service.Hostname)) {
				return
			}
		}
	}
}

func (g greeter) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	g.built.Add(1)
	for _, s := range v.InboundServices() {
		if name == "mine/"+string(s.Service.Hostname) {
			return wrapperspb.String(s.Endpoints[0].Address), nil, nil
		}
	}
	return nil, nil, nil
}

// TestInboundResources: inbound resources belong to one workload, and the class shares
// all others.
func TestInboundResources(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t)
	g := greeter{new(atomic.Int32)}
	all := xdstest.NewGroups([]generate.ResourceType{{Name: "entries", Generator: entries{new(atomic.Int32)}, Inbound: g}}, w.Context)
	one, other := all.Join(xdstest.Node{IP: "10.1.0.1"}.Proxy(t)), all.Join(xdstest.Node{IP: "10.1.0.2"}.Proxy(t))
	router := all.Join(xdstest.Node{IP: "10.1.0.1", Type: discovery.Router}.Proxy(t))
	names := func(p xdstest.Member) []string {
		var out []string
		for name := range p.Set("entries").Prefix("mine/") {
			out = append(out, name)
		}
		return out
	}
	for _, step := range []struct {
		name       string
		change     func()
		one, other []string
		built      int32
	}{
		{"a service of one", func() { w.Apply(xdstest.HTTPService("a", "a.example", "10.1.0.1")) }, []string{"mine/a.example"}, nil, 1},
		{"a service of both", func() { w.Apply(xdstest.HTTPService("b", "b.example", "10.1.0.1", "10.1.0.2")) },
			[]string{"mine/a.example", "mine/b.example"}, []string{"mine/b.example"}, 3},
		{"a service of none", func() { w.Apply(xdstest.HTTPService("c", "c.example", "10.1.0.3")) },
			[]string{"mine/a.example", "mine/b.example"}, []string{"mine/b.example"}, 0},
		{"one moves", func() { w.Apply(xdstest.HTTPService("a", "a.example", "10.1.0.2")) },
			[]string{"mine/b.example"}, []string{"mine/a.example", "mine/b.example"}, 3},
		{"one goes", func() { w.Delete("serviceentry/default/b") }, nil, []string{"mine/a.example"}, 1},
	} {
		step.change()
		g.built.Store(0)
		for _, p := range []xdstest.Member{one, other, router} {
			p.Follow()
		}
		if d := cmp.Diff([][]string{step.one, step.other, nil}, [][]string{names(one), names(other), names(router)}); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, d)
		}
		if n := g.built.Load(); n != step.built {
			t.Errorf("%s: %d were built, want %d", step.name, n, step.built)
		}
		for _, p := range []xdstest.Member{one, other, router} {
			want, err := p.Walked()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, p.Versions()); d != "" {
				t.Errorf("%s (-walk +member):\n%s", step.name, d)
			}
		}
	}
	if n := all.Len(); n != 2 {
		t.Errorf("%d groups, want that of the sidecars and that of the router", n)
	}
	for c := range resource.Diff(one.Set("entries"), other.Set("entries")) {
		if !strings.HasPrefix(c.Key, "mine/") {
			t.Errorf("%s is not shared", c.Key)
		}
	}
	one.Close()
	other.Close()
	router.Close()
	if n := all.Built(); n != 0 || all.Len() != 0 {
		t.Errorf("%d resources and %d groups are held by nobody", n, all.Len())
	}
}
