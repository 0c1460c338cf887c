package protocol

import (
	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Request is a request of the client. Names and Version belong to state of the world;
// Subscribe, Unsubscribe and Initial belong to delta. The sets should be made by
// Type.Names.
type Request struct {
	Names   nameset.Set
	Version string

	Subscribe, Unsubscribe nameset.Set
	Initial                Versions

	Nonce string
	// Rejected is set for a NACK of the response with the nonce; Message is the client's
	// message.
	Rejected bool
	Message  string
}

// StatesResources says whether a first request states resources of an earlier stream.
func (q *Request) StatesResources() bool { return q.Version != "" || len(q.Initial) > 0 }

// Answer says how a request was understood.
type Answer struct {
	// First request of the type on the stream.
	First bool
	// ACK or NACK name the response that was answered.
	ACK  *ResponseID
	NACK *Rejection
	// Stale: it answered a response before the last. In state of the world its content
	// was ignored; in delta its names count.
	Stale bool
}

const wildcardName = "*"

// Request processes a request: subscriptions, and an ACK or a NACK.
func (s *Subscription) Request(q Request) Answer {
	if s.typ.ByName {
		q.Names = s.typ.Names.Without(q.Names, wildcardName)
		q.Subscribe = s.typ.Names.Without(q.Subscribe, wildcardName)
	}
	if !s.started {
		s.start(q)
		return Answer{First: true}
	}
	var a Answer
	switch {
	case s.inflight != nil && q.Nonce == s.inflight.Nonce:
		a = s.answered(q)
	case s.inflight != nil && s.variant == StateOfTheWorld && s.explicit && q.Names.Len() == 0:
		a = s.unanswered()
	case q.Nonce != "" && q.Nonce != s.nonce && s.count > 0,
		s.variant == StateOfTheWorld && s.inflight != nil:
		a.Stale = true
		if s.variant == StateOfTheWorld {
			return a // the client says all this again once it has the last response
		}
	}
	if s.variant == Delta {
		s.subscribe(s.withoutEmptyName(q.Subscribe))
		s.unsubscribe(s.withoutEmptyName(q.Unsubscribe))
		if s.inflight != nil && !s.wildcard && s.names.Len() == 0 {
			a = s.unanswered()
		}
	} else {
		s.setNames(q.Names)
	}
	s.ignoreUnopened()
	return a
}

// unanswered ends the response in flight of a client that has unsubscribed from all
// names, as if acknowledged. Nothing in such an Envoy takes the response, so it does not
// answer.
// https://github.com/envoyproxy/envoy/pull/3359
func (s *Subscription) unanswered() Answer {
	return s.answered(Request{Nonce: s.inflight.Nonce})
}

// answered processes the ACK or NACK of the response in flight.
func (s *Subscription) answered(q Request) Answer {
	f := s.inflight
	s.inflight = nil
	if q.Rejected {
		r := &Rejection{ResponseID: f.ResponseID, Message: q.Message, HadAllAt: s.ackedIgnoringRejected}
		s.reject(f, r)
		if s.sendsWholeState() && s.unknownState && f.acked.Len() > 0 {
			s.mustRespond = true // it keeps what it had before until it takes a whole state
		}
		s.endSearch()
		return Answer{NACK: r}
	}
	s.accept(f)
	s.acked, s.unknownState, s.lastACK = f.acked, false, f.ResponseID
	s.endSearch()
	s.ackedIgnoringRejected = max(s.ackedIgnoringRejected, s.pendingRevision)
	if s.rejected.Len() == 0 {
		s.ackedRevision = max(s.ackedRevision, s.pendingRevision)
	}
	return Answer{ACK: &f.ResponseID}
}

// start processes the first request of the type on this stream. Resources that the
// client states in the desired version are not sent.
func (s *Subscription) start(q Request) {
	s.started, s.changedAt = true, s.revision
	if s.variant == StateOfTheWorld {
		s.startStateOfTheWorld(q)
	} else {
		s.startDelta(q)
	}
	if s.acked.Len() > 0 {
		for name := range s.resend.All() {
			s.markUnknown(name)
		}
	}
	s.resend = nameset.Set{}
}

func (s *Subscription) startStateOfTheWorld(q Request) {
	s.setSubscription(q.Names)
	s.explicit = q.Names.Len() > 0
	s.wildcard = s.wildcard || (s.typ.Full && !s.explicit)
	if !s.wildcard && s.names.Len() == 0 {
		return
	}
	// Only the version of a whole state proves what the client has. A client that named
	// resources may have dropped a name and requested it again: it states the same
	// version as one that has the resource.
	all := s.typ.Full && s.wildcard && s.names.Len() == 0 && !s.typ.AlwaysAnswered
	if all && q.Version != "" && q.Version == resource.SetVersion(s.wholeState(s.desired)) {
		s.acked = s.desired
		s.lastACK = ResponseID{Version: q.Version, Revision: s.revision, Nonce: q.Nonce}
		return
	}
	s.mustRespond, s.unknownState = true, q.Version != ""
	s.answerUnknown(nil)
}

func (s *Subscription) startDelta(q Request) {
	s.setSubscription(q.Subscribe)
	s.wildcard = s.wildcard || (s.typ.Full && q.Subscribe.Len() == 0)
	s.mustRespond = s.wildcard && (len(q.Initial) == 0 || s.typ.AlwaysAnswered)
	s.acked = s.setOfStated(q.Initial)
	s.answerUnknown(q.Initial)
	if !s.HasAdditions() {
		s.lastACK = ResponseID{Revision: s.revision}
	}
}

func (s *Subscription) setSubscription(names nameset.Set) {
	s.wildcard = names.Has(wildcardName)
	s.names = s.typ.Names.Without(s.withoutEmptyName(names), wildcardName)
}

// withoutEmptyName returns the names of a request without the empty name, which is none.
func (s *Subscription) withoutEmptyName(names nameset.Set) nameset.Set {
	if names.Has("") {
		return s.typ.Names.Without(names, "")
	}
	return names
}

// answerUnknown makes due, for each requested name that does not exist, the answer that
// it does not. A name that the client states gets a removal instead.
func (s *Subscription) answerUnknown(stated Versions) {
	var unknown []string
	for name, r := range nameset.In(s.names, s.desired) {
		if r == nil && !stated.Has(name) {
			unknown = append(unknown, name)
		}
	}
	s.mustAnswer = s.typ.Names.Of(unknown)
}
