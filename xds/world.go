package xds

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/memo"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// world is all resources that the proxies of one class should have, by type, and
// how they are brought from one context to the next at the cost of what changed.
// The first member that asks has it done, the others take what came of it.
type world struct {
	class  mesh.Class
	memo   *memo.Memo
	logger *slog.Logger

	members int // guarded by worlds.mu

	newest atomic.Pointer[sets] // nil before the first

	mu    sync.Mutex   // guards the fields below; held while resources are built
	types []*typeWorld // in the order of the server
	order []*typeWorld // parts before what is composed of them
}

// sets are the resources of a class in one context. They are never modified.
type sets struct {
	context *mesh.PushContext
	view    *mesh.View
	byType  []resource.Set // in the order of the server
}

// newWorld makes the empty world of a class, of the types that are served.
func newWorld(class mesh.Class, types []ResourceType, m *memo.Memo, logger *slog.Logger) *world {
	w := &world{class: class, memo: m, logger: logger}
	byURL := map[string]*typeWorld{}
	for _, served := range types {
		t := newTypeWorld(served.For(class.Shape.Type))
		if served.CoverParent {
			t.parent = byURL[served.Parent]
		}
		byURL[t.url] = t
		w.types = append(w.types, t)
	}
	for _, t := range w.types {
		if t.composer != nil {
			t.parts = byURL[t.composer.PartsURL()]
		}
		if t.parts != nil {
			w.order = append(w.order, t.parts)
		}
		w.order = append(w.order, t)
	}
	w.order = distinct(w.order)
	return w
}

