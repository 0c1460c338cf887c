package delivery

import (
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// warming tracks targets that were new to the client when they were sent, and that it
// cannot use yet. Normally there are none. In a first sync they are all, so clients that
// are sent the same share the set.
type warming struct {
	// maybeCold are targets in flight, rejected, or without what they need, and some that
	// have become usable since: isCold decides.
	maybeCold resource.Set
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
func (w *warming) allWarm() bool { return w.maybeCold.Len() == 0 && len(w.graces) == 0 }

// isWarming says whether the client has a target, or is being sent it, and cannot use
// it yet.
func (t *typeState) isWarming(name string) bool {
	return t.warming.maybeCold.Value(name) != nil && t.isCold(name) || t.warming.resolving(name)
}

// isCold says whether the client has yet to acknowledge a target, or what that needs.
func (t *typeState) isCold(name string) bool {
	has := t.sub.Acked(name)
	if has == nil || t.sub.Delivering(name) {
		return true
	}
	for _, n := range t.needs {
		for needed := range n.names(has) {
			if !n.arrived(needed) {
				return true
			}
		}
	}
	return false
}

// dropWarm drops the targets that the client can use by now. It waits until nothing that
// they need is on its way; until then isCold decides for each target.
func (t *typeState) dropWarm() {
	whole := !t.sub.Pending() && t.sub.RejectedForms().Len() == 0
	for _, n := range t.needs {
		if n.needed.sub.Pending() {
			return
		}
		whole = whole && n.needed.sub.RejectedForms().Len() == 0 && n.needed.awaited.until.IsZero()
	}
	if whole {
		t.warming.maybeCold = resource.Set{}
		return
	}
	var warm []string
	for name := range t.warming.maybeCold.Keys() {
		if !t.isCold(name) {
			warm = append(warm, name)
		}
	}
	if len(warm) == t.warming.maybeCold.Len() { // as in a first sync
		t.warming.maybeCold = resource.Set{}
		return
	}
	for _, name := range warm {
		t.warming.maybeCold = t.warming.maybeCold.Delete(name)
	}
}

// inUse says whether the client uses its present form of a target, and goes on with it
// until it can use the next. A target that a reconnected client stated may not be in use:
// it may be in an unknown form, or lack what it needs.
func (t *typeState) inUse(next *resource.Resource) bool {
	if t.isWarming(next.Name) || !t.hasNeeds(next.Name) {
		return false
	}
	return t.sub.Acked(next.Name) != nil || !slices.ContainsFunc(next.Needs, func(n resource.Need) bool { return n.Kind == resource.Once })
}

// hasNeeds says whether the client has what a target needs, in each form of the target
// that the client has or may have. Names that it does not request do not count.
func (t *typeState) hasNeeds(target string) bool {
	for r := range t.sub.Forms(target) {
		for _, n := range t.needs {
			for needed := range n.names(r) {
				if n.needed.sub.Wants(needed) && !n.needed.sub.Has(needed) {
					return false
				}
			}
		}
	}
	return true
}

// sentTargets notes that a response with targets is in flight. Targets that are new to
// the client, or not in use, are cold from now on. A removed target is new again when it
// comes back.
func (t *typeState) sentTargets(r *protocol.Response) {
	w := &t.warming
	for name := range r.Withdrawn {
		w.maybeCold = w.maybeCold.Delete(name)
	}
	flight := t.sub.Flight()
	if _, all := t.sub.Subscribed(); all && w.maybeCold.Len()+flight.From.Len() == 0 {
		w.maybeCold = flight.To
		return
	}
	for one, isNew := range flight.Changed {
		if isNew || !t.inUse(one) {
			w.maybeCold = w.maybeCold.Set(one.Name, one)
		}
	}
}

// resolve gives the client until a time to resolve the host names of the new targets that
// it has acknowledged.
func (t *typeState) resolve(flight protocol.Flight, until time.Time) {
	var resolving []string
	for name, r := range t.warming.maybeCold.All() {
		if r.Resolves() && flight.To.Value(name) == r && flight.From.Value(name) != r {
			resolving = append(resolving, name)
		}
	}
	if len(resolving) > 0 {
		t.warming.graces = append(t.warming.graces, grace{until: until, names: t.Names.Of(resolving)})
	}
}

// arrived says, of a target that the client has acknowledged, whether a name that it
// needs is with the client, or no longer waited for. Endpoints are sent again with their
// target, and have arrived once the client has acknowledged them again.
func (n *need) arrived(name string) bool {
	switch {
	case n.needed.Optional:
		return true
	case n.resends():
		return !n.needed.sub.Started() || n.needed.sub.HasFinalAnswer(name) && !n.needed.sub.Rejects(name)
	}
	return n.needed.sub.HasFinalAnswer(name)
}

func (w *warming) endGraces(now time.Time) {
	w.graces = slices.DeleteFunc(w.graces, func(g grace) bool { return !now.Before(g.until) })
}

// forgetUndesired drops the targets that are no longer desired and need no removal. A
// target that needs one is dropped when its removal is sent.
func (t *typeState) forgetUndesired(before resource.Set) {
	if t.warming.maybeCold.Len() == 0 {
		return
	}
	for c := range t.sub.ChangesSince(before) {
		if !c.HasNew && !t.sub.Removing(c.Key) {
			t.warming.maybeCold = t.warming.maybeCold.Delete(c.Key)
		}
	}
}

// allUsable says whether the client can use all targets: nothing has to wait for them.
func (t *typeState) allUsable() bool {
	if !t.warming.allWarm() || t.sub.HasAdditions() {
		return false
	}
	for _, n := range t.needs {
		if n.needed.sub.Pending() || n.mayAsk() {
			return false
		}
		for range n.needed.sub.Rejected() {
			return false
		}
	}
	return true
}

// firstSync says whether the client is about to get its first targets, or the first of
// what they need. Nothing that sends traffic to a target may go yet. It takes into
// account that a client requests secrets only after it has acknowledged the first targets
// that need them.
func (t *typeState) firstSync() bool {
	if t.sub.DesiredSet().Len() == 0 {
		return false
	}
	return t.sub.FirstSync() || t.warming.maybeCold.Len() > 0 && slices.ContainsFunc(t.needs, func(n *need) bool {
		return n.needed.sub.FirstSync() || !n.resends() && !n.needed.sub.Started() && !n.needed.awaited.until.IsZero()
	})
}

// ready says whether a resource that sends traffic to a target may be sent: the client
// can use the target, or does not request it, or the target is not desired. Nothing waits
// for a form that the client has rejected if it keeps an older one. But while another
// form of the target is due, traffic waits if the client lacks what the present form
// needs, for example a secret that it rejected.
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
	has := t.sub.Acked(name)
	return t.needsReady(desired) && (has == desired || t.needsReady(has) && (t.sub.Rejects(name) || t.hasNeeds(name)))
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

// ready says whether the client has a name that a target needs, or an answer for it. A
// name that is not desired, or that the client does not request, is ready too.
func (n *need) ready(name string) bool {
	s := n.needed.sub
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
	return s.Answered(name)
}

// mayAsk says whether a client that has stated targets may be about to request their
// secrets, which it may lack.
func (n *need) mayAsk() bool {
	return !n.resends() && n.needing.stated && !n.needed.Optional && !n.needed.sub.Started() && n.needing.sequencer.mayAskForMore()
}
