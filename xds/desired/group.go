package desired

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/desired/memo"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Group holds all resources that the proxies of one class should have, by type, and
// takes them from one context to the next at the cost of what changed. The first member
// that needs a context advances the group, and the others use the result.
type Group struct {
	class  mesh.Class
	groups *Groups
	serial int // grows with each group made

	members int // guarded by Groups.mu

	newest atomic.Pointer[snapshot] // nil before the first advance, and after close

	mu    sync.Mutex   // guards the fields below; held while resources are built
	types []*groupType // in the order of the server
	byURL map[string]*groupType
	order []*groupType // parts before the resources composed of them
}

// snapshot holds the resources of a class in one context. It is never modified.
type snapshot struct {
	push   *mesh.PushContext
	view   *mesh.View
	byType []resource.Set // in the order of the server
	// needed counts, by type in the same order and then by name, the resources that need
	// a secret.
	needed []pmap.Map[int]
	// removed are, by type in the same order, the names whose resources EnvoyFilters removed.
	removed []pmap.Map[bool]
}

// newGroup makes the empty group of a class, with all served types.
func newGroup(class mesh.Class, groups *Groups, serial int) *Group {
	g := &Group{class: class, groups: groups, serial: serial, byURL: map[string]*groupType{}}
	for _, served := range groups.types {
		t := newGroupType(table{
			typeName: served.Name, generator: served.For(class.Shape.Type), failures: groups.failures, memo: groups.memo,
		})
		g.byURL[t.url] = t
		g.types = append(g.types, t)
	}
	for _, t := range g.types {
		if t.composer != nil {
			t.parts = g.byURL[t.composer.PartsURL()]
		}
		for _, next := range [...]*groupType{t.parts, t} {
			if next != nil && !slices.Contains(g.order, next) {
				g.order = append(g.order, next)
			}
		}
	}
	return g
}

