package desired

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/portolan-mesh/portolan/xds/desired/memo"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// Groups are the groups of all classes that have members. They are safe for
// concurrent use.
type Groups struct {
	types    []generate.ResourceType
	urls     []string // of the types
	memo     *memo.Memo
	failures *failures

	mu      sync.Mutex // guards the fields below, and the members of each group
	byClass map[mesh.Class]*Group
	made    int // number of groups made so far
}

// New returns the groups for the served types; there is none before the first member. It
// calls changed after each change of Failures.
func New(types []generate.ResourceType, logger *slog.Logger, changed func()) *Groups {
	urls := make([]string, len(types))
	for i, t := range types {
		urls[i] = t.Generator.TypeURL()
	}
	return &Groups{
		types: types, urls: urls, memo: memo.New(), failures: newFailures(logger, changed),
		byClass: map[mesh.Class]*Group{},
	}
}

// enter counts a member into the group of a class, and makes the group if there is none.
func (gs *Groups) enter(class mesh.Class) *Group {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.byClass[class]
	if g == nil {
		gs.made++
		g = newGroup(class, gs, gs.made)
		gs.byClass[class] = g
	}
	g.members++
	return g
}

// leave counts a member out. A group without members is closed.
func (gs *Groups) leave(g *Group) {
	gs.mu.Lock()
	g.members--
	last := g.members == 0
	if last {
		delete(gs.byClass, g.class)
	}
	gs.mu.Unlock()
	if last {
		g.close()
	}
}

// kin returns the other groups whose classes differ from this one only in traits, the
// oldest first.
func (g *Group) kin() (all []*Group) {
	g.groups.mu.Lock()
	defer g.groups.mu.Unlock()
	for class, other := range g.groups.byClass {
		if other != g && class.WithoutTraits() == g.class.WithoutTraits() {
			all = append(all, other)
		}
	}
	slices.SortFunc(all, func(a, b *Group) int { return a.serial - b.serial })
	return all
}

// Built returns how many built resources are held.
func (gs *Groups) Built() int { return gs.memo.Len() }

// Uses returns the objects that the resources of all members are made of.
func (gs *Groups) Uses() *memo.Uses { return &gs.memo.Uses }

// Failures returns the resources that cannot be built, in order. Proxies keep the last
// good form of each.
func (gs *Groups) Failures() []Failure { return gs.failures.list() }
