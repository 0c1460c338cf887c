package desired

import (
	"iter"
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/desired/memo"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Viewer is a proxy for which Foresee compares two contexts.
type Viewer struct {
	Proxy *discovery.Proxy
	// Reads are the rows that the resources of its own workload were last built from
	// (Member.Reads); nil where they are not known.
	Reads *mesh.Rows
}

// Difference is a resource that differs between two contexts; Before or After is nil if
// there is none. A composed resource is compared by its frame alone, since its parts are
// resources too.
type Difference struct {
	Type, TypeURL string // the short name of the type, and its URL
	Name          string
	Before, After *resource.Resource
}

// Foresee returns, for each viewer, the resources that differ between a context and one
// that was derived from it, in the order of the types. The second need not be published,
// and nothing of it is sent to proxies. A resource that cannot be built in the second is
// left out, since proxies keep what they have. One that only others need is compared if
// a resource of the proxy needs it, in either context or in what its group has. Proxies of one class share the
// differences; the caller must not modify them. The cost follows what differs.
func (gs *Groups) Foresee(from, to *mesh.PushContext, viewers []Viewer) [][]Difference {
	f := &foresight{groups: gs, from: from, to: to, changes: map[classChange]*compared{}}
	defer func() { gs.memo.Release(f.held...) }()
	out := make([][]Difference, len(viewers))
	for i, v := range viewers {
		class := from.ClassOf(v.Proxy)
		c := f.compare(classChange{class, to.ClassAfter(from, v.Proxy, class)})
		out[i] = c.shared
		if own := f.compareOwn(c, v); len(own) > 0 {
			out[i] = slices.Concat(c.shared, own)
		}
	}
	return out
}

type foresight struct {
	groups   *Groups
	from, to *mesh.PushContext
	changes  map[classChange]*compared
	held     []*memo.Built // to be released
}

// classChange is the class of a proxy in the first context and in the second.
type classChange struct{ before, after mesh.Class }

// compared is what proxies with one change of class share.
type compared struct {
	before, after *mesh.View
	sameScope     bool
	shared        []Difference
	needing       []*resource.Resource // built for the comparison, and need some of the workload
}

func (f *foresight) compare(x classChange) *compared {
	c := f.changes[x]
	if c != nil {
		return c
	}
	c = &compared{before: mesh.NewView(f.from, x.before), after: mesh.NewView(f.to, x.after)}
	c.sameScope = c.after.SameScope(c.before)
	f.changes[x] = c
	for typ, t := range f.groups.types {
		g := t.For(x.before.Shape.Type)
		for _, name := range f.concerned(c, typ, g) {
			before, err := f.build(c.before, g, name)
			if err != nil {
				continue
			}
			after, err := f.build(c.after, g, name)
			if err != nil {
				continue
			}
			c.shared = appendDifference(c.shared, t, name, before, after)
			for _, r := range []*resource.Resource{before, after} {
				if f.needsOwn(r) {
					c.needing = append(c.needing, r)
				}
			}
		}
	}
	return c
}

// concerned returns, in order, the names of the resources of a type that may differ for a
// class. These are the ones that may appear or go, and those of the class's group that
// were built from a row which differs. If the group is behind from, what has changed
// since counts too.
func (f *foresight) concerned(c *compared, typ int, g generate.Generator) []string {
	names := map[string]struct{}{}
	add := func(all iter.Seq[string]) {
		for name := range all {
			names[name] = struct{}{}
		}
	}
	has := f.present(c)
	if has == nil {
		add(g.Affected(c.before, mesh.Diff(nil, f.from)))
		add(g.Affected(c.after, mesh.Diff(nil, f.to)))
		return slices.Sorted(maps.Keys(names))
	}
	follow := func(view *mesh.View, delta mesh.Delta) {
		add(g.Affected(view, delta))
		for _, name := range f.groups.memo.Readers(g.TypeURL(), view.Shape(), delta.Keys()) {
			if _, known := has.byType[typ].Get(name); known || has.removed[typ].Value(name) {
				names[name] = struct{}{}
			}
		}
	}
	follow(c.after, mesh.Diff(f.from, f.to))
	if has.push != f.from {
		follow(c.before, mesh.Diff(has.push, f.from))
	}
	return slices.Sorted(maps.Keys(names))
}

// present returns what the group of a class has, maybe of an earlier context than from. It
// returns nil if there is no such group, or if the class sees another scope, so that all
// resources may differ.
func (f *foresight) present(c *compared) *snapshot {
	if !c.sameScope {
		return nil
	}
	f.groups.mu.Lock()
	g := f.groups.byClass[c.before.Class()]
	f.groups.mu.Unlock()
	if g == nil {
		return nil
	}
	s := g.newest.Load()
	if s == nil || !c.after.SameScope(s.view) {
		return nil
	}
	return s
}

// build builds a resource, or takes one that the groups have.
func (f *foresight) build(v *mesh.View, g generate.Generator, name string) (*resource.Resource, error) {
	built, err := f.groups.memo.Build(v, g, name)
	if err != nil {
		return nil, err
	}
	f.held = append(f.held, built)
	return built.Resource, nil
}

// compareOwn compares the resources of the viewer's own workload. They are the same if no row
// differs that they were built from.
func (f *foresight) compareOwn(c *compared, v Viewer) (out []Difference) {
	others := slices.Clip(c.needing)
	if changed, known := f.to.Since(f.from); known && c.sameScope && len(others) == 0 && v.Reads != nil && !v.Reads.Meets(changed) {
		return nil
	}
	before, after := c.before.Of(v.Proxy), c.after.Of(v.Proxy)
	for typ, t := range f.groups.types {
		generator := t.Own(v.Proxy)
		if generator == nil || t.Needed && !t.Alike { // secrets are not compared: the clusters and listeners that need them are
			continue
		}
		var names []string
		if t.Needed {
			names = f.needed(c, typ, others)
		} else {
			names = slices.AppendSeq(slices.Collect(generator.Affected(before, mesh.Diff(nil, f.from))), generator.Affected(after, mesh.Diff(nil, f.to)))
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			was, err := memo.Alone(before, generator, name)
			if err != nil {
				continue
			}
			is, err := memo.Alone(after, generator, name)
			if err != nil {
				continue
			}
			others = append(others, was.Resource, is.Resource)
			out = appendDifference(out, t, name, was.Resource, is.Resource)
		}
	}
	return out
}

// needsOwn says whether a resource needs one of a workload that is compared.
func (f *foresight) needsOwn(r *resource.Resource) bool {
	return r != nil && slices.ContainsFunc(r.Needs, func(n resource.Need) bool {
		typ := slices.Index(f.groups.urls, n.TypeURL)
		return n.Kind == resource.Once && typ >= 0 && f.groups.types[typ].Needed && f.groups.types[typ].Alike
	})
}

// needed returns names of a type that the resources of a group, and some others, need.
func (f *foresight) needed(c *compared, typ int, others []*resource.Resource) []string {
	var out []string
	if has := f.present(c); has != nil {
		out = slices.Collect(has.needed[typ].Keys())
	}
	for _, r := range others {
		if r != nil {
			out = appendNeeds(out, r, f.groups.urls[typ])
		}
	}
	return out
}

// appendNeeds appends the names of a type that a resource needs once.
func appendNeeds(to []string, r *resource.Resource, typeURL string) []string {
	for _, n := range r.Needs {
		if n.Kind == resource.Once && n.TypeURL == typeURL {
			to = append(to, n.Name)
		}
	}
	return to
}

func appendDifference(all []Difference, t generate.ResourceType, name string, before, after *resource.Resource) []Difference {
	if before == after || before != nil && after != nil && before.Version == after.Version {
		return all
	}
	return append(all, Difference{t.Name, t.Generator.TypeURL(), name, before, after})
}
