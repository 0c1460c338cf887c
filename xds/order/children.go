package order

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
)

// follow takes note of a response of the parent type: the children of what it
// carries are sent again, and those of what it takes away the client gives up by
// itself.
func (k *kind) follow(parent *kind, r *stream.Response) {
	if k.Scoped {
		for name := range r.Withdrawn {
			k.awake().Close(name)
		}
		return
	}
	if !k.session.Started() {
		k.owe(r)
		return
	}
	for _, changed := range r.Changed {
		k.awake().Resend(changed.Children)
	}
	k.forget(children(maps.Values(r.Withdrawn)))
	if k.CoverParent { // of the same name, and no child of what it is now
		k.forget(slices.Collect(maps.Keys(r.Withdrawn)))
		for _, changed := range r.Changed {
			k.forget([]string{changed.Name})
		}
	}
}

// owe notes that a client which has not asked for the type yet waits for the
// children in a response.
func (k *kind) owe(r *stream.Response) {
	if k.owed.Len() == 0 && r.All.Len() > 0 {
		k.owed = r.All
		return
	}
	for _, changed := range r.Changed {
		k.owed = k.owed.Set(changed.Name, changed)
	}
	for name := range r.Withdrawn {
		k.owed = k.owed.Delete(name)
	}
}

// repay has sent, to a client that asks for the type now and states what it has,
// what it waits for.
func (k *kind) repay(q stream.Request) {
	if len(q.Initial) > 0 && k.owed.Len() > 0 {
		k.awake().Resend(children(k.owed.Values()))
	}
	k.owed = resource.Set{}
}

// forget drops what the client gives up by itself, and closes the scopes in it.
func (k *kind) forget(names []string) {
	forgotten := k.awake().Forget(names)
	for _, child := range k.children {
		for _, name := range forgotten {
			child.awake().Close(name)
		}
	}
}

// children are the resources that a client waits for when it has taken others.
func children(parents iter.Seq[*resource.Resource]) []string {
	var out []string
	for parent := range parents {
		if parent != nil {
			out = append(out, parent.Children...)
		}
	}
	return out
}

// scoped iterates over the types whose resources live in those of a type, and come
// apart from them: not over one that the client has no use for.
func (k *kind) scoped(yield func(*kind) bool) {
	for _, child := range k.children {
		if child.Scoped && !child.Optional && !yield(child) {
			return
		}
	}
}

// rescope opens the scopes of what the client states to have, and closes those of
// what it gives up.
func (k *kind) rescope(q stream.Request, first bool) {
	for child := range k.scoped {
		if first {
			for _, has := range q.Initial {
				if k.session.Wants(has.Name) {
					child.awake().Open(strings.Clone(has.Name), false)
				}
			}
		}
		for name := range q.Unsubscribe.All() {
			if !k.session.Wants(name) {
				child.awake().Close(name)
			}
		}
	}
}

// began takes note of the first request for a type, of several that a client makes one
// after the other.
func (k *kind) began(q stream.Request, now time.Time) {
	if k.Scoped && k.parent != nil {
		k.parent.stated = time.Time{}
	}
	for child := range k.scoped {
		if !child.session.Started() && len(q.Initial) > 0 {
			k.stated = now
		}
	}
}

// unasked says whether the client may be about to say what it has that lives in a
// resource, which is to have nothing any more: before it is told to give that up, it
// must not be sent the resource.
func (f *Flow) unasked(k *kind, name string, now time.Time) bool {
	if !now.Before(k.stated.Add(f.limits.Ask)) || !k.session.Has(name) {
		return false
	}
	for child := range k.scoped {
		if child.session.Vacant(name) {
			return true
		}
	}
	return false
}

// openNew opens the scopes of what the client has taken. What lives in a resource
// that is new to it, or of which it refused a version before, it may not have
// whatever it acknowledged.
func (k *kind) openNew() {
	for child := range k.scoped {
		for name := range k.under.Keys() {
			if k.session.Wants(name) {
				child.awake().Open(name, true)
			}
		}
		for name := range k.doubted {
			if !k.session.Refuses(name) {
				child.awake().Open(name, true)
			}
		}
	}
	maps.DeleteFunc(k.doubted, func(name string, _ struct{}) bool { return !k.session.Refuses(name) })
}

// doubt notes what the client has refused of resources that others live in.
func (k *kind) doubt() {
	for range k.scoped {
		for name := range k.session.Refused() {
			if k.doubted == nil {
				k.doubted = map[string]struct{}{}
			}
			k.doubted[name] = struct{}{}
		}
	}
}

// together allows the removals of scoped resources with their additions: what
// moves between two of a scope must never be in both or in none. Scopes that wait
// do so with all their changes.
func (f *Flow) together(k *kind, waiting map[string]struct{}) stream.Allow {
	if !k.Scoped {
		return stream.Additions()
	}
	waits := func(name string) bool {
		_, ok := waiting[stream.ScopeOf(name)]
		return ok
	}
	return stream.Allow{
		Together: true,
		Add:      func(name string) bool { return !waits(name) },
		Remove:   func(name string) bool { return !waits(name) && !k.draining(stream.ScopeOf(name)) },
	}
}

// draining says whether the client goes on with a scope that it is to give up:
// nothing is taken away of it before.
func (k *kind) draining(scope string) bool {
	return k.session.Opened(scope) && k.parent != nil && k.parent.session.Leaves(scope)
}

// waitingScopes are those in which a change refers to targets that the client
// does not have, and those of which the client has not acknowledged what is to be
// changed within.
func (f *Flow) waitingScopes(k *kind, before map[string]time.Time, now time.Time) map[string]struct{} {
	open := f.target == nil || f.target.settled()
	if open && (k.parent == nil || !k.parent.session.Pending()) {
		return nil
	}
	out, free := map[string]struct{}{}, map[string]struct{}{}
	for name := range k.session.Due() {
		scope := stream.ScopeOf(name)
		if _, waits := out[scope]; waits {
			continue
		}
		if _, passed := free[scope]; passed {
			continue
		}
		missing, waits := k.changing(scope)
		if !waits && !open {
			missing, waits = f.missing(k, name)
		}
		switch {
		case !waits:
		case f.hold(k, scope, missing, before, now):
			out[scope] = struct{}{}
		default:
			free[scope] = struct{}{}
		}
	}
	return out
}

// changing says whether what a scope is of is on its way to the client, in its
// next version.
func (k *kind) changing(scope string) (string, bool) {
	if k.parent == nil {
		return "", false
	}
	s := k.parent.session
	if due, _ := s.Lacking(scope); due {
		return scope, true
	}
	version, acked := s.Holds(scope)
	offered := s.Offered(scope)
	return scope, offered != nil && (!acked || version != offered.Version) && !s.Refuses(scope)
}

// emptied finds a scope that has to be emptied before the resource of that name
// goes to the client, which may then have no use for the scope and take nothing
// from it any more.
func (k *kind) emptied(name string) (string, bool) {
	for child := range k.scoped {
		if child.session.Emptied(name) {
			return name, true
		}
	}
	return "", false
}
