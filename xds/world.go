package xds

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/memo"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// world is all resources that one class of proxies should have, by type, and how
// they are brought from one context to the next at the cost of what changed. It
// is used by one goroutine.
type world struct {
	proxy  *discovery.Proxy
	memo   *memo.Memo
	logger *slog.Logger

	context *mesh.PushContext
	class   *mesh.Class
	types   []*typeWorld
}

// typeWorld is the resources of one type.
type typeWorld struct {
	generator generate.Generator
	// parent is the type whose versions the versions of this one cover, nil for
	// none.
	parent *typeWorld
	// traces are what the resources were built from; failed names those which could
	// not be built the last time, whatever their trace says.
	traces map[string]*memo.Trace
	failed map[string]struct{}
	set    resource.Set
	before resource.Set // as it was one context earlier
}

// newWorld makes the empty world of a proxy, of the types that are served.
func newWorld(proxy *discovery.Proxy, types []ResourceType, m *memo.Memo, logger *slog.Logger) *world {
	w := &world{proxy: proxy, memo: m, logger: logger}
	byURL := map[string]*typeWorld{}
	for _, served := range types {
		t := &typeWorld{generator: served.For(proxy.Type), traces: map[string]*memo.Trace{}, failed: map[string]struct{}{}}
		if served.CoverParent {
			t.parent = byURL[served.Parent]
		}
		byURL[served.Generator.TypeURL()] = t
		w.types = append(w.types, t)
	}
	return w
}

// advance brings the resources to a context.
func (w *world) advance(to *mesh.PushContext) {
	if w.context == to {
		return
	}
	class := to.ClassAfter(w.context, w.proxy, w.class)
	from := w.context
	if class != w.class {
		from = nil
	}
	delta := mesh.Diff(from, to)
	view := mesh.NewView(to, class)
	var changed []mesh.RowKey
	if !delta.Whole {
		changed = slices.Collect(delta.Keys())
	}
	for _, t := range w.types {
		t.before = t.set
		w.advanceType(t, view, delta, changed)
	}
	w.context, w.class = to, class
}

// advanceType builds again what the delta may concern: the names that may
// appear or go, and those built from a changed row.
func (w *world) advanceType(t *typeWorld, view *mesh.View, delta mesh.Delta, changed []mesh.RowKey) {
	names := maps.Clone(t.failed)
	for name := range t.generator.Affected(view, delta) {
		names[name] = struct{}{}
	}
	if delta.Whole {
		for name := range t.traces {
			names[name] = struct{}{}
		}
	}
	for _, name := range w.memo.Readers(t.generator.TypeURL(), view.Shape(), changed) {
		if _, known := t.traces[name]; known {
			names[name] = struct{}{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		w.rebuild(t, view, name)
	}
	if t.parent != nil {
		for c := range pmap.Diff(t.parent.before, t.parent.set) {
			t.put(c.Key)
		}
	}
}

// rebuild takes a resource as the view has it. One that cannot be built keeps
// its last good form, and is tried again with the next change.
func (w *world) rebuild(t *typeWorld, view *mesh.View, name string) {
	trace, err := w.memo.Build(view, t.generator, name)
	if err != nil {
		w.logger.Error("resource not built, the last one is kept", "type", t.generator.TypeURL(), "name", name,
			"proxy", w.proxy.ID, "err", err)
		t.failed[name] = struct{}{}
		return
	}
	delete(t.failed, name)
	if old := t.traces[name]; old != nil {
		w.memo.Release(old)
	}
	t.traces[name] = trace
	t.put(name)
	if trace.Resource == nil {
		delete(t.traces, name)
		w.memo.Release(trace)
	}
}

// put brings one name of the set in line with its trace and its parent.
func (t *typeWorld) put(name string) {
	var built *resource.Resource
	if trace := t.traces[name]; trace != nil {
		built = trace.Resource
	}
	if built == nil {
		t.set = t.set.Delete(name)
		return
	}
	if t.parent != nil {
		if parent, ok := t.parent.set.Get(name); ok {
			built = built.Under(parent.Version)
		}
	}
	if old, ok := t.set.Get(name); !ok || old.Version != built.Version {
		t.set = t.set.Set(name, built)
	}
}

// close gives up what the world holds.
func (w *world) close() {
	for _, t := range w.types {
		for _, trace := range t.traces {
			w.memo.Release(trace)
		}
		clear(t.traces)
	}
}

// resources returns the set of a type; none for a type that is not generated.
func (w *world) resources(typeURL string) resource.Set {
	for _, t := range w.types {
		if t.generator.TypeURL() == typeURL {
			return t.set
		}
	}
	return resource.Set{}
}

// walk builds every resource of a type anew, without memo or delta: what the set
// must equal at any time. It is the oracle of tests.
func walk(g generate.Generator, to *mesh.PushContext, class *mesh.Class) (map[string]*resource.Resource, error) {
	view := mesh.NewView(to, class)
	out := map[string]*resource.Resource{}
	for name := range g.Affected(view, mesh.Diff(nil, to)) {
		r, err := g.Build(view, name)
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", name, err)
		}
		if r != nil {
			out[name] = r
		}
	}
	return out, nil
}
