package order

import (
	"maps"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// arrivals are the resources new to the client that it does not have wholly yet.
// Their children have their names. Normally there are none; of a client that is
// brought up from nothing they are all, so they are kept as sets that clients who
// are sent the same have in common. A name is in one of sent, waiting and
// resolving.
type arrivals struct {
	names *nameset.Table
	// sent are under way, or were refused; early are those of them whose child the
	// client has taken already.
	sent  resource.Set
	early nameset.Set
	// waiting are taken, their children not yet; resolving are there at the end of
	// their moment.
	waiting, resolving nameset.Set
	// moments are those that the client is given to resolve host names, in their
	// order.
	moments []moment
}

type moment struct {
	until time.Time
	names nameset.Set
}

// none says that the client has wholly whatever it was sent.
func (a *arrivals) none() bool {
	return a.sent.Len() == 0 && a.waiting.Len() == 0 && a.resolving.Len() == 0
}

// has says whether the client does not have a resource wholly yet.
func (a *arrivals) has(name string) bool {
	_, sent := a.sent.Get(name)
	return sent || a.waiting.Has(name) || a.resolving.Has(name)
}

// send takes note of resources under way.
func (a *arrivals) send(under resource.Set) {
	if a.none() {
		a.sent = under
		return
	}
	var names []string
	for name, r := range under.All() {
		a.sent = a.sent.Set(name, r)
		names = append(names, name)
	}
	a.early = a.names.Without(a.early, names...)
	a.waiting = a.names.Without(a.waiting, names...)
	a.resolved(names...)
}

// answered takes note of how the client took what was under way, and whether it
// asks for children at all. One that refused a response may have taken some of
// it; it shows by asking for their children.
func (a *arrivals) answered(under resource.Set, taken, asks bool, resolvedAt time.Time) {
	var stays []*resource.Resource
	var waiting, resolving []string
	for name, r := range under.All() {
		switch {
		case asks && len(r.Children) > 0 && !a.early.Has(name):
			waiting = append(waiting, name)
		case len(r.Children) == 0 && !taken:
			stays = append(stays, r)
		case r.Resolves:
			resolving = append(resolving, name)
		}
	}
	a.sent = without(a.sent, under)
	for _, r := range stays {
		a.sent = a.sent.Set(r.Name, r)
	}
	if a.early.Len() > 0 {
		a.early = a.names.Without(a.early, slices.Collect(under.Keys())...)
	}
	a.waiting = a.names.With(a.waiting, waiting...)
	if len(resolving) > 0 {
		a.resolving = a.names.With(a.resolving, resolving...)
		a.moments = append(a.moments, moment{until: resolvedAt, names: a.names.Of(resolving)})
	}
}

// without is a set without the resources of another.
func without(set, other resource.Set) resource.Set {
	if set == other {
		return resource.Set{}
	}
	for name := range other.Keys() {
		set = set.Delete(name)
	}
	return set
}

// awaitedIn are the names of a response of children whose parents wait for them.
func (a *arrivals) awaitedIn(r *stream.Response) nameset.Set {
	if a.none() {
		return nameset.Set{}
	}
	var names []string
	if a.sent.Len()+a.resolving.Len() == 0 {
		for i := range a.waiting.Among(len(r.Resources), func(i int) string { return r.Resources[i].Name }) {
			names = append(names, r.Resources[i].Name)
		}
	} else {
		for _, child := range r.Resources {
			if a.has(child.Name) {
				names = append(names, child.Name)
			}
		}
	}
	for _, name := range r.Removed {
		if a.has(name) {
			names = append(names, name)
		}
	}
	return a.names.Of(names)
}

// warmed takes note of children that the client has taken.
func (a *arrivals) warmed(names nameset.Set) {
	a.waiting = a.names.Minus(a.waiting, names)
	if a.sent.Len() == 0 {
		return
	}
	var early []string
	for name := range names.All() {
		if _, sent := a.sent.Get(name); sent {
			early = append(early, name)
		}
	}
	a.early = a.names.With(a.early, early...)
}

// pass ends the moments that have passed.
func (a *arrivals) pass(now time.Time) {
	for len(a.moments) > 0 && !now.Before(a.moments[0].until) {
		names := a.moments[0].names
		a.moments = a.moments[1:]
		a.resolving = a.names.Minus(a.resolving, names)
	}
	if len(a.moments) == 0 {
		a.moments = nil
	}
}

// resolved ends the waiting for host names of some resources.
func (a *arrivals) resolved(names ...string) {
	if a.resolving.Len() == 0 {
		return
	}
	a.resolving = a.names.Without(a.resolving, names...)
	for i := range a.moments {
		a.moments[i].names = a.names.Without(a.moments[i].names, names...)
	}
	a.moments = slices.DeleteFunc(a.moments, func(m moment) bool { return m.names.Len() == 0 })
}

// forget drops resources that the client is to have no more.
func (a *arrivals) forget(names ...string) {
	if a.none() {
		return
	}
	for _, name := range names {
		a.sent = a.sent.Delete(name)
	}
	a.early = a.names.Without(a.early, names...)
	a.waiting = a.names.Without(a.waiting, names...)
	a.resolved(names...)
}

// wake is the end of the first moment, zero for none.
func (a *arrivals) wake() time.Time {
	if len(a.moments) == 0 {
		return time.Time{}
	}
	return a.moments[0].until
}

// depart takes note of a response of targets under way. What it takes away, the
// client does not have wholly before it has it again.
func (k *kind) depart(r *stream.Response) {
	k.arrivals.forget(slices.Collect(maps.Keys(r.Withdrawn))...)
	k.arrivals.send(k.under)
	for _, child := range k.children { // what it is being sent is not of these
		if child.awaited.Len() > 0 {
			child.awaited = k.Names.Without(child.awaited, slices.Collect(k.under.Keys())...)
		}
	}
}

// dropped forgets what is offered no more since an offer, and what the client
// need not be told to give up. What it is told, it gives up then.
func (k *kind) dropped(before resource.Set) {
	if k.arrivals.none() {
		return
	}
	var gone []string
	for c := range k.session.Since(before) {
		if !c.HasNew && !k.session.Leaves(c.Key) {
			gone = append(gone, c.Key)
		}
	}
	k.arrivals.forget(gone...)
}

// settled says that the client has all targets and their children: nothing can
// have to wait for them.
func (k *kind) settled() bool {
	if !k.arrivals.none() || k.session.Lacks() {
		return false
	}
	for _, child := range k.children {
		if child.session.Pending() {
			return false
		}
		for range child.session.Refused() {
			return false
		}
	}
	return true
}

// opening says that the client is on its way to have the first targets that there
// are, or the first of their children: nothing that leads to one may go yet.
func (k *kind) opening() bool {
	if k.session.All().Len() == 0 {
		return false
	}
	if k.session.Opening() {
		return true
	}
	if k.arrivals.waiting.Len() == 0 {
		return false
	}
	for _, child := range k.children {
		if child.session.Opening() {
			return true
		}
	}
	return false
}

// ready says whether a resource may be sent that refers to a target: the client
// has it, or does not ask for it, or there is none.
func (k *kind) ready(name string) bool {
	if k.session.Offered(name) == nil {
		return true
	}
	if due, isNew := k.session.Lacking(name); due && isNew {
		return false
	}
	if k.arrivals.has(name) {
		return false
	}
	for _, child := range k.children {
		s := child.session
		if due, _ := s.Lacking(name); due || s.Wants(name) && s.Offered(name) != nil && !s.Has(name) {
			return false
		}
	}
	return true
}
