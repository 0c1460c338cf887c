package desired

import (
	"maps"

	"github.com/portolan-mesh/portolan/xds/mesh"
)

// beginAsKin makes a new group take over the resources of another group, whose class differs
// only in its traits. It returns them as the snapshot to go on from; nil if there is no
// such group. Only what was built from a trait, or is absent because of one, is built
// again. So a proxy in a further locality costs only what depends on localities.
//
// Of younger groups it uses only those that have resources already: docs/locks.md says why.
func (g *Group) beginAsKin() *snapshot {
	for _, other := range g.kin() {
		if other.serial < g.serial || other.newest.Load() != nil {
			if s := g.beginAs(other); s != nil {
				return s
			}
		}
	}
	return nil
}

// beginAs is beginAsKin with one other group; nil if that has no resources yet, or was closed.
func (g *Group) beginAs(other *Group) *snapshot {
	other.mu.Lock()
	defer other.mu.Unlock()
	s := other.newest.Load()
	if s == nil {
		return nil
	}
	again := map[*groupType]map[string]struct{}{}
	for i, t := range g.types {
		again[t] = t.beginAs(other.types[i])
		t.coverage = other.types[i].coverage.in(g)
	}
	view := mesh.NewView(s.push, g.class)
	g.refreshNamed(view, false, func(t *groupType) map[string]struct{} { return again[t] })
	return &snapshot{push: s.push, view: view}
}

// beginAs takes over what the type holds in another group. It returns the names to build
// again: names that were built from a trait, and names that could not be built there.
func (t *groupType) beginAs(other *groupType) (again map[string]struct{}) {
	t.set, t.built = other.set, maps.Clone(other.built)
	t.composed, t.sums = maps.Clone(other.composed), maps.Clone(other.sums)
	t.absent, t.removed = maps.Clone(other.absent), other.removed
	again = map[string]struct{}{}
	maps.Copy(again, other.absent)
	for name, built := range t.built {
		if built.ReadsTrait() {
			again[name] = struct{}{}
		}
	}
	for _, failed := range [...]map[string]failure{other.failed, other.uncomposed} {
		for name := range failed { // a last good form stays only in the groups that have it
			again[name] = struct{}{}
			delete(t.built, name)
			delete(t.composed, name)
		}
	}
	t.memo.Share(maps.Values(t.built))
	t.memo.Share(maps.Values(t.composed))
	return again
}

// noteAbsent notes whether a name has no resource, maybe because of a trait.
func (t *groupType) noteAbsent(name string, byTrait bool) {
	if !byTrait {
		delete(t.absent, name)
		return
	}
	if t.absent == nil {
		t.absent = map[string]struct{}{}
	}
	t.absent[name] = struct{}{}
}

// in returns a copy of a coverage, with the types of group g in place of those of its own
// group.
func (c coverage) in(g *Group) (out coverage) {
	out.needed = c.needed
	for _, t := range c.same {
		out.same = append(out.same, g.byURL[t.url])
	}
	for name, all := range c.others {
		for _, one := range all {
			if out.others == nil {
				out.others = map[string][]covered{}
			}
			out.others[name] = append(out.others[name], covered{g.byURL[one.typ.url], one.name})
		}
	}
	return out
}
