package delivery

import (
	"iter"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// withdraw yields the next response of a type with removals, after one that empties the
// scopes of the removed resources. It returns false if the caller must stop.
func (s *Sequencer) withdraw(t *typeState, now time.Time, yield func(string, *protocol.Response) bool) bool {
	allow, some := s.removals(t, now)
	if !some {
		return true
	}
	for inner := range t.scopedTypes {
		if r, ok := s.emptyScopesOfRemovals(t, inner, allow); ok && !yield(inner.URL, r) {
			return false
		}
	}
	r, ok := s.next(t, allow)
	if !ok {
		return true
	}
	for name := range r.Withdrawn {
		delete(t.keptSince, name)
	}
	return yield(t.URL, r)
}

// removals returns what the next response of a type may remove, as an Allow; false if it
// must remove nothing. It notes in keptSince since when each removal waits.
func (s *Sequencer) removals(t *typeState, now time.Time) (protocol.Allow, bool) {
	before := t.keptSince
	t.keptSince = nil
	leaving := t.sub.Removals()
	if len(leaving) == 0 || t.Scoped || t.Together { // which send removals with additions
		return protocol.Allow{}, false
	}
	t.keptSince = make(map[string]time.Time, len(leaving))
	kept, goes := s.neededRemovals(t, (*protocol.Subscription).KeptOnRejection), t.goesWithOthers()
	for _, name := range leaving {
		switch since := before[name]; {
		case kept.has(name) || goes.has(name): // held without limit
			t.keptSince[name] = time.Time{}
		case since.IsZero():
			t.keptSince[name] = now
		default:
			t.keptSince[name] = since
		}
	}
	if t.sub.InFlight() {
		return protocol.Allow{}, false
	}
	needed := s.mayBeNeeded(t)
	// The removal of what the client lacks goes at once: the client may be waiting for the
	// answer. A gRPC client so waits also for clusters that it rejected along with others, to
	// which no route sends traffic.
	mayHave := t.sub.MayHoldRejected
	if s.isGRPC() {
		mayHave = t.sub.Has
	}
	return protocol.Allow{Add: never, Remove: func(name string) bool {
		since := t.keptSince[name]
		overdue := !since.IsZero() && now.Sub(since) >= s.limits.Withdraw
		if mayHave(name) && !overdue && (since.IsZero() || needed(name)) {
			return false
		}
		return !t.scopeInFlight(name) && !t.mayStateEmptied(name)
	}}, true
}

// someNames is a set of names, or of all names that there are.
type someNames struct {
	names map[string]struct{}
	all   bool
}

func (n someNames) has(name string) bool {
	_, ok := n.names[name]
	return ok || n.all
}

func (n *someNames) add(names iter.Seq[string]) {
	for name := range names {
		if n.names == nil {
			n.names = map[string]struct{}{}
		}
		n.names[name] = struct{}{}
	}
}

// goesWithOthers returns the names that a resource which is to be removed itself needs.
// The client drops them by itself together with that resource, as the endpoints of a
// cluster, so their removals wait for it. A resource of unknown form may need any name.
func (t *typeState) goesWithOthers() someNames {
	var out someNames
	for _, n := range t.neededBy {
		if !n.resends() {
			continue
		}
		for _, name := range n.needing.sub.Removals() {
			r := n.needing.sub.Acked(name)
			out.all = out.all || r == nil && n.kind == resource.Covered
			out.add(n.names(r))
		}
	}
	return out
}

// overdue says whether a removal was held back for longer than the limit, be it only by
// ever new additions.
func (t *typeState) overdue(now time.Time, limit time.Duration) bool {
	for _, since := range t.keptSince {
		if !since.IsZero() && now.Sub(since) >= limit {
			return true
		}
	}
	return false
}

func never(string) bool  { return false }
func always(string) bool { return true }

// mayBeNeeded returns a function that says whether a removal has to wait, since the
// client may still need the resource: additions are on their way that replace it, or
// something that the client has needs it. A reconnected client may be about to state what
// needs it, and a gRPC client may give it up by itself.
func (s *Sequencer) mayBeNeeded(t *typeState) func(name string) bool {
	silent := false
	for other := range s.needing(t) {
		silent = silent || !other.Optional && !other.sub.Started() && s.mayAskForMore()
	}
	needed := s.neededRemovals(t, (*protocol.Subscription).NotInSync)
	busy := t.sub.HasAdditions() || t.replacing()
	drops := s.dropsByItself(t)
	return func(name string) bool {
		return busy || needed.has(name) || silent && t.sub.RemovingUnknown(name) || drops(name)
	}
}

// dropsByItself returns a function that says whether the client unsubscribes from a removed
// name by itself. A gRPC client, which requests targets by name, does so once it has finished
// with the routes that named a target. Other clients do not, and for other types none does.
func (s *Sequencer) dropsByItself(t *typeState) func(name string) bool {
	if _, all := t.sub.Subscribed(); all || t != s.target {
		return never
	}
	var used someNames
	for other, names := range s.needing(t) {
		subscribed, all := other.sub.Subscribed()
		used.all = used.all || all
		for name := range subscribed {
			if r := other.sub.Desired(name); r != nil {
				used.add(names(r))
			}
		}
	}
	return func(name string) bool { return !used.has(name) }
}

// neededRemovals returns the names of a type that resources of other types need. Its
// parameter of chooses these resources from each subscription, as Subscription.NotInSync
// does.
func (s *Sequencer) neededRemovals(t *typeState, of func(*protocol.Subscription) iter.Seq[*resource.Resource]) someNames {
	var out someNames
	for other, names := range s.needing(t) {
		for r := range of(other.sub) {
			if r == nil {
				out.all = true
				continue
			}
			out.add(names(r))
		}
	}
	return out
}

// needing iterates over the types whose resources may need those of a type, each with a
// function that returns the needed names.
func (s *Sequencer) needing(t *typeState) iter.Seq2[*typeState, func(*resource.Resource) iter.Seq[string]] {
	return func(yield func(*typeState, func(*resource.Resource) iter.Seq[string]) bool) {
		for _, n := range t.neededBy {
			if !yield(n.needing, n.names) {
				return
			}
		}
		if t != s.target {
			return
		}
		for _, other := range s.types {
			if other.sendsTraffic && !yield(other, func(r *resource.Resource) iter.Seq[string] { return r.EachRef }) {
				return
			}
		}
	}
}

// replacing says whether the client may still be replacing resources of the type, as a
// listener whose successor waits for its routes. It can be true only for a type that
// nothing needs.
func (t *typeState) replacing() bool {
	if t == t.sequencer.target || len(t.neededBy) > 0 || t.outer != nil {
		return false
	}
	return t.needsBusy()
}

// busy says whether the client lacks something of a type or of what that needs, or has
// not answered a response of these yet.
func (t *typeState) busy() bool { return t.sub.HasAdditions() || t.sub.InFlight() || t.needsBusy() }

func (t *typeState) needsBusy() bool {
	return slices.ContainsFunc(t.needs, func(n *need) bool { return n.needed.busy() }) || slices.ContainsFunc(t.inner, (*typeState).busy)
}
