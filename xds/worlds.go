package xds

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/memo"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// worlds are those of all classes that have members. They are safe for concurrent
// use.
type worlds struct {
	types  []ResourceType
	urls   []string // of the types
	memo   *memo.Memo
	logger *slog.Logger

	mu      sync.Mutex // guards the fields below, and the members of each world
	byClass map[mesh.Class]*world
}

func newWorlds(types []ResourceType, m *memo.Memo, logger *slog.Logger) *worlds {
	urls := make([]string, len(types))
	for i, t := range types {
		urls[i] = t.Generator.TypeURL()
	}
	return &worlds{types: types, urls: urls, memo: m, logger: logger, byClass: map[mesh.Class]*world{}}
}

// enter counts a member into the world of a class.
func (ws *worlds) enter(class mesh.Class) *world {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byClass[class]
	if w == nil {
		w = newWorld(class, ws.types, ws.memo, ws.logger)
		ws.byClass[class] = w
	}
	w.members++
	return w
}

// leave counts a member out. A world without members is given up.
func (ws *worlds) leave(w *world) {
	ws.mu.Lock()
	w.members--
	last := w.members == 0
	if last {
		delete(ws.byClass, w.class)
	}
	ws.mu.Unlock()
	if last {
		w.close()
	}
}

// count is how many classes have members.
func (ws *worlds) count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.byClass)
}

// join makes the place of a proxy among the worlds; it is in none until it
// advances.
func (ws *worlds) join(proxy *discovery.Proxy) *place {
	p := &place{worlds: ws, proxy: proxy, own: make([]own, len(ws.types))}
	for i, t := range ws.types {
		if t.Inbound != nil && proxy.Type == discovery.Sidecar {
			p.own[i].generator = t.Inbound
		}
	}
	return p
}

// place is where a proxy stands among the worlds: in that of its class, with the
// resources of its workload beside. It is used by one goroutine.
type place struct {
	worlds *worlds
	proxy  *discovery.Proxy
	class  mesh.Class
	world  *world    // nil before the first advance
	at     *sets     // what the proxy should have, its own apart; nil likewise
	own    []own     // in the order of the types
	reads  mesh.Rows // what its own resources were built from; see settled
}

// become has the place be that of the same proxy of which other things are known,
// from the next advance on.
func (p *place) become(proxy *discovery.Proxy) { p.proxy, p.at = proxy, nil }

// advance brings what the proxy should have to the newest context. The world may
// be further ahead than the context that the class was derived in, and the proxy of
// another class there.
func (p *place) advance(newest func() *mesh.PushContext) {
	var from *mesh.PushContext
	before := p.at
	if before != nil {
		from = before.context
	}
	for to := newest(); ; from, to = to, p.at.context {
		p.move(to.ClassAfter(from, p.proxy, p.class))
		if p.at = p.world.advance(newest); p.at.context == to {
			break
		}
	}
	var view *mesh.View // nil where nothing is to be asked
	if !p.settled(before) {
		view = p.at.view.Of(p.proxy)
	}
	for i := range p.own {
		p.own[i].advance(view, p.at, i, p.worlds.logger)
	}
	if view != nil {
		p.remember()
	}
}

// settled says that what is the workload's own follows from rows of which none has
// changed since the place had earlier sets: there is nothing to look at.
func (p *place) settled(before *sets) bool {
	switch {
	case before == p.at:
		return true
	case before == nil || !p.at.view.SameScope(before.view):
		return false
	}
	changed, known := p.at.context.Since(before.context)
	return known && !p.reads.Meets(changed) && !slices.ContainsFunc(p.own, func(o own) bool { return o.failed })
}

// remember takes note of what the workload's own resources were built from.
func (p *place) remember() {
	var questions [][]mesh.Recorded
	for i := range p.own {
		questions = append(questions, p.own[i].named)
		for _, built := range p.own[i].built {
			questions = append(questions, built.reads)
		}
	}
	p.reads = mesh.RowsOf(questions...)
}

// move goes from one world to another. What both hold is not given up between.
func (p *place) move(class mesh.Class) {
	if p.world != nil && p.class == class {
		return
	}
	old := p.world
	p.world, p.class = p.worlds.enter(class), class
	if old != nil {
		p.worlds.leave(old)
	}
}

// context is the one that the proxy's resources are of.
func (p *place) context() *mesh.PushContext { return p.at.context }

// resources returns the set of a type; none for a type that is not generated.
func (p *place) resources(typeURL string) resource.Set {
	if i := slices.Index(p.worlds.urls, typeURL); i >= 0 {
		return p.own[i].set
	}
	return resource.Set{}
}

// origins are the objects that a resource of a type, by its place, was built from
// last.
func (p *place) origins(typ int, name string) []config.Key {
	if one := p.own[typ].built[name]; one.resource != nil {
		return mesh.Origins(one.reads)
	}
	return mesh.Origins(p.world.reads(typ, name))
}

// close gives up what the place holds.
func (p *place) close() {
	if p.world != nil {
		p.worlds.leave(p.world)
		p.world = nil
	}
}
