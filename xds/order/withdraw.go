package order

import (
	"iter"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
)

// withdrawals says what of a type may be withdrawn now. It is false where there
// is nothing to withdraw, or not now.
func (f *Flow) withdrawals(k *kind, now time.Time) (stream.Allow, bool) {
	before := k.withdrawals
	k.withdrawals = nil
	leaving := k.session.Leaving()
	if len(leaving) == 0 || k.Scoped { // its removals go with its additions
		return stream.Allow{}, false
	}
	k.withdrawals = make(map[string]time.Time, len(leaving))
	retained, belongs := f.leads(k, (*stream.Session).Retained), k.childrenKept()
	for _, name := range leaving {
		switch since := before[name]; {
		case retained(name) || belongs(name): // for as long as it is
			k.withdrawals[name] = time.Time{}
		case since.IsZero():
			k.withdrawals[name] = now
		default:
			k.withdrawals[name] = since
		}
	}
	if k.session.InFlight() {
		return stream.Allow{}, false
	}
	needed := f.needed(k)
	// A client that has nothing of a name may wait to be told so.
	return stream.Allow{Add: never, Remove: func(name string) bool {
		since := k.withdrawals[name]
		overdue := !since.IsZero() && now.Sub(since) >= f.limits.Withdraw
		if k.session.Has(name) && !overdue && (since.IsZero() || needed(name)) {
			return false
		}
		return !k.inhabited(name) && !f.unasked(k, name, now)
	}}, true
}

// inhabited says whether the client has something that lives in a resource and that
// it cannot be told to give up now.
func (k *kind) inhabited(name string) bool {
	for child := range k.scoped {
		if child.session.InFlight() && child.session.Inhabited(name) {
			return true
		}
	}
	return false
}

// vacate has the client give up what lives in the resources that it is about to be
// told to give up: where it goes on with these, as a listener drains, they come to be
// empty ones, in which it may take no word of that, and remember it.
func (f *Flow) vacate(k, child *kind, allow stream.Allow) (*stream.Response, bool) {
	vacated := map[string]struct{}{}
	for _, name := range k.session.Leaving() {
		if child.session.Inhabited(name) && allow.Remove(name) {
			vacated[name] = struct{}{}
		}
	}
	for name := range vacated {
		child.awake().Close(name)
	}
	if len(vacated) == 0 {
		return nil, false
	}
	return f.next(child, stream.Allow{Together: true, Add: never, Remove: func(name string) bool {
		_, ok := vacated[stream.ScopeOf(name)]
		return ok
	}})
}

// childrenKept finds what of the names of a type belongs to a parent that is kept: the
// client gives it up with that, and not before.
func (k *kind) childrenKept() func(name string) bool {
	if k.parent == nil {
		return never
	}
	kept := map[string]struct{}{}
	for _, name := range k.parent.session.Leaving() {
		if r := k.parent.session.Held(name); r != nil {
			for _, child := range r.Children {
				kept[child] = struct{}{}
			}
		} else if k.CoverParent {
			kept[name] = struct{}{}
		}
	}
	return func(name string) bool {
		_, belongs := kept[name]
		return belongs
	}
}

// overdue says whether something has been kept for too long, be it only because
// more was added all the time.
func (k *kind) overdue(now time.Time, limit time.Duration) bool {
	for _, since := range k.withdrawals {
		if !since.IsZero() && now.Sub(since) >= limit {
			return true
		}
	}
	return false
}

func never(string) bool { return false }

// needed finds what of the leaving names of a type the client may still need.
func (f *Flow) needed(k *kind) func(name string) bool {
	silent := false
	for referrer := range f.referrers(k) {
		silent = silent || !referrer.Optional && !referrer.session.Started()
	}
	referred := f.leads(k, (*stream.Session).Unsettled)
	busy := k.session.Lacks() || f.opening(k)
	unused := f.unused(k)
	return func(name string) bool {
		return busy || referred(name) || silent && k.session.LeavesUnseen(name) || unused(name)
	}
}

// unused finds what of a target a client asks for by name though nothing leads
// there any more: it gives it up by itself, when it is done with what it sent there.
func (f *Flow) unused(k *kind) func(name string) bool {
	if _, all := k.session.Asked(); all || !k.Target {
		return func(string) bool { return false }
	}
	used, any := map[string]struct{}{}, false
	for referrer, each := range f.referrers(k) {
		names, all := referrer.session.Asked()
		any = any || all
		for name := range names {
			if r := referrer.session.Offered(name); r != nil {
				for ref := range each(r) {
					used[ref] = struct{}{}
				}
			}
		}
	}
	return func(name string) bool {
		_, leads := used[name]
		return !any && !leads
	}
}

// leads finds what of the leaving names of a type some resources of others lead
// to.
func (f *Flow) leads(k *kind, of func(*stream.Session) iter.Seq2[string, *resource.Resource]) func(name string) bool {
	out, any := map[string]struct{}{}, false
	for referrer, each := range f.referrers(k) {
		for _, r := range of(referrer.session) {
			if r == nil {
				any = true
				continue
			}
			for name := range each(r) {
				if k.session.Leaves(name) {
					out[name] = struct{}{}
				}
			}
		}
	}
	return func(name string) bool {
		_, leads := out[name]
		return any || leads
	}
}

// referrers iterates over the types that may refer to resources of a type, and
// how to find what they refer to.
func (f *Flow) referrers(k *kind) iter.Seq2[*kind, func(*resource.Resource) iter.Seq[string]] {
	return func(yield func(*kind, func(*resource.Resource) iter.Seq[string]) bool) {
		if k.parent != nil {
			yield(k.parent, func(r *resource.Resource) iter.Seq[string] { return slices.Values(r.Children) })
			return
		}
		if !k.Target {
			return
		}
		for _, other := range f.kinds {
			if f.refers(other) && !yield(other, func(r *resource.Resource) iter.Seq[string] { return r.EachRef }) {
				return
			}
		}
	}
}

// opening says whether the client may still be on its way to take resources into
// use that stand in for others of the type: listeners wait for their routes. It
// is so of types that nothing refers to.
func (f *Flow) opening(k *kind) bool {
	if k.Target || k.parent != nil {
		return false
	}
	for _, child := range k.children {
		if child.busy() {
			return true
		}
	}
	return false
}

// busy says whether the client lacks something of a type or of those below it, or
// has not answered.
func (k *kind) busy() bool {
	return k.session.Lacks() || k.session.InFlight() || slices.ContainsFunc(k.children, (*kind).busy)
}
