package protocol

import (
	"cmp"

	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Variant is a variant of the xDS protocol.
type Variant int

// The variants of the protocol.
const (
	StateOfTheWorld Variant = iota
	Delta
)

// String implements fmt.Stringer.
func (v Variant) String() string {
	if v == Delta {
		return "delta"
	}
	return "state of the world"
}

// Type describes a resource type to this package.
type Type struct {
	URL string
	// Full says that a client may request all resources by naming none, and that a
	// response in state of the world carries the whole state. So it is with clusters and
	// listeners, and in delta with virtual hosts.
	Full bool
	// ByName says that the wildcard requests nothing, as with secrets.
	ByName bool
	// AlwaysAnswered says that the first request for all resources gets a response even
	// if the client has them from an earlier stream. The client waits for it, to know
	// that it has them all.
	AlwaysAnswered bool
	// Otherwise makes another form of a resource, which harms nobody who has none. Not nil, it says
	// that a client which rejected a form acknowledges it when it gets that once more, and uses it
	// no more than before. So it is with the configuration of filters. What was rejected along with
	// others goes out in the form that the client had, or in this one, before it is tried again. A
	// client that reconnects may have a form that is not known: what it then acknowledges is believed.
	// https://github.com/envoyproxy/envoy/blob/main/source/common/filter/config_discovery_impl.cc
	Otherwise func(name string) (*resource.Resource, error)
	// Empty makes the answer to an unknown name, for clients that wait for each
	// resource. If it is nil, or returns nil, unknown names are answered by a removal.
	Empty func(name string) (*resource.Resource, error)
	// Scoped types hold resources that live within others; see OpenScope. Delta only.
	Scoped bool
	// Names shares the sets of requested names; nil shares nothing.
	Names *nameset.Table
	// Shared caches results that subscriptions of the same Sets share; nil shares
	// nothing.
	Shared *Shared
}

// ResponseID names a response: its nonce, its version, and the revision of the store
// that it carried.
type ResponseID struct {
	Nonce    string
	Version  string
	Revision int64
}

// Subscription is the state of one type on one stream: what the client requests, what it
// should have (desired), what it has acknowledged (acked), and the response in flight.
//
// Desired and acked are Sets, which subscriptions share. Where the two differ something
// is due; the acked Set of a client in sync is the desired Set itself. Apart from them a
// subscription holds the requested names, in a set that is shared too, and few exceptions
// by name.
type Subscription struct {
	typ     Type
	variant Variant

	// What the client requests. Names in mustAnswer get an answer whatever the client
	// has of them.
	started      bool
	explicit     bool // it has named resources, so an empty list of names is no wildcard any more
	wildcard     bool
	names        nameset.Set
	mustAnswer   nameset.Set
	mustRespond  bool // a response is due even if it is empty
	scopes       map[string]scopeState
	scopeChanges int // how often scopes changed

	// What the client should have.
	desired   resource.Set
	revision  int64
	changedAt int64 // the revision of the last SetDesired that made a difference to the client
	widened   int   // counts requests and scopes by which the client came to need more of an unchanged set

	// What the client has. Entries of names that it does not request mean nothing, so
	// acked may be the desired Set itself. An entry that the client may have in another
	// form has an unknown version, see markUnknown.
	acked        resource.Set
	unknownState bool        // it may have anything: it stated a version that does not say what
	resend       nameset.Set // to be sent whatever version the first request states

	// What was sent, and how it was answered. rejected has, by name, the forms that the
	// client rejected alone in a response and that were not sent again. While such a form
	// is desired it is not sent again.
	count    int
	nonce    string // of the last response
	inflight *inFlight
	lastACK  ResponseID
	rejected pmap.Map[*RejectedForm]
	search   *search // nil for none
	// The client has all that it should have had at ackedRevision, and will at
	// pendingRevision once it acknowledges the response in flight. ackedIgnoringRejected
	// is like ackedRevision, but ignores the rejected resources.
	ackedRevision, pendingRevision, ackedIgnoringRejected int64

	lastKinds dueKinds
}

type inFlight struct {
	ResponseID
	acked   resource.Set // acked once the client acknowledges this
	unknown []string     // requested names that do not exist
	interim []string     // names that are sent in an interim form
	dropped bool         // something in it is not wanted any more: unsubscribed from, or forgotten
	trial   bool         // it sends suspects
}

// Rejection is a NACK, with its message.
type Rejection struct {
	ResponseID
	Message string
	// HadAllAt is the revision of which the client had everything, earlier rejected
	// resources aside. What it rejected came after it.
	HadAllAt int64
}

// RejectedForm is a form of a resource that the client rejected alone in a response.
type RejectedForm struct {
	*Rejection
	form *resource.Resource // nil for a removal, or for the answer that there is none
}

// after says whether a response was sent after another.
func (m ResponseID) after(o ResponseID) bool {
	return cmp.Or(cmp.Compare(m.Revision, o.Revision), cmp.Compare(len(m.Nonce), len(o.Nonce)), cmp.Compare(m.Nonce, o.Nonce)) > 0
}

// New returns the subscription of a type before the first request.
func New(typ Type, variant Variant) *Subscription { return &Subscription{typ: typ, variant: variant} }

// SetDesired sets what the client should have from now on, at a revision of the store.
// The cost follows the difference to the last call.
func (s *Subscription) SetDesired(to resource.Set, revision int64) {
	if s.started && !s.Pending() {
		if s.ackedIgnoringRejected = s.revision; s.rejected.Len() == 0 {
			s.ackedRevision = s.revision
		}
	}
	from := s.desired
	s.desired, s.revision = to, revision
	if from != to && (s.started || s.resend.Len() > 0) {
		s.desiredChanged(from)
	}
	s.ignoreUnopened()
}

// CatchUp moves an Idle subscription to a later revision, at which its desired set is the
// same.
func (s *Subscription) CatchUp(revision int64) {
	s.revision = revision
	if s.started {
		s.ackedRevision, s.ackedIgnoringRejected = revision, revision
	}
}

// desiredChanged processes the difference to the former desired set. A rejected resource
// is tried again in its new form. A requested name that is gone before it was sent gets
// the answer that it does not exist.
func (s *Subscription) desiredChanged(from resource.Set) {
	var repaired []string
	var unsent, gone []string // names that are gone: requested ones that were never sent, and all
	acked := s.ackedAfterFlight()
	for c := range s.ChangesSince(from) {
		if !differs(c) {
			continue
		}
		if s.started && s.canUse(c.Key) {
			s.changedAt = s.revision
			if _, ok := s.rejected.Get(c.Key); ok {
				repaired = append(repaired, c.Key)
			}
			if _, ok := acked.Get(c.Key); !ok && !c.HasNew && s.subscribesByName(c.Key) {
				unsent = append(unsent, c.Key)
			}
		}
		if !c.HasNew {
			gone = append(gone, c.Key)
		}
	}
	s.mustAnswer = s.typ.Names.With(s.mustAnswer, unsent...)
	s.resend = s.typ.Names.Without(s.resend, gone...)
	s.retry(repaired)
	s.endSearch()
}

// Resend makes named resources due again although they did not change: a resource that
// needs them is being sent, and the client waits for them again.
func (s *Subscription) Resend(names ...string) {
	if !s.started {
		s.resend = s.typ.Names.With(s.resend, names...)
		return
	}
	for _, name := range names {
		s.markUnknown(name)
	}
}

// markUnknown makes a name that the client has due again, also a changed one: before it
// is sent, it may change back to what the client has.
func (s *Subscription) markUnknown(name string) {
	if _, ok := s.ackedAfterFlight().Get(name); !ok || !s.canUse(name) {
		return
	}
	s.updateAcked(func(has resource.Set) resource.Set { return s.typ.Shared.markUnknown(has, name) })
}

// Forget drops removals that are due, and returns their names. The client removes these
// resources by itself, since nothing that it has or is being sent refers to them. Until
// then it may use them.
func (s *Subscription) Forget(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	var out []string
	leaving := s.dueKinds().removed
	for _, name := range names {
		if leaving && s.Removing(name) {
			out = append(out, name)
			if s.Delivering(name) {
				s.inflight.dropped = true
			}
			s.updateAcked(func(has resource.Set) resource.Set { return has.Delete(name) })
		}
	}
	s.endSearch()
	return out
}

// ackedAfterFlight returns what the client has once it acknowledges the response in
// flight.
func (s *Subscription) ackedAfterFlight() resource.Set {
	if s.inflight != nil {
		return s.inflight.acked
	}
	return s.acked
}

// updateAcked replaces what the client has, now and after the response in flight.
func (s *Subscription) updateAcked(replace func(resource.Set) resource.Set) {
	s.acked = replace(s.acked)
	if s.inflight != nil {
		s.inflight.acked = replace(s.inflight.acked)
	}
}

// subscribes says whether the client requests a name. wants says whether it can also use
// it, since the scope of the name is open.
func (s *Subscription) subscribes(name string) bool { return s.wildcard || s.subscribesByName(name) }

func (s *Subscription) canUse(name string) bool { return s.subscribes(name) && s.scope(name) == open }

func (s *Subscription) subscribesByName(name string) bool { return s.names.Has(name) }
