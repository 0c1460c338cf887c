package desired

import (
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/desired/memo"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Member is one proxy's view of its group: the resources of its class, and those of its
// own workload. One goroutine at a time uses it.
type Member struct {
	groups   *Groups
	proxy    *discovery.Proxy
	class    mesh.Class
	group    *Group         // nil before the first Advance
	at       *snapshot      // of the group; nil before the first Advance
	workload []workloadType // in the order of the types
	reads    *mesh.Rows     // what the workload's resources were built from; see settled
}

// Join makes the member of a proxy. It is in no group until it advances.
func (gs *Groups) Join(proxy *discovery.Proxy) *Member {
	m := &Member{groups: gs, proxy: proxy, workload: make([]workloadType, len(gs.types))}
	for i, t := range gs.types {
		m.workload[i].typeName, m.workload[i].failures, m.workload[i].uses = t.Name, gs.failures, &gs.memo.Uses
		if m.workload[i].own = true; t.Alike {
			m.workload[i].memo = gs.memo
		}
		if own := t.Own(proxy); own != nil {
			m.workload[i].generator = own
		}
	}
	return m
}

// SetProxy replaces the proxy's description, from the next Advance on.
func (m *Member) SetProxy(proxy *discovery.Proxy) { m.proxy, m.at, m.reads = proxy, nil, nil }

// Advance brings what the proxy should have to the newest context. The group may be at a
// newer context than the one by which the class of the proxy was found, and the proxy of
// another class there. So it repeats until both are of one context.
func (m *Member) Advance(newest func() *mesh.PushContext) {
	var from *mesh.PushContext
	before := m.at
	if before != nil {
		from = before.push
	}
	for to := newest(); ; from, to = to, m.at.push {
		m.move(to.ClassAfter(from, m.proxy, m.class))
		if m.at = m.group.advance(newest); m.at.push == to {
			break
		}
	}
	var view *mesh.View // nil if the workload's resources stay as they are
	if !m.unchangedSince(before) {
		view = m.at.view.Of(m.proxy)
	}
	for i := range m.workload {
		w := &m.workload[i]
		if view != nil && m.groups.types[i].Needed {
			w.setNames(m.needed(i))
		}
		w.advance(view, m.at.push, m.at.byType[i])
	}
	if view != nil {
		m.remember(view)
	}
}

// unchangedSince says whether the workload's own resources stay as they are: no row that they
// follow from has changed since an earlier snapshot, and none failed to build.
func (m *Member) unchangedSince(before *snapshot) bool {
	switch {
	case before == m.at:
		return true
	case before == nil || !m.at.view.SameScope(before.view) || !slices.EqualFunc(m.at.needed, before.needed, sameNames):
		return false
	}
	changed, known := m.at.push.Since(before.push)
	if !known || m.reads.Meets(changed) {
		return false
	}
	for i := range m.workload {
		if len(m.workload[i].failed) > 0 {
			return false
		}
	}
	return true
}

func sameNames(a, b pmap.Map[int]) bool {
	for c := range pmap.Diff(a, b) {
		if c.HasOld != c.HasNew {
			return false
		}
	}
	return true
}

// needed returns, in order, the names of a type of secrets that the other resources of
// the proxy need. typ is the index of the type.
func (m *Member) needed(typ int) []string {
	out := slices.Collect(m.at.needed[typ].Keys())
	for i := range m.workload {
		if m.workload[i].generator == nil || m.groups.types[i].Needed {
			continue
		}
		for _, r := range m.workload[i].set.All() {
			out = appendNeeds(out, r, m.groups.urls[typ])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// remember notes what the workload's resources were built from.
func (m *Member) remember(view *mesh.View) {
	anew := m.reads == nil
	for i := range m.workload {
		anew = anew || m.workload[i].asksAnew
		m.workload[i].asksAnew = false
	}
	if !anew {
		return
	}
	var questions [][]mesh.Dependency
	for i := range m.workload {
		questions = append(questions, m.workload[i].reads)
		for _, built := range m.workload[i].built {
			questions = append(questions, built.Reads())
		}
	}
	reads := view.RowsOf(questions...)
	m.reads = &reads
}

// Reads returns the rows that the resources of its own workload were built from, nil
// before the first Advance. They are never modified.
func (m *Member) Reads() *mesh.Rows { return m.reads }

// move changes the member to the group of a class. It enters that before it leaves the
// old one, so that resources that both groups hold stay.
func (m *Member) move(class mesh.Class) {
	if m.group != nil && m.class == class {
		return
	}
	old := m.group
	m.group, m.class = m.groups.enter(class), class
	if old != nil {
		m.groups.leave(old)
	}
}

// Context returns the context that the proxy's resources were built from; nil before the
// first Advance.
func (m *Member) Context() *mesh.PushContext {
	if m.at == nil {
		return nil
	}
	return m.at.push
}

// Resources returns what the proxy should have of a type; nothing for a type that is
// not served.
func (m *Member) Resources(typeURL string) resource.Set {
	if i := slices.Index(m.groups.urls, typeURL); i >= 0 {
		return m.workload[i].all
	}
	return resource.Set{}
}

// Origins returns the objects that a resource was last built from: the EnvoyFilters that patched it
// first, then the others in the order of their paths. typ is the index of its type.
func (m *Member) Origins(typ int, name string) []config.Key { return m.has(typ, name).Origins() }

// Patches returns what became of the patches of EnvoyFilters on a resource, also on one that they
// removed, in their order. The caller must not modify the result.
func (m *Member) Patches(typeURL, name string) []mesh.PatchNote {
	if typ := slices.Index(m.groups.urls, typeURL); typ >= 0 {
		return m.has(typ, name).Patches()
	}
	return nil
}

// has returns a resource with what it was built from: that of the workload, if there is one.
func (m *Member) has(typ int, name string) *memo.Built {
	if m.group == nil {
		return nil
	}
	if own := m.workload[typ].built[name]; own != nil && (own.Resource != nil || len(own.Patches()) > 0) {
		return own
	}
	return m.group.has(typ, name)
}

// Close gives up what the member holds.
func (m *Member) Close() {
	if m.group != nil {
		m.groups.leave(m.group)
		m.group = nil
	}
	for i := range m.workload {
		m.workload[i].close()
	}
}
