package delivery

import (
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// warming tracks targets that are new to the client, and that it cannot use yet; the
// needs have the names that they wait for. Normally there are none. In a first sync
// they are all, so clients that are sent the same share the sets.
type warming struct {
	// sent are targets in flight, or rejected.
	sent resource.Set
	// graces are acknowledged targets whose host names the client resolves, in the order
	// in which they become usable.
	graces []grace
}

type grace struct {
	until time.Time
	names nameset.Set
}

// resolving says whether the client still resolves the host names of a target.
func (w *warming) resolving(name string) bool {
	return slices.ContainsFunc(w.graces, func(g grace) bool { return g.names.Has(name) })
}

// allWarm says whether the client can use all targets that it was sent.
func (t *typeState) allWarm() bool {
	return t.warming.sent.Len() == 0 && len(t.warming.graces) == 0 &&
		!slices.ContainsFunc(t.needs, func(n *need) bool { return n.waiting.Len() > 0 })
}

// isWarming says whether the client has a target, or is being sent it, and cannot use
// it yet.
func (t *typeState) isWarming(name string) bool {
	if t.warming.sent.Value(name) != nil || t.warming.resolving(name) {
		return true
	}
	var r *resource.Resource
	for _, n := range t.needs {
		if n.waiting.Len() == 0 {
			continue
		}
		if r == nil {
			if r = t.sub.Acked(name); r == nil { // it was rejected, and may be taken even so
				r = t.sub.Desired(name)
			}
		}
		for needed := range n.names(r) {
			if n.waiting.Has(needed) {
				return true
			}
		}
	}
	return false
}

// inUse says whether the client keeps using its present form of a target until it can
// use the next. A target that it stated in an unknown form may not be in use.
func (t *typeState) inUse(next *resource.Resource) bool {
	if t.isWarming(next.Name) {
		return false
	}
	return t.sub.Acked(next.Name) != nil || !slices.ContainsFunc(next.Needs, func(n resource.Need) bool { return n.Kind == resource.Secret })
}

// sentTargets notes a response in flight. A removed target is not usable until the
// client has it again.
func (t *typeState) sentTargets(r *protocol.Response) {
	for name, was := range r.Withdrawn {
		t.stopWarming(name, was)
	}
	w := &t.warming
	if t.flightNew.Len() < len(r.Changed) {
		for _, one := range r.Changed {
			if !t.inUse(one) {
				t.flightNew = t.flightNew.Set(one.Name, one)
			}
		}
	}
	if t.allWarm() {
		w.sent = t.flightNew
	} else {
		for name, one := range t.flightNew.All() {
			t.stopWarming(name, t.sub.Acked(name))
			w.sent = w.sent.Set(name, one)
		}
		t.forgetEarly()
	}
	for _, n := range t.needs { // what is in flight of the other type is not of these
		if n.inFlight.Len() > 0 {
			n.inFlight = t.Names.Without(n.inFlight, n.namesOf(t.flightNew.Values())...)
		}
	}
}

// acknowledgedTargets notes that the client has acknowledged the targets in flight, and
// what they wait for now.
func (t *typeState) acknowledgedTargets(resolvedAt time.Time) {
	w := &t.warming
	for _, n := range t.needs {
		var waiting []string
		for r := range t.flightNew.Values() {
			for needed := range n.names(r) {
				if n.waits(needed) {
					waiting = append(waiting, needed)
				}
			}
		}
		n.waiting = t.Names.With(n.waiting, waiting...)
	}
	var resolving []string
	for name, r := range t.flightNew.All() {
		if r.Resolves() {
			resolving = append(resolving, name)
		}
	}
	w.sent = without(w.sent, t.flightNew)
	if len(resolving) > 0 {
		w.graces = append(w.graces, grace{until: resolvedAt, names: t.Names.Of(resolving)})
	}
	t.forgetEarly()
}

// rejectedTargets notes that the client rejected the targets in flight. It may have
// taken some of them: it then requests what they need.
func (t *typeState) rejectedTargets() {
	w := &t.warming
	left := without(w.sent, t.flightNew)
	for name, r := range t.flightNew.All() {
		shows := false
		for _, n := range t.needs {
			if !n.resends() {
				continue
			}
			for needed := range n.names(r) {
				if shows = true; !n.early.Has(needed) {
					n.waiting = t.Names.With(n.waiting, needed)
				}
			}
		}
		if !shows {
			left = left.Set(name, r)
		}
	}
	w.sent = left
	t.forgetEarly()
}

// forgetEarly drops names from early: the targets that need them are sent only now, or
// are not in flight any more.
func (t *typeState) forgetEarly() {
	for _, n := range t.needs {
		switch {
		case t.warming.sent.Len() == 0:
			n.early = nameset.Set{}
		case n.early.Len() > 0:
			n.early = t.Names.Without(n.early, n.namesOf(t.flightNew.Values())...)
		}
	}
}

// waits says whether an acknowledged target waits for a needed name. Endpoints are sent
// again with it, so it waits for the next ones, if the client requests any. It waits
// for a secret that the client does not have.
func (n *need) waits(name string) bool {
	switch {
	case n.of.Optional:
		return false
	case n.resends():
		return n.of.sub.Started() && !n.early.Has(name)
	}
	return !n.of.sub.Settled(name)
}

// sent notes a response of the needed type: the names in it, while targets wait for any.
func (n *need) sent(r *protocol.Response) {
	if n.by != n.by.sequencer.target || !n.resends() || n.waiting.Len() == 0 && n.by.warming.sent.Len() == 0 {
		n.inFlight = nameset.Set{}
		return
	}
	names := make([]string, 0, len(r.Resources)+len(r.Removed))
	for _, one := range r.Resources {
		names = append(names, one.Name)
	}
	names = append(names, r.Removed...)
	n.inFlight = n.by.Names.Of(names)
}

// acknowledged notes that the client has acknowledged the needed resources in flight.
func (n *need) acknowledged() {
	names := n.by.Names
	if !n.resends() { // it may have been sent before the targets that wait for it
		var there []string
		for name := range n.waiting.All() {
			if n.of.sub.Settled(name) {
				there = append(there, name)
			}
		}
		n.waiting = names.Without(n.waiting, there...)
		return
	}
	if n.inFlight.Len() == 0 {
		return
	}
	n.waiting = names.Minus(n.waiting, n.inFlight)
	if n.by.warming.sent.Len() > 0 {
		n.early = names.Plus(n.early, n.inFlight)
	}
}

// without returns a set without the resources of another.
func without(set, other resource.Set) resource.Set {
	if set == other {
		return resource.Set{}
	}
	for name := range other.Keys() {
		set = set.Delete(name)
	}
	return set
}

// pass ends the graces that have passed.
func (w *warming) pass(now time.Time) {
	w.graces = slices.DeleteFunc(w.graces, func(g grace) bool { return !now.Before(g.until) })
}

// stopWarming drops a target that is to be removed, or is sent again. was is the
// client's form of it; nil if unknown.
func (t *typeState) stopWarming(name string, was *resource.Resource) {
	if t.allWarm() {
		return
	}
	w := &t.warming
	if was == nil {
		was = w.sent.Value(name)
	}
	w.sent = w.sent.Delete(name)
	if w.resolving(name) {
		for i := range w.graces {
			w.graces[i].names = t.Names.Without(w.graces[i].names, name)
		}
		w.graces = slices.DeleteFunc(w.graces, func(g grace) bool { return g.names.Len() == 0 })
	}
	for _, n := range t.needs {
		for needed := range n.names(was) {
			if (n.waiting.Has(needed) || n.early.Has(needed)) && !n.neededByOther(name, needed) {
				n.waiting = t.Names.Without(n.waiting, needed)
				n.early = t.Names.Without(n.early, needed)
			}
		}
	}
}

// neededByOther says whether another target needs a name. It is called only for targets
// that are removed while they warm.
func (n *need) neededByOther(target, name string) bool {
	for other, r := range n.by.sub.DesiredSet().All() {
		if other != target && n.needs(r, name) {
			return true
		}
	}
	return false
}

// forgetUndesired drops targets that are no longer desired, and that need no removal. A
// target that needs one is dropped when it is removed.
func (t *typeState) forgetUndesired(before resource.Set) {
	if t.allWarm() {
		return
	}
	for c := range t.sub.ChangesSince(before) {
		if !c.HasNew && !t.sub.Removing(c.Key) {
			t.stopWarming(c.Key, c.Old)
		}
	}
}

// settled says whether the client can use all targets: nothing has to wait for them.
func (t *typeState) settled() bool {
	if !t.allWarm() || t.sub.HasAdditions() {
		return false
	}
	for _, n := range t.needs {
		if n.of.sub.Pending() || n.mayAsk() {
			return false
		}
		for range n.of.sub.Rejected() {
			return false
		}
	}
	return true
}

// firstSync says whether the client is about to get its first targets, or the first of
// what they need: nothing that sends traffic to one may go yet. It has not requested the
// secrets yet when it acknowledges the targets that wait for them.
func (t *typeState) firstSync() bool {
	if t.sub.DesiredSet().Len() == 0 {
		return false
	}
	return t.sub.FirstSync() || slices.ContainsFunc(t.needs, func(n *need) bool {
		return n.waiting.Len() > 0 && (n.of.sub.FirstSync() || !n.of.sub.Started())
	})
}

// ready says whether a resource that sends traffic to a target may be sent: the client
// can use the target, or does not request it, or there is none.
func (t *typeState) ready(name string) bool {
	desired := t.sub.Desired(name)
	if desired == nil {
		return true
	}
	if due, isNew := t.sub.Due(name); due && isNew {
		return false
	}
	if t.isWarming(name) {
		return false
	}
	return t.needsReady(desired) && (t.sub.Acked(name) == desired || t.needsReady(t.sub.Acked(name)))
}

// needsReady says whether the client has all that a form of a target needs.
func (t *typeState) needsReady(r *resource.Resource) bool {
	for _, n := range t.needs {
		for needed := range n.names(r) {
			if !n.ready(needed) {
				return false
			}
		}
	}
	return true
}

// ready says whether the client has a needed name, as far as a target can use it.
func (n *need) ready(name string) bool {
	s := n.of.sub
	switch due, isNew := s.Due(name); {
	case due && (isNew || n.resends()):
		return false
	case s.Desired(name) == nil:
		return true
	case n.resends():
		return !s.Wants(name) || s.Has(name)
	case !s.Wants(name):
		return !n.mayAsk()
	}
	return s.Settled(name)
}

// mayAsk says whether a client that has stated targets may be about to request their
// secrets, which it may lack.
func (n *need) mayAsk() bool {
	return !n.resends() && n.by.stated && !n.of.Optional && !n.of.sub.Started() && n.by.sequencer.mayAskForMore()
}