// advance brings the resources to the newest context, and returns them.
func (g *Group) advance(newest func() *mesh.PushContext) *snapshot {
	if s := g.newest.Load(); s != nil && s.push == newest() {
		return s
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	from, to := g.newest.Load(), newest()
	if from != nil && from.push == to {
		return from
	}
	if from == nil {
		from = g.beginAsKin()
	}
	view := mesh.NewView(to, g.class)
	g.bringTo(view, from, to)
	next := &snapshot{push: to, view: view}
	for _, t := range g.types {
		next.byType = append(next.byType, t.set)
		next.needed = append(next.needed, t.needed)
		next.removed = append(next.removed, t.removed)
	}
	g.newest.Store(next)
	return next
}

// bringTo brings the resources of all types to a view of a context; from is an earlier
// snapshot, nil for none. It adds a replacement before it releases the former resource,
// so that the parts which both share stay.
//
// If the proxies of the class see another scope than before, everything is built again.
// If only their Gateways differ, types that depend on no Gateway build only what differs.
func (g *Group) bringTo(view *mesh.View, from *snapshot, to *mesh.PushContext) {
	everything := mesh.Diff(nil, to)
	delta := everything
	if from != nil && view.SameButGateways(from.view) {
		delta = mesh.Diff(from.push, to)
	}
	sameGateways := delta.Whole || view.SameScope(from.view)
	var changed []mesh.RowKey
	if delta.Whole {
		g.uncoverAll()
	} else {
		changed = delta.Keys()
	}
	g.refreshNamed(view, delta.Whole, func(t *groupType) map[string]struct{} {
		if !sameGateways && !t.gatewayless {
			return t.concerned(view, everything, changed)
		}
		return t.concerned(view, delta, changed)
	})
}

// refreshNamed builds, of each type, the resources that concerned names, as a view has them.
// Then it brings the set of the type in line: anew if fromNothing, otherwise by what
// differs.
func (g *Group) refreshNamed(view *mesh.View, fromNothing bool, concerned func(*groupType) map[string]struct{}) {
	var old []*memo.Built
	for _, t := range g.order {
		t.before = t.set
		names := slices.Sorted(maps.Keys(concerned(t)))
		for _, name := range names {
			old = append(old, t.refresh(view, name))
			built := t.built[name]
			gone := built != nil && built.Resource == nil
			if gone && len(built.Patches()) > 0 { // it stays among those that are built, as what it read may bring it back
				t.removed = t.removed.Set(name, true)
			} else {
				t.removed = t.removed.Delete(name)
			}
			if gone && len(built.Patches()) == 0 {
				old = append(old, built)
				delete(t.built, name)
				t.noteAbsent(name, built.ReadsTrait())
			} else {
				t.noteAbsent(name, false)
			}
		}
		if t.parts != nil {
			names = t.compose(names)
		}
		if fromNothing {
			g.fill(t)
		} else {
			g.update(t, names)
		}
	}
	g.groups.memo.Release(old...)
}

// update brings the set of a type in line with its built resources: for the given
// names, which are sorted, and for names whose versions cover a changed resource.
func (g *Group) update(t *groupType, names []string) {
	slices.Sort(t.uncertain)
	for _, names := range [...][]string{names, slices.Compact(t.uncertain)} {
		var entries []resource.Entry
		for _, name := range names {
			before := t.set.Value(name)
			after := keepIfSame(before, t.current(name))
			if after != nil {
				entries = append(entries, resource.Entry{Key: name, Value: after})
			} else {
				t.set = t.set.Delete(name)
			}
			g.noteReplaced(t, before, after)
		}
		t.set = t.set.SetAll(entries)
	}
	t.uncertain = nil
}

// fill makes the set of a type anew from its built resources.
func (g *Group) fill(t *groupType) {
	names := slices.Sorted(maps.Keys(t.built))
	t.set = resource.FromSorted(func(yield func(string, *resource.Resource) bool) {
		for _, name := range names {
			r := keepIfSame(t.before.Value(name), t.current(name))
			g.noteReplaced(t, nil, r)
			if r != nil && !yield(name, r) {
				return
			}
		}
	})
	t.uncertain = nil
}

// has returns a resource with what it was built from; nil if there is none. typ is the index of its
// type.
func (g *Group) has(typ int, name string) *memo.Built {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.types[typ].built[name]
}

// close releases what the group holds. It has no members then.
func (g *Group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.newest.Store(nil)
	for _, t := range g.types {
		t.close()
	}
}

type groupType struct {
	table
	url         string
	gatewayless bool         // no resource depends on Gateways
	before      resource.Set // the set one context earlier

	removed pmap.Map[bool] // the names whose resources EnvoyFilters removed

	// absent are names that have no resource, maybe because of a trait of the class.
	absent map[string]struct{}

	// For a composed type:
	composer generate.Composer
	parts    *groupType
	composed map[string]*memo.Built // the resources; built has only the frame of each
	sums     map[string]memo.Sum    // of the parts of each
	// uncomposed are the resources that could not be put together the last time.
	uncomposed map[string]failure

	coverage
}

func newGroupType(of table) *groupType {
	of.built = map[string]*memo.Built{}
	t := &groupType{table: of, url: of.generator.TypeURL()}
	_, t.gatewayless = generate.As[generate.Gatewayless](of.generator)
	if c, ok := generate.As[generate.Composer](of.generator); ok {
		t.composer, t.composed, t.sums = c, map[string]*memo.Built{}, map[string]memo.Sum{}
	}
	return t
}

// concerned returns the names of the resources that a delta may concern: those that may
// appear or go, those built from a changed row, and those that could not be built.
func (t *groupType) concerned(view *mesh.View, delta mesh.Delta, changed []mesh.RowKey) map[string]struct{} {
	names := map[string]struct{}{}
	for name := range t.failed {
		names[name] = struct{}{}
	}
	for name := range t.uncomposed {
		names[name] = struct{}{}
	}
	for name := range t.generator.Affected(view, delta) {
		names[name] = struct{}{}
	}
	if delta.Whole {
		for name := range t.built {
			names[name] = struct{}{}
		}
	}
	for _, name := range t.memo.Readers(t.url, view.Shape(), changed) {
		if _, known := t.built[name]; known {
			names[name] = struct{}{}
		}
	}
	return names
}

// compose puts together again the resources whose frame or part changed, and returns
// their names.
func (t *groupType) compose(own []string) (dirty []string) {
	names := map[string]struct{}{}
	for _, name := range own {
		names[name] = struct{}{}
	}
	for c := range resource.Diff(t.parts.before, t.parts.set) {
		name := wholeOf(c.Key)
		names[name] = struct{}{}
		sum := t.sums[name]
		if c.HasOld {
			sum = sum.Without(c.Old)
		}
		if c.HasNew {
			sum = sum.With(c.New)
		}
		if t.sums[name] = sum; sum == (memo.Sum{}) {
			delete(t.sums, name)
		}
	}
	dirty = slices.Sorted(maps.Keys(names))
	for _, name := range dirty {
		t.composeOne(name)
	}
	return dirty
}

func (t *groupType) composeOne(name string) {
	old, built := t.composed[name], t.built[name]
	if built == nil || built.Resource == nil {
		delete(t.composed, name)
	} else {
		parts := func(yield func(*resource.Resource) bool) {
			for _, part := range t.parts.set.Prefix(name + "/") {
				if wholeOf(part.Name) == name && !yield(part) {
					return
				}
			}
		}
		composed, err := t.memo.Compose(t.url, t.composer, built.Resource, t.sums[name], parts)
		if err != nil {
			t.uncomposed = t.noteFailure(t.uncomposed, name, err)
			return
		}
		t.composed[name] = composed
	}
	t.clearFailure(t.uncomposed, name)
	t.memo.Release(old)
}

// wholeOf returns the name of the resource that a part belongs to.
func wholeOf(part string) string { return part[:max(strings.LastIndexByte(part, '/'), 0)] }

// current returns the resource of a name as it should be, nil for none.
func (t *groupType) current(name string) *resource.Resource {
	built := t.built[name]
	if built == nil || built.Resource == nil {
		return nil
	}
	if t.parts != nil {
		if c := t.composed[name]; c != nil {
			return c.Resource
		}
		return nil // it could not be put together yet
	}
	if versions := t.includedVersions(name); versions != "" {
		return t.memo.Under(built, versions)
	}
	return built.Resource
}

// close releases what the type holds.
func (t *groupType) close() {
	t.table.close()
	for name := range t.uncomposed {
		t.clearFailure(t.uncomposed, name)
	}
	t.memo.Release(slices.Collect(maps.Values(t.built))...)
	t.memo.Release(slices.Collect(maps.Values(t.composed))...)
	clear(t.built)
	clear(t.composed)
}
