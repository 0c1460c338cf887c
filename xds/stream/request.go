package stream

import (
	"maps"
	"slices"
)

// Request is what a client said. Names and Version are of the state of the
// world, Subscribe, Unsubscribe and Initial of delta.
type Request struct {
	Names   []string
	Version string

	Subscribe, Unsubscribe []string
	Initial                map[string]string

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
	return a
}

// settle closes the response under way.
func (s *Session) settle(q Request) Answer {
	mark, sent := *s.inflight, s.sent
	s.inflight, s.sent = nil, nil
	if q.Rejected {
		return s.refuse(q, mark, sent)
	}
	s.acked = mark
	for name, d := range sent {
		delete(s.refused, name)
		if _, changed := s.due[name]; changed {
			s.due[name] = holding{resource: d.after}
		} else if _, leaves := s.leaving[name]; leaves {
			s.leaving[name] = holding{resource: d.after}
		}
	}
	if s.typ.Full && s.variant == StateOfTheWorld {
		maps.DeleteFunc(s.refused, func(_ string, h holding) bool { return h.unknown }) // it went along
	}
	if len(s.refused) == 0 {
		s.rejected = nil
	}
	if s.rejected == nil {
		s.covered = max(s.covered, s.covering)
	}
	return Answer{Acked: &mark}
}

// refuse notes that the client took nothing of a response, and goes on with what
// it had.
func (s *Session) refuse(q Request, mark Mark, sent map[string]delivery) Answer {
	repaired := false
	for name, d := range sent {
		_, changed := s.due[name]
		repaired = repaired || changed || s.Leaves(name)
		if !s.Leaves(name) {
			s.refused[name] = d.before
		}
	}
	s.rejected = &Rejection{Mark: mark, Message: q.Message}
	if repaired {
		s.retry()
	}
	return Answer{Rejected: s.rejected}
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
	for name := range s.owed {
		if _, exists := s.offered.Get(name); exists && s.wants(name) {
			s.make(name, s.has(name))
		}
	}
	clear(s.owed)
}

func (s *Session) startWorld(q Request) {
	s.ask(q.Names)
	s.explicit = len(q.Names) > 0
	s.wildcard = s.wildcard || (s.typ.Full && len(q.Names) == 0)
	if !s.wildcard && len(s.names) == 0 {
		return
	}
	// Only of all there is does a version tell what the client has: one that
	// dropped a name and asked for it again states the same version as one that
	// has it.
	if s.typ.Full && s.wildcard && len(s.names) == 0 && q.Version != "" && q.Version == s.worldVersion() {
		s.acked = Mark{Version: q.Version, Revision: s.revision, Nonce: q.Nonce}
		return
	}
	s.owes = true
	s.dueAll(nil, q.Version != "")
}

func (s *Session) startDelta(q Request) {
	for name, version := range q.Initial {
		if !s.open(name) {
			s.stated[name] = version
		}
	}
	s.ask(q.Subscribe)
	s.wildcard = s.wildcard || (s.typ.Full && len(q.Subscribe) == 0)
	s.owes = s.wildcard && len(q.Initial) == 0
	s.dueAll(q.Initial, false)
	for name := range q.Initial {
		if _, exists := s.offered.Get(name); !exists && s.wants(name) {
			delete(s.due, name)
			s.leaving[name] = holding{unknown: true}
		}
	}
	if !s.owes && len(s.due) == 0 {
		s.acked = Mark{Revision: s.revision}
	}
}

func (s *Session) ask(names []string) {
	for _, name := range names {
		if name == wildcardName {
			s.wildcard = true
		} else {
			s.names[name] = struct{}{}
		}
	}
}

// dueAll makes due what was asked for and is not stated in its version. Of what
// is not stated the client has nothing, unless it is said to be unknown.
func (s *Session) dueAll(stated map[string]string, unknown bool) {
	consider := func(name, version string) {
		if has, ok := stated[name]; !ok || has != version {
			s.make(name, holding{unknown: unknown || ok})
		}
	}
	if s.wildcard {
		for name, r := range s.offered.All() {
			if s.open(name) {
				consider(name, r.Version)
			}
		}
	}
	for name := range s.names {
		if r, ok := s.offered.Get(name); !ok {
			s.make(name, holding{})
		} else if s.open(name) {
			consider(name, r.Version)
		}
	}
}

// subscribe adds names in a later delta request: each is answered, also one
// that the client has.
func (s *Session) subscribe(names []string) {
	for _, name := range names {
		if name == wildcardName {
			if !s.wildcard {
				s.wildcard, s.owes = true, true
				s.dueAll(nil, false)
			}
			continue
		}
		s.names[name] = struct{}{}
		s.make(name, holding{})
	}
}

// unsubscribe gives names up. In delta a client cannot tell whether it has a
// resource for its name or for a wildcard that goes on, so it is told anew.
func (s *Session) unsubscribe(names []string) {
	for _, name := range names {
		if name == wildcardName {
			s.wildcard = false
			continue
		}
		was := s.named(name)
		delete(s.names, name)
		if was && s.wildcard && s.variant == Delta {
			s.make(name, s.has(name))
		}
	}
	if !s.wildcard && len(names) > 0 {
		s.forgetUnwanted(names)
	}
}

// forgetUnwanted drops what is due of names that were given up, or of all that
// are not asked for where one of these is the wildcard.
func (s *Session) forgetUnwanted(names []string) {
	if slices.Contains(names, wildcardName) {
		names = slices.Concat(slices.Collect(maps.Keys(s.due)), slices.Collect(maps.Keys(s.leaving)), slices.Collect(maps.Keys(s.refused)))
	}
	repaired := false
	for _, name := range names {
		if s.named(name) {
			continue
		}
		delete(s.due, name)
		delete(s.leaving, name)
		delete(s.sent, name)
		if _, ok := s.refused[name]; ok {
			repaired = true
			delete(s.refused, name)
		}
	}
	if repaired {
		s.retry()
	}
}

// rename takes the names of a later request in state of the world, which are
// all names there are: new ones are answered, the missing forgotten. To name
// none means what it meant before as long as none was ever named.
func (s *Session) rename(names []string) {
	if s.explicit = s.explicit || len(names) > 0; !s.explicit {
		return
	}
	stated := make(map[string]struct{}, len(names))
	var added []string
	for _, name := range names {
		stated[name] = struct{}{}
		if !s.named(name) && (name != wildcardName || !s.wildcard) {
			added = append(added, name)
		}
	}
	var missing []string
	for name := range s.names {
		if _, ok := stated[name]; !ok {
			missing = append(missing, name)
		}
	}
	if _, ok := stated[wildcardName]; s.wildcard && !ok {
		missing = append(missing, wildcardName)
	}
	s.subscribe(added)
	s.unsubscribe(missing)
}
