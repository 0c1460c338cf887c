package stream

import (
	"slices"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// Request is what a client said. Names and Version are of the state of the
// world, Subscribe, Unsubscribe and Initial of delta. The sets are best of the
// table of the type.
type Request struct {
	Names   nameset.Set
	Version string

	Subscribe, Unsubscribe nameset.Set
	Initial                Versions

	Nonce string
	// Rejected is set where the client refuses the response of that nonce, with
	// its words in Message.
	Rejected bool
	Message  string
}

// Answer says how a request was understood.
type Answer struct {
	// First request of the type on the stream.
	First bool
	// Acked or Rejected name the response that was answered.
	Acked    *Mark
	Rejected *Rejection
	// Stale: it answered an older response than the last, and what it said of
	// that was ignored.
	Stale bool
}

const wildcardName = "*"

// Request takes what a client said: subscriptions, and how it took a response.
func (s *Session) Request(q Request) Answer {
	if !s.started {
		s.start(q)
		return Answer{First: true}
	}
	var a Answer
	switch {
	case s.inflight != nil && q.Nonce == s.inflight.Nonce:
		a = s.settle(q)
	case q.Nonce != "" && q.Nonce != s.nonce && s.count > 0,
		s.variant == StateOfTheWorld && s.inflight != nil:
		a.Stale = true
		if s.variant == StateOfTheWorld {
			return a // the client will say all this again when it has the last response
		}
	}
	if s.variant == Delta {
		s.subscribe(q.Subscribe)
		s.unsubscribe(q.Unsubscribe)
	} else {
		s.rename(q.Names)
	}
	s.rest()
	return a
}

// settle closes the response under way.
func (s *Session) settle(q Request) Answer {
	f := s.inflight
	s.inflight = nil
	if q.Rejected {
		s.refuse(f)
		s.rejected = &Rejection{Mark: f.Mark, Message: q.Message}
		s.retryChanged(f)
		return Answer{Rejected: s.rejected}
	}
	if s.refused.Len() > 0 {
		for c := range resource.Diff(s.has, f.has) {
			if differs(c) {
				s.refused = s.refused.Delete(c.Key)
			}
		}
		for _, name := range f.unknown {
			s.refused = s.refused.Delete(name)
		}
	}
	s.has, s.blind, s.acked = f.has, false, f.Mark
	s.besides = max(s.besides, s.covering)
	if s.refused.Len() == 0 {
		s.rejected = nil
		s.covered = max(s.covered, s.covering)
	}
	return Answer{Acked: &f.Mark}
}

// refuse notes what the client refused. It goes on with what it had.
func (s *Session) refuse(f *flight) {
	if s.has.Len() == 0 && s.refused.Len() == 0 && s.wantsAll(f.has) {
		s.refused = f.has // as a first response is refused by many at a time
	} else {
		for c := range resource.Diff(s.has, f.has) {
			if differs(c) && s.asks(c.Key) {
				s.refuseOne(f, c)
			}
		}
	}
	for _, name := range f.unknown {
		s.refused = s.refused.Set(name, nothing)
	}
}

func (s *Session) refuseOne(f *flight, c change) {
	switch {
	case s.scope(c.Key) != open: // it may have been taken, and is to go
		f.dropped = true
		if !c.HasOld {
			s.has = s.has.Set(c.Key, &resource.Resource{Name: c.Key, Version: refusedVersion})
		}
	case c.HasNew:
		s.refused = s.refused.Set(c.Key, c.New)
	default:
		s.refused = s.refused.Set(c.Key, nothing)
	}
}

func (s *Session) wantsAll(set resource.Set) bool {
	for name := range set.Keys() {
		if !s.wants(name) {
			return false
		}
	}
	return true
}

// retryChanged has what was refused sent again where part of it has changed, or
// was given up, while it was under way.
func (s *Session) retryChanged(f *flight) {
	if f.dropped {
		s.retry()
		return
	}
	for c := range s.differences(f.has) {
		if c, ok := s.concerns(c); ok {
			if _, refused := s.refused.Get(c.Key); refused && !slices.Contains(f.instead, c.Key) {
				s.retry()
				return
			}
		}
	}
}

// start takes the first request of the type on this stream. What the client
// states that it has, and has as it should be, is not sent.
func (s *Session) start(q Request) {
	s.started, s.changed = true, s.revision
	if s.variant == StateOfTheWorld {
		s.startWorld(q)
	} else {
		s.startDelta(q)
	}
	if s.has.Len() > 0 {
		for name := range s.resend.All() {
			s.doubt(name)
		}
	}
	s.resend = nameset.Set{}
}

func (s *Session) startWorld(q Request) {
	s.ask(q.Names)
	s.explicit = q.Names.Len() > 0
	s.wildcard = s.wildcard || (s.typ.Full && !s.explicit)
	if !s.wildcard && s.names.Len() == 0 {
		return
	}
	// Only of all there is does a version tell what the client has: one that
	// dropped a name and asked for it again states the same version as one that
	// has it.
	all := s.typ.Full && s.wildcard && s.names.Len() == 0
	if all && q.Version != "" && q.Version == resource.SetVersion(s.world(s.offered)) {
		s.has = s.offered
		s.acked = Mark{Version: q.Version, Revision: s.revision, Nonce: q.Nonce}
		return
	}
	s.owes, s.blind = true, q.Version != ""
	s.askUnknown(nil)
}

func (s *Session) startDelta(q Request) {
	s.ask(q.Subscribe)
	s.wildcard = s.wildcard || (s.typ.Full && q.Subscribe.Len() == 0)
	s.owes = s.wildcard && len(q.Initial) == 0
	s.has = s.stated(q.Initial)
	s.askUnknown(q.Initial)
	if !s.Lacks() {
		s.acked = Mark{Revision: s.revision}
	}
}

func (s *Session) ask(names nameset.Set) {
	s.wildcard = names.Has(wildcardName)
	s.names = s.typ.Names.Without(names, wildcardName)
}

// askUnknown has the client told of each name that it asks for and that does not
// exist. What it states that it has of such it is told to give up, in time.
func (s *Session) askUnknown(stated Versions) {
	var unknown []string
	for name, r := range nameset.In(s.names, s.offered) {
		if r == nil && !stated.Has(name) {
			unknown = append(unknown, name)
		}
	}
	s.asked = s.typ.Names.Of(unknown)
}
