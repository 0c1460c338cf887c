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
	// kin are the same groups, by their classes without traits.
	kin map[mesh.Class][]*Group
}

// New makes the groups of the proxies that are served some types. It calls changed
// after each change of Failures.
func New(types []generate.ResourceType, logger *slog.Logger, changed func()) *Groups {
	urls := make([]string, len(types))
	for i, t := range types {
		urls[i] = t.Generator.TypeURL()
	}
	return &Groups{
		types: types, urls: urls, memo: memo.New(), failures: newFailures(logger, changed),
		byClass: map[mesh.Class]*Group{}, kin: map[mesh.Class][]*Group{},
	}
}

// enter counts a member into the group of a class.
func (gs *Groups) enter(class mesh.Class) *Group {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.byClass[class]
	if g == nil {
		g = newGroup(class, gs.types, gs.memo, gs.failures, gs.kinOf)
		gs.byClass[class] = g
		gs.kin[class.WithoutTraits()] = append(gs.kin[class.WithoutTraits()], g)
	}
	g.members++
	return g
}

// leave counts a member out. A group without members is given up.
func (gs *Groups) leave(g *Group) {
	gs.mu.Lock()
	g.members--
	last := g.members == 0
	if last {
		delete(gs.byClass, g.class)
		gs.unkin(g)
	}
	gs.mu.Unlock()
	if last {
		g.close()
	}
}

// kinOf returns the groups whose classes are equal to one but for their traits, the oldest
// first. The group of the class itself is among them.
func (gs *Groups) kinOf(class mesh.Class) []*Group {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return slices.Clone(gs.kin[class.WithoutTraits()])
}

// unkin takes a group out of its kin. The caller holds the lock.
func (gs *Groups) unkin(g *Group) {
	class := g.class.WithoutTraits()
	gs.kin[class] = slices.DeleteFunc(gs.kin[class], func(o *Group) bool { return o == g })
	if len(gs.kin[class]) == 0 {
		delete(gs.kin, class)
	}
}

// Built is how many built resources are held.
func (gs *Groups) Built() int { return gs.memo.Len() }

// Uses are the objects that the resources of all members are made of.
func (gs *Groups) Uses() *memo.Uses { return &gs.memo.Uses }

// Failures are the resources that cannot be built, in order. Proxies keep the last good
// form of each.
func (gs *Groups) Failures() []Failure { return gs.failures.list() }
