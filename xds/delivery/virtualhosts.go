package delivery

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// Virtual hosts by delta live within a route configuration, whose name is their scope.
// They are of an inner type, and route configurations of its outer type. The resources
// of a scope are sent once the client has acknowledged the route configuration, and
// again whenever that is new to the client. All changes within a scope go in one
// response.

// scopedTypes iterates over the inner types of a type that the client may request.
func (t *typeState) scopedTypes(yield func(*typeState) bool) {
	for _, inner := range t.inner {
		if !inner.Optional && !yield(inner) {
			return
		}
	}
}

// closeWithdrawn closes the scopes of outer resources that a response removes.
func (t *typeState) closeWithdrawn(r *protocol.Response) {
	for name := range r.Withdrawn {
		t.active().CloseScope(name)
	}
}

// rescope opens the scopes of resources that the client states, and closes those of
// resources that it unsubscribes from.
func (t *typeState) rescope(q protocol.Request, first bool) {
	for inner := range t.scopedTypes {
		if first {
			for _, has := range q.Initial {
				if t.sub.Wants(has.Name) {
					inner.active().OpenScope(strings.Clone(has.Name), false)
				}
			}
		}
		for name := range q.Unsubscribe.All() {
			if !t.sub.Wants(name) {
				inner.active().CloseScope(name)
			}
		}
	}
}

// mayStateScopes says whether a client that has stated outer resources may be about to
// state what it has within them.
func (t *typeState) mayStateScopes() bool {
	for inner := range t.scopedTypes {
		if t.stated && !inner.sub.Started() && t.sequencer.mayAskForMore() {
			return true
		}
	}
	return false
}

// mayStateEmptied says whether the client may be about to state virtual hosts of a route
// configuration that should have none. Their removal must be sent before the route
// configuration, which therefore waits.
func (t *typeState) mayStateEmptied(name string) bool {
	return t.mayStateScopes() && t.sub.Has(name) && slices.ContainsFunc(t.inner, func(inner *typeState) bool { return inner.sub.ScopeIsEmpty(name) })
}

// openAckedScopes opens the scopes of outer resources that the client has acknowledged. If
// an outer resource is new to the client, or it rejected an earlier version, the client may
// lack the inner resources that it has acknowledged.
func (t *typeState) openAckedScopes(flight protocol.Flight) {
	for inner := range t.scopedTypes {
		for r, isNew := range flight.Changed {
			if isNew && t.sub.Wants(r.Name) {
				inner.active().OpenScope(r.Name, true)
			}
		}
		for name := range t.rejectedOuter {
			if !t.notAcked(name) {
				inner.active().OpenScope(name, true)
			}
		}
	}
	maps.DeleteFunc(t.rejectedOuter, func(name string, _ struct{}) bool { return !t.notAcked(name) })
}

// notAcked says whether the client may lack the desired resource of a name.
func (t *typeState) notAcked(name string) bool {
	due, _ := t.sub.Due(name)
	return due || t.sub.Rejects(name)
}

func (t *typeState) noteRejectedOuter(flight protocol.Flight) {
	for range t.scopedTypes {
		for r := range flight.Changed {
			if t.rejectedOuter == nil {
				t.rejectedOuter = map[string]struct{}{}
			}
			t.rejectedOuter[r.Name] = struct{}{}
		}
	}
}

// wholeScopes allows the removals of an inner type together with its additions. A
// domain that moves between two hosts of a scope must never be in both or in none. A
// waiting scope waits with all its changes.
func (t *typeState) wholeScopes(waiting map[string]struct{}) protocol.Allow {
	if !t.Scoped {
		return protocol.Additions()
	}
	waits := func(name string) bool {
		_, ok := waiting[protocol.ScopeOf(name)]
		return ok
	}
	return protocol.Allow{
		Together: true,
		Add:      func(name string) bool { return !waits(name) },
		Remove:   func(name string) bool { return !waits(name) && !t.scopeDraining(protocol.ScopeOf(name)) },
	}
}

// scopeDraining says whether the client still uses a scope whose outer resource is to
// be removed: nothing is removed from it before.
func (t *typeState) scopeDraining(scope string) bool {
	return t.sub.ScopeOpen(scope) && t.outer != nil && t.outer.sub.Removing(scope)
}

// heldScopes returns the scopes that wait: a change in one sends traffic to a target that
// the client cannot use, or the client has not acknowledged its outer resource yet.
func (s *Sequencer) heldScopes(t *typeState, before map[string]time.Time, now time.Time) map[string]struct{} {
	settled := !t.sendsTraffic || s.target.allUsable()
	if settled && (t.outer == nil || !t.outer.sub.Pending()) {
		return nil
	}
	out, free := map[string]struct{}{}, map[string]struct{}{}
	for name := range t.sub.DueNames() {
		scope := protocol.ScopeOf(name)
		if _, waits := out[scope]; waits {
			continue
		}
		if _, passed := free[scope]; passed {
			continue
		}
		missing, waits := t.outerChanging(scope)
		if !waits && !settled {
			missing, waits = s.missing(t, name)
		}
		switch {
		case !waits:
		case s.hold(t, scope, missing, before, now):
			out[scope] = struct{}{}
		default:
			free[scope] = struct{}{}
		}
	}
	return out
}

// outerChanging says whether the client has yet to acknowledge the next version of a
// scope's outer resource.
func (t *typeState) outerChanging(scope string) (string, bool) {
	if t.outer == nil {
		return "", false
	}
	outer := t.outer.sub
	if due, _ := outer.Due(scope); due {
		return scope, true
	}
	return scope, outer.Desired(scope) != nil && !outer.InSync(scope) && !outer.Rejects(scope)
}

// scopeToEmpty returns the scope of a name if it must be emptied before its outer
// resource is sent. An Envoy ignores the virtual hosts of a route configuration that
// announces none, and would not remove them any more.
func (t *typeState) scopeToEmpty(name string) (string, bool) {
	for inner := range t.scopedTypes {
		if inner.sub.EmptyScopeDue(name) {
			return name, true
		}
	}
	return "", false
}

// scopeInFlight says whether the client has something in a scope that cannot be removed
// now, as another response of the inner type is in flight.
func (t *typeState) scopeInFlight(name string) bool {
	for inner := range t.scopedTypes {
		if inner.sub.InFlight() && inner.sub.ClientHasScope(name) {
			return true
		}
	}
	return false
}

// emptyScopesOfRemovals removes a route configuration's virtual hosts before the route
// configuration itself: a draining listener still uses that, and would keep them.
func (s *Sequencer) emptyScopesOfRemovals(t, inner *typeState, allow protocol.Allow) (*protocol.Response, bool) {
	emptied := map[string]struct{}{}
	for _, name := range t.sub.Removals() {
		if inner.sub.ClientHasScope(name) && allow.Remove(name) {
			emptied[name] = struct{}{}
		}
	}
	for name := range emptied {
		inner.active().CloseScope(name)
	}
	if len(emptied) == 0 {
		return nil, false
	}
	return s.next(inner, protocol.Allow{Together: true, Add: never, Remove: func(name string) bool {
		_, ok := emptied[protocol.ScopeOf(name)]
		return ok
	}})
}
