package delivery

import (
	"iter"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Type is a resource type and what its resources may need.
type Type struct {
	protocol.Type
	// Needs says which types the resources of this one may need, and how; its entries
	// have no Name. Nobody waits for a type that the sequencer does not have, or that is
	// Optional.
	Needs []resource.Need
	// Preannounce returns the interim form of a resource that the client has: it names
	// more clusters, and sends them no traffic. It is nil for a type whose clients learn
	// of clusters in another way.
	Preannounce func(has *resource.Resource, clusters []string) (*resource.Resource, error)
	// Turn says in which turn a resource goes whose form the client has, if others of the type change
	// at the same time. A client takes the resources of one response one after another, and what it
	// does in between is to be what it did before, or what it does afterwards. Nil for a type whose
	// changes all go at once.
	Turn func(has, wants *resource.Resource) Turn
	// Together says that everything due goes in one response, removals with additions.
	// Such a type must have no needs, and no other type may need it.
	Together bool
	// Optional says that the client may never request the type. Removals wait a while for
	// the client to request the types that may need the removed resource, but not for an
	// Optional one.
	Optional bool
}

// Limits bound how long the sequencer waits for the client. No time may be zero.
type Limits struct {
	// Ready is how long a resource waits until the client can use what it needs.
	Ready time.Duration
	// Resolve is the time that a client gets to resolve host names.
	Resolve time.Duration
	// Ask is how long the server expects the next request for a new type after the last
	// one. A client that reconnects requests its types one after another.
	Ask time.Duration
	// Withdraw is how long a removal waits for resources that need the removed one.
	Withdraw time.Duration
	// LastActivity returns when the client last sent something, and when it last took
	// something, parts of messages included. A zero time means unknown, and a nil
	// LastActivity means that both always are. Limits that count the silence of the
	// client start from these times.
	LastActivity func() (sent, took time.Time)
}

// Late is a resource that was sent after Ready, although the client could not use what
// it needs.
type Late struct {
	TypeURL, Name string
	// Missing is one of the clusters that it sends traffic to.
	Missing string
}

// Sequencer decides what goes to one client, of all types, and in which order. It knows
// what resources of different types need of each other. The Subscription of each type
// knows what the client has of it. One goroutine at a time uses it.
type Sequencer struct {
	variant protocol.Variant
	limits  Limits
	types   []*typeState // in the order of sending
	// target is the type to which resources of other types send traffic, that is,
	// clusters; nil for none.
	target   *typeState
	late     []Late
	revision int64 // of the last SetDesired
	// lastAsked is the time of the last Responses. lastProgress is when a first sync last
	// made progress. lastFirstRequest is when the client last requested a type for the
	// first time, or, as it was active, may have been about to.
	lastAsked, lastProgress, lastFirstRequest time.Time
}

// typeState is one type of a Sequencer: its subscription, its needs, and what is held or
// kept since when.
type typeState struct {
	Type
	sequencer *Sequencer
	sub       *protocol.Subscription // of an idle type changed only through active
	idleness

	// needs link the type to the types that its resources wait for; neededBy are the
	// links from types whose resources wait for this one.
	needs, neededBy []*need
	// lastDesired is the set of the last SetDesired. The set in the subscription may have more,
	// see retain.
	lastDesired resource.Set
	// inner are the types whose resources live within those of this one. outer is the
	// type within whose resources those of this one live; nil for none.
	inner []*typeState
	outer *typeState
	// sendsTraffic says that resources of the type may send traffic to targets.
	sendsTraffic bool

	awaited awaitedSubscription
	held    held
	// digestTime is the extra time that the client gets to answer the first response of
	// the type; zero once it has.
	digestTime time.Duration
	// warming, of the target, tracks new targets until the client can use them.
	warming warming
	// keptSince says since when each removal is held back; zero if it is held without
	// limit.
	keptSince map[string]time.Time
	// stated says that the first request of the client stated resources from an earlier
	// stream.
	stated bool
	// rejectedOuter, of an outer type, are the resources that the client rejected, alone
	// or with others, and has not acknowledged since.
	rejectedOuter map[string]struct{}
}

// New returns the sequencer of a client that has requested nothing yet. Types are in the
// order of sending: a type comes before the types that it waits for, as clusters before
// endpoints, and after the types to which it sends traffic, as routes after clusters.
func New(types []Type, variant protocol.Variant, limits Limits) *Sequencer {
	s := &Sequencer{variant: variant, limits: limits, types: make([]*typeState, 0, len(types))}
	for _, t := range types {
		s.add(t)
	}
	for _, t := range s.types {
		t.link()
	}
	return s
}

// typeState returns the state of a type, nil if there is none. There are few types.
func (s *Sequencer) typeState(typeURL string) *typeState {
	for _, t := range s.types {
		if t.URL == typeURL {
			return t
		}
	}
	return nil
}

func (s *Sequencer) add(t Type) *typeState {
	state := &typeState{Type: t, sequencer: s, sub: protocol.New(t.Type, s.variant)}
	s.types = append(s.types, state)
	return state
}

// Add adds a type that needs no other and that no other needs, and returns its
// subscription.
func (s *Sequencer) Add(t protocol.Type) *protocol.Subscription { return s.add(Type{Type: t}).sub }

// Subscriptions iterates over the subscriptions, in the order of sending, and wakes
// their types.
func (s *Sequencer) Subscriptions() iter.Seq2[string, *protocol.Subscription] {
	return func(yield func(string, *protocol.Subscription) bool) {
		for _, t := range s.types {
			if !yield(t.URL, t.active()) {
				return
			}
		}
	}
}

// MakeOptional says that the client will not request a type after all.
func (s *Sequencer) MakeOptional(typeURL string) {
	if t := s.typeState(typeURL); t != nil {
		t.Optional = true
	}
}

// SetDesired sets what the client should have of each type from now on, at a revision
// of the store.
func (s *Sequencer) SetDesired(sets func(typeURL string) resource.Set, revision int64) {
	back := revision < s.revision // the store was replaced
	for _, t := range s.types {
		to := sets(t.URL)
		if t.idle && t.lastDesired == to && !back {
			continue
		}
		before := t.sub.DesiredSet()
		t.active().SetDesired(t.retain(to), revision)
		if t == s.target {
			t.forgetUndesired(before)
		}
	}
	s.revision = revision
}

// Request processes a request of the client for a type that the sequencer has: its names,
// and its ACK or NACK of the response in flight. Responses then yields what may go next.
func (s *Sequencer) Request(typeURL string, q protocol.Request, now time.Time) protocol.Answer {
	t := s.typeState(typeURL)
	firstSync := t.isTargetOrNeeded() && t.sub.FirstSync()
	flight := t.sub.Flight()
	answer := t.active().Request(q)
	if answer.ACK != nil || answer.NACK != nil {
		t.digestTime = 0
	}
	if answer.First || firstSync && !t.sub.FirstSync() {
		s.noteProgress(t, now)
	}
	switch {
	case answer.ACK != nil:
		s.acknowledged(t, flight, now)
	case answer.NACK != nil:
		t.noteRejectedOuter(flight)
	}
	if answer.ACK != nil || answer.NACK != nil {
		t.releaseRetained()
	}
	t.rescope(q, answer.First)
	if answer.First {
		s.lastFirstRequest, t.stated = now, len(q.Initial) > 0 || q.Version != ""
	}
	return answer
}

// acknowledged draws the conclusions of an ACK for other types; flight is what the
// response changed. Clusters start to resolve host names, and route configurations open
// the scopes of their virtual hosts. The client is expected to request what the resources
// need. Clusters whose endpoints and secrets have arrived are warm.
func (s *Sequencer) acknowledged(t *typeState, flight protocol.Flight, now time.Time) {
	if t == s.target {
		t.resolve(flight, now.Add(s.limits.Resolve))
	}
	t.openAckedScopes(flight)
	t.expectSubscriptions(flight, now.Add(s.limits.Ready))
	if t.isTargetOrNeeded() {
		s.target.dropWarm()
	}
}

// Responses iterates over the responses to send now. Additions go type by type in their
// order, and removals in the opposite order, unless they were held back for too long.
func (s *Sequencer) Responses(now time.Time) iter.Seq2[string, *protocol.Response] {
	return func(yield func(string, *protocol.Response) bool) {
		s.lastAsked = now
		s.noteActivity()
		if s.target != nil {
			s.target.warming.endGraces(now)
		}
		for _, t := range s.types {
			if t.idle || t.resetIfNothingDue() {
				continue
			}
			if t.overdue(now, s.limits.Withdraw) && !s.withdraw(t, now, yield) {
				return
			}
			if s.holdWhole(t, now) {
				continue
			}
			if r, ok := s.addTo(t, now); ok && !yield(t.URL, r) {
				return
			}
		}
		for _, t := range slices.Backward(s.types) {
			if !t.idle && !t.resetIfNothingDue() && !s.withdraw(t, now, yield) {
				return
			}
		}
		s.markIdle()
	}
}

// addTo returns the next response of a type with additions.
func (s *Sequencer) addTo(t *typeState, now time.Time) (*protocol.Response, bool) {
	firstSync := t.isTargetOrNeeded() && t.sub.FirstSync()
	r, ok := s.next(t, s.additions(t, now))
	if ok && firstSync {
		t.digestTime = digestTime(r)
		s.noteProgress(t, now)
	}
	t.held.whole = false
	return r, ok
}

// resetIfNothingDue says whether nothing of a type is in flight or due. Then it also clears
// what was noted of held and kept resources.
func (t *typeState) resetIfNothingDue() bool {
	if t.sub.Pending() {
		return false
	}
	t.held.since, t.held.whole, t.keptSince = nil, false, nil
	return true
}

// next returns the next response of a type, as far as allow permits. It notes for other
// types that the response is being sent.
func (s *Sequencer) next(t *typeState, allow protocol.Allow) (*protocol.Response, bool) {
	r, ok := t.sub.Next(allow)
	if !ok {
		return nil, false
	}
	s.late = append(s.late, t.held.takeLate()...)
	if t == s.target {
		t.sentTargets(r)
	}
	for _, n := range t.needs {
		n.follow(r)
	}
	for _, inner := range t.inner {
		inner.closeWithdrawn(r)
	}
	return r, true
}

// Wake returns when Responses may return more although nothing has happened; zero for
// never.
func (s *Sequencer) Wake() time.Time {
	var at time.Time
	soonest := func(t time.Time) {
		if t.After(s.lastAsked) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, t := range s.types {
		if t.idle {
			continue
		}
		soonest(t.awaited.until)
		if t.sub.InFlight() {
			continue // nothing is sent before the client has answered
		}
		if t.held.whole {
			soonest(s.lateFrom())
		}
		for _, since := range t.held.since {
			soonest(since.Add(s.limits.Ready))
		}
		for _, since := range t.keptSince {
			if !since.IsZero() {
				soonest(since.Add(s.limits.Withdraw))
			}
		}
		if len(t.keptSince)+len(t.held.since) > 0 || t.mayStateScopes() {
			soonest(s.lastFirstRequest.Add(s.limits.Ask))
		}
	}
	if s.target != nil && len(s.target.warming.graces) > 0 {
		soonest(s.target.warming.graces[0].until)
	}
	return at
}

// mayAskForMore says whether the client may be about to request another type.
func (s *Sequencer) mayAskForMore() bool {
	return s.lastAsked.Before(s.lastFirstRequest.Add(s.limits.Ask))
}

// Late returns the resources that were sent late since the last call.
func (s *Sequencer) Late() []Late {
	out := s.late
	s.late = nil
	return out
}

// OnlyKeptRemovals says whether nothing but removals of a type is due, and all of them
// are kept without limit. Something needs them that the client goes on using because it
// rejected a newer form, or they go together with another resource.
func (s *Sequencer) OnlyKeptRemovals(typeURL string) bool {
	t := s.typeState(typeURL)
	if t == nil || len(t.keptSince) == 0 || t.sub.InFlight() || t.sub.HasAdditions() {
		return false
	}
	for _, since := range t.keptSince {
		if !since.IsZero() {
			return false
		}
	}
	return true
}

// Waiting returns how much of a type is held back: additions until the client can use
// what they need, and removals until nothing needs them.
func (s *Sequencer) Waiting(typeURL string) (additions, removals int) {
	t := s.typeState(typeURL)
	if t == nil {
		return 0, 0
	}
	if t.held.whole {
		return t.sub.Size(), len(t.keptSince)
	}
	return len(t.held.since), len(t.keptSince)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