// distinct are the first of equals, in order.
func distinct(in []*typeWorld) []*typeWorld {
	var out []*typeWorld
	for _, t := range in {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// advance brings the resources to the newest context, and returns them.
func (w *world) advance(newest func() *mesh.PushContext) *sets {
	if s := w.newest.Load(); s != nil && s.context == newest() {
		return s
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	from, to := w.newest.Load(), newest()
	if from != nil && from.context == to {
		return from
	}
	view := mesh.NewView(to, w.class)
	w.build(view, w.delta(from, to, view))
	next := &sets{context: to, view: view}
	for _, t := range w.types {
		next.byType = append(next.byType, t.set)
	}
	w.newest.Store(next)
	return next
}

// delta is what changed for the class: everything, where what its proxies see is
// decided anew.
func (w *world) delta(from *sets, to *mesh.PushContext, view *mesh.View) mesh.Delta {
	if from == nil || !view.SameScope(from.view) {
		return mesh.Diff(nil, to)
	}
	return mesh.Diff(from.context, to)
}

func (w *world) build(view *mesh.View, delta mesh.Delta) {
	var changed []mesh.RowKey
	if !delta.Whole {
		changed = slices.Collect(delta.Keys())
	}
	var old []*memo.Trace
	for _, t := range w.order {
		t.before = t.set
		names := slices.Sorted(maps.Keys(w.concerned(t, view, delta, changed)))
		for _, name := range names {
			old = append(old, w.rebuild(t, view, name))
		}
		dirty := names
		if t.parts != nil {
			dirty = w.compose(t, names)
		}
		t.update(w.memo, dirty, delta.Whole)
	}
	w.memo.Release(old...)
}

// concerned names what the delta may concern: the names that may appear or go,
// those built from a changed row, and those that could not be built.
func (w *world) concerned(t *typeWorld, view *mesh.View, delta mesh.Delta, changed []mesh.RowKey) map[string]struct{} {
	names := map[string]struct{}{}
	for name := range t.failed {
		names[name] = struct{}{}
	}
	for name := range t.generator.Affected(view, delta) {
		names[name] = struct{}{}
	}
	if delta.Whole {
		for name := range t.traces {
			names[name] = struct{}{}
		}
	}
	for _, name := range w.memo.Readers(t.url, view.Shape(), changed) {
		if _, known := t.traces[name]; known {
			names[name] = struct{}{}
		}
	}
	return names
}

// rebuild takes a resource as the view has it, and returns the trace that is to
// be released. One that cannot be built keeps its last good form, and is tried
// again with the next change.
func (w *world) rebuild(t *typeWorld, view *mesh.View, name string) (old *memo.Trace) {
	trace, err := w.memo.Build(view, t.generator, name)
	if err != nil {
		w.fail(t, name, err)
		return nil
	}
	delete(t.failed, name)
	old = t.traces[name]
	if trace.Resource != nil {
		t.traces[name] = trace
		return old
	}
	delete(t.traces, name)
	w.memo.Release(trace)
	return old
}

func (w *world) fail(t *typeWorld, name string, err error) {
	t.failed[name] = struct{}{}
	w.logger.Error("resource not built, the last one is kept", "type", t.url, "name", name,
		"namespace", w.class.Namespace, "err", err)
}

// compose puts those resources together again of which the own or a part changed,
// and names them.
func (w *world) compose(t *typeWorld, own []string) (dirty []string) {
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
		w.composeOne(t, name)
	}
	return dirty
}

func (w *world) composeOne(t *typeWorld, name string) {
	old, trace := t.composed[name], t.traces[name]
	if trace == nil {
		delete(t.composed, name)
	} else {
		parts := func(yield func(*resource.Resource) bool) {
			for _, part := range t.parts.set.Prefix(name + "/") {
				if wholeOf(part.Name) == name && !yield(part) {
					return
				}
			}
		}
		composed, err := w.memo.Compose(t.composer, trace.Resource, t.sums[name], parts)
		if err != nil {
			w.fail(t, name, err)
			return
		}
		t.composed[name] = composed
	}
	if old != nil {
		w.memo.ReleaseComposed(old)
	}
}

// wholeOf is the name of what a part is a part of.
func wholeOf(part string) string { return part[:max(strings.LastIndexByte(part, '/'), 0)] }

// reads are what the resource of a type, by its place, was built from; nil where
// there is none.
func (w *world) reads(typ int, name string) []mesh.Recorded {
	w.mu.Lock()
	defer w.mu.Unlock()
	if trace := w.types[typ].traces[name]; trace != nil {
		return trace.Reads()
	}
	return nil
}

// close gives up what the world holds. It has no members.
func (w *world) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.types {
		w.memo.Release(slices.Collect(maps.Values(t.traces))...)
		for _, c := range t.composed {
			w.memo.ReleaseComposed(c)
		}
		clear(t.traces)
		clear(t.composed)
	}
}

// typeWorld is the resources of one type in a world.
type typeWorld struct {
	url       string
	generator generate.Generator
	composer  generate.Composer // the same, where it composes; else nil
	// parent is the type whose versions the versions of this one cover, parts the
	// one that this one is composed of; nil for none.
	parent, parts *typeWorld
	// traces are what the resources were built from; failed names those which could
	// not be built the last time, whatever their trace says.
	traces map[string]*memo.Trace
	failed map[string]struct{}
	// composed are the resources, where traces are but their own part, and sums
	// those of their parts.
	composed map[string]*memo.Composed
	sums     map[string]memo.Sum

	set    resource.Set
	before resource.Set // as it was one context earlier
}

func newTypeWorld(g generate.Generator) *typeWorld {
	t := &typeWorld{url: g.TypeURL(), generator: g, traces: map[string]*memo.Trace{}, failed: map[string]struct{}{}}
	if c, ok := g.(generate.Composer); ok {
		t.composer, t.composed, t.sums = c, map[string]*memo.Composed{}, map[string]memo.Sum{}
	}
	return t
}

// update brings the set in line with what was built, for the names that are dirty
// and those whose parent changed, or for all.
func (t *typeWorld) update(m *memo.Memo, dirty []string, all bool) {
	if all {
		t.fill(m)
		return
	}
	for _, name := range dirty {
		t.put(m, name)
	}
	if t.parent == nil {
		return
	}
	for c := range resource.Diff(t.parent.before, t.parent.set) {
		t.put(m, c.Key)
	}
}

func (t *typeWorld) put(m *memo.Memo, name string) {
	if built := t.current(m, name); built == nil {
		t.set = t.set.Delete(name)
	} else {
		t.set = t.set.Set(name, built)
	}
}

// fill makes the set from nothing.
func (t *typeWorld) fill(m *memo.Memo) {
	names := slices.Sorted(maps.Keys(t.traces))
	t.set = resource.FromSorted(func(yield func(string, *resource.Resource) bool) {
		for _, name := range names {
			if built := t.current(m, name); built != nil && !yield(name, built) {
				return
			}
		}
	})
}

// current is the resource of a name as it should be, nil for none: the one that
// the set has, unless that is of another version.
func (t *typeWorld) current(m *memo.Memo, name string) *resource.Resource {
	trace := t.traces[name]
	if trace == nil {
		return nil
	}
	built := trace.Resource
	if t.composer != nil && t.parts != nil {
		c := t.composed[name]
		if c == nil {
			return nil // it could not be put together yet
		}
		built = c.Resource
	}
	if t.parent != nil {
		if parent, ok := t.parent.set.Get(name); ok {
			built = m.Under(trace, parent.Version)
		}
	}
	if old, ok := t.set.Get(name); ok && built != nil && old.Version == built.Version {
		return old
	}
	return built
}
