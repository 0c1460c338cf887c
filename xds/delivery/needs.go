package delivery

import (
	"iter"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// need links two types: resources of the needing type wait for resources of the needed one.
// Clusters wait so for endpoints and secrets, listeners for routes and secrets.
type need struct {
	needing, needed *typeState
	kind            resource.NeedKind
}

// resends says whether a needed resource is sent again with the one that needs it.
func (n *need) resends() bool { return n.kind != resource.Once }

// link connects the types by their needs.
func (t *typeState) link() {
	for _, declared := range t.Needs {
		needed := t.sequencer.typeState(declared.TypeURL)
		if needed == nil {
			continue
		}
		switch declared.Kind {
		case resource.Traffic:
			t.sequencer.target, t.sendsTraffic = needed, true
		case resource.Within:
			if needed.Scoped {
				t.inner, needed.outer = append(t.inner, needed), t
			}
		case resource.Warm, resource.Covered, resource.Once:
			n := &need{needing: t, needed: needed, kind: declared.Kind}
			t.needs, needed.neededBy = append(t.needs, n), append(needed.neededBy, n)
		}
	}
}

// isTargetOrNeeded says whether other types wait for this one: it is the target, or the
// target needs it.
func (t *typeState) isTargetOrNeeded() bool {
	return t.sequencer.target == t || slices.ContainsFunc(t.neededBy, func(n *need) bool { return n.needing == t.sequencer.target })
}

// names iterates over the names that a resource needs by this link.
func (n *need) names(r *resource.Resource) iter.Seq[string] {
	return func(yield func(string) bool) {
		if r == nil {
			return
		}
		for need := range r.EachNeed {
			if need.Kind == n.kind && need.TypeURL == n.needed.URL && !yield(need.Name) {
				return
			}
		}
	}
}

// namesOf returns the names that some resources need by this link.
func (n *need) namesOf(resources iter.Seq[*resource.Resource]) []string {
	var out []string
	for r := range resources {
		out = slices.AppendSeq(out, n.names(r))
	}
	return out
}

// follow processes that a response is being sent whose resources need others. What they
// need becomes due again. What their former versions and the removed resources needed,
// the client removes by itself, so the server forgets these removals. Secrets are
// different: the client keeps a secret until its removal is sent.
// https://github.com/envoyproxy/envoy/issues/13009
func (n *need) follow(r *protocol.Response) {
	if !n.resends() {
		n.resendNew(r)
		return
	}
	if again := n.namesOf(slices.Values(r.Changed)); len(again) > 0 {
		n.needed.active().Resend(again...)
	}
	if len(n.needed.sub.Removals()) == 0 {
		return
	}
	var before []string
	for _, one := range r.Changed {
		before = slices.AppendSeq(before, n.names(n.needing.sub.Acked(one.Name)))
	}
	for _, one := range r.Withdrawn {
		before = slices.AppendSeq(before, n.names(one))
	}
	n.needed.forget(before)
}

// resendNew makes due again the secrets that a resource needs and its former version did
// not. In state of the world the client may drop a secret and request it again with its
// next answer, and so look as if it had it.
func (n *need) resendNew(r *protocol.Response) {
	if n.needing.sequencer.variant != protocol.StateOfTheWorld {
		return
	}
	var again []string
	for _, one := range r.Changed {
		before := n.needing.sub.Acked(one.Name)
		for name := range n.names(one) {
			if !n.needs(before, name) {
				again = append(again, name)
			}
		}
	}
	if len(again) > 0 {
		n.needed.active().Resend(again...)
	}
}

// retain adds to a desired set the secrets that are gone from it and that the client
// still needs. The client was sent resources that need them, and uses these only once it
// has the secrets. An Envoy that lacks one would not even answer.
// https://github.com/envoyproxy/envoy/issues/47066
func (t *typeState) retain(desired resource.Set) resource.Set {
	t.lastDesired = desired
	if !slices.ContainsFunc(t.neededBy, func(n *need) bool { return n.kind == resource.Once }) {
		return desired
	}
	for c := range resource.Diff(t.sub.DesiredSet(), desired) {
		if !c.HasNew && t.neededOnTheWay(c.Key) {
			desired = desired.Set(c.Key, c.Old)
		}
	}
	return desired
}

// retains says whether the subscription still has secrets that are gone from the given
// set.
func (t *typeState) retains() bool { return t.lastDesired != t.sub.DesiredSet() }

// neededOnTheWay says whether a secret is needed by a resource that the client is being
// sent, or by one that it has in another form than the desired one.
func (t *typeState) neededOnTheWay(name string) bool {
	for _, n := range t.neededBy {
		if n.kind != resource.Once {
			continue
		}
		for r := range n.needing.sub.NotInSync() {
			if n.needs(r, name) {
				return true
			}
		}
	}
	return false
}

// releaseRetained drops the retained secrets that nothing on its way to the client needs
// any more, after the client has answered a response of this type.
func (t *typeState) releaseRetained() {
	for _, n := range t.needs {
		if n.needed.retains() {
			n.needed.active().SetDesired(n.needed.retain(n.needed.lastDesired), t.sequencer.revision)
		}
	}
}

// needs says whether a resource needs a name by this link.
func (n *need) needs(r *resource.Resource, name string) bool {
	for needed := range n.names(r) {
		if needed == name {
			return true
		}
	}
	return false
}

// forget drops removals that the client carries out by itself, and closes the scopes of
// these resources.
func (t *typeState) forget(names []string) {
	forgotten := t.active().Forget(names)
	for _, inner := range t.inner {
		for _, name := range forgotten {
			inner.active().CloseScope(name)
		}
	}
}

// awaitedSubscription is a request that the client is about to send: it has acknowledged
// a listener, for example, and will request its routes before it uses it. Normally it is
// empty.
type awaitedSubscription struct {
	// dependents are the acknowledged resources that need names which the client has not
	// requested. It is empty if the client has requested nothing of the type yet.
	dependents []neededBy
	// until is when the sequencer stops expecting the request.
	until time.Time
}

// neededBy is a resource that needs others.
type neededBy struct {
	need     *need
	resource *resource.Resource
}

// expectSubscriptions notes, after an ACK, that the client will request what the
// acknowledged resources need.
func (t *typeState) expectSubscriptions(flight protocol.Flight, until time.Time) {
	for _, n := range t.needs {
		if n.needed.Optional {
			continue // the client may never request it
		}
		for r := range flight.Changed {
			if !n.lacksSubscription(r) {
				continue
			}
			n.needed.active()
			n.needed.awaited.until = until
			if !n.needed.sub.Started() {
				break
			}
			n.needed.awaited.dependents = append(n.needed.awaited.dependents, neededBy{n, r})
		}
	}
}

// lacksSubscription says whether a resource needs a name that the client does not
// request.
func (n *need) lacksSubscription(r *resource.Resource) bool {
	for name := range n.names(r) {
		if !n.needed.sub.Wants(name) {
			return true
		}
	}
	return false
}

// ExpectsSubscription says whether the client is about to request more of a type: it has
// acknowledged resources that need more, and uses them only then. It is true for
// Limits.Ready after the ACK at most.
func (s *Sequencer) ExpectsSubscription(typeURL string, now time.Time) bool {
	t := s.typeState(typeURL)
	if t == nil || t.awaited.until.IsZero() {
		return false
	}
	awaited := &t.awaited
	lacks := func(o neededBy) bool {
		return o.need.lacksSubscription(o.resource) && o.need.needing.sub.Desired(o.resource.Name) == o.resource
	}
	if t.sub.Started() && !slices.ContainsFunc(awaited.dependents, lacks) || !now.Before(awaited.until) {
		*awaited = awaitedSubscription{}
		return false
	}
	return true
}
