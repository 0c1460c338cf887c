package delivery

import (
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Turn is when a changed resource of a type goes, among others of the type that change at the same
// time, see Type.Turn.
type Turn struct {
	// Number: what has a lower number goes first, and is acknowledged before.
	Number int
	// Interim goes in the place of the resource for now; nil for the resource itself.
	Interim *resource.Resource
}

// turns are the turns of the due changes of a type.
type turns struct {
	now int // the number of those that go now
	of  map[string]Turn
}

// turns returns the turns of what is due, nil if all may go at once: the type has none, only one
// resource changes, or the client rejects something, which is found by sending less at a time.
func (t *typeState) turns() *turns {
	if t.Turn == nil || t.sub.Searching() {
		return nil
	}
	var out *turns
	for has, wants := range t.sub.Changing() {
		if t.sub.Rejects(wants.Name) {
			return nil
		}
		turn := t.Turn(has, wants)
		if out == nil {
			out = &turns{now: turn.Number, of: map[string]Turn{}}
		}
		out.now, out.of[wants.Name] = min(out.now, turn.Number), turn
	}
	if out == nil || len(out.of) == 1 {
		return nil
	}
	return out
}

// within returns allow, less what waits for its turn.
func (w *turns) within(allow protocol.Allow) protocol.Allow {
	if w == nil {
		return allow
	}
	add, interim := allow.Add, allow.Interim
	allow.Add = func(name string) bool {
		turn, ok := w.of[name]
		return (!ok || turn.Number == w.now) && (add == nil || add(name))
	}
	allow.Interim = func(name string) *resource.Resource {
		if turn := w.of[name]; turn.Interim != nil || interim == nil {
			return turn.Interim
		}
		return interim(name)
	}
	return allow
}
