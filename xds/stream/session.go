package stream

import (
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// Variant is how responses relate to what the client has.
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

// Type is what the protocol has to know of a resource type.
type Type struct {
	URL string
	// Full types are clusters and listeners: a client may ask for all there are by
	// naming none, and a response in state of the world is the whole truth. So are
	// virtual hosts, which are asked for in delta only.
	Full bool
	// Empty makes the answer to an unknown name, where the clients of the type
	// wait for each resource; nil, or no answer, where unknown names are answered
	// as removed.
	Empty func(name string) (*resource.Resource, error)
	// Scoped types are of resources that live within others; see Open. Delta only.
	Scoped bool
	// Names holds the sets of names that clients ask for, so that those who ask for
	// the same share one; nil where nothing is shared.
	Names *nameset.Table
	// Shared holds what sessions work out of the same Sets; nil where each does so
	// for itself.
	Shared *Shared
}

// Mark names a response: its nonce, its version and the revision of the store
// that it carried.
type Mark struct {
	Nonce    string
	Version  string
	Revision int64
}

// Session is the state of one type on one stream.
//
// What a client has and what it should have are Sets, whose content sessions
// share: where the two are one a client is in step, and in what they differ is
// due. Nothing is kept by name but what a client asked for, in a set of names
// that is shared, too, and exceptions.
type Session struct {
	typ     Type
	variant Variant

	// What the client asked for. asked are names that are answered whatever it has
	// of them.
	started  bool
	explicit bool // it has used names, so that naming none is no wildcard
	wildcard bool
	names    nameset.Set
	asked    nameset.Set
	owes     bool            // an answer is due even if nothing is to be said
	scopes   map[string]bool // of a scoped type: those that are open, false where one was
	scoped   int             // how often scopes was changed
	absorbed map[string]bool // of a scoped type: those that were never open and are not looked at; see absorb

	// What the client should have.
	offered  resource.Set
	revision int64
	changed  int64 // revision of the last offer that made a difference to the client
	grown    int   // how often the client came to want more of what was offered already

	// What the client has. Of names that it does not ask for that means nothing, so
	// that it may be what is offered; see unsure for what it may have.
	has    resource.Set
	blind  bool        // it has more, but does not say what
	resend nameset.Set // to be sent whatever version the first request states

	// What was said and how it was taken. refused is what the client refused and
	// was not sent since: it is not sent again while that is what is offered.
	count    int
	nonce    string // of the last response
	inflight *flight
	acked    Mark
	rejected *Rejection
	refused  resource.Set
	// The client has all of what it should have had at the revision covered, and at
	// covering as soon as it takes the response under way. Besides is as covered,
	// with what it refused and was not sent again left out.
	covered, covering, besides int64

	sight  sight  // of what is due
	latest latest // of what differs from what is offered
}

// flight is the response under way.
type flight struct {
	Mark
	has     resource.Set // what the client has when it has taken it
	unknown []string     // names that it asked for and was told not to exist
	instead []string     // names of which it is to have another resource then
	dropped bool         // it has given up names that are in it
}

// Rejection is a response that the client refused, and its words.
type Rejection struct {
	Mark
	Message string
}

// New returns the session of a type on which nothing was said yet.
func New(typ Type, variant Variant) *Session { return &Session{typ: typ, variant: variant} }

// Offer says what the client should have from now on, as of a revision of the
// store. The cost follows the difference to what was offered last.
func (s *Session) Offer(to resource.Set, revision int64) {
	if s.started && !s.Pending() {
		if s.besides = s.revision; s.rejected == nil {
			s.covered = s.revision
		}
	}
	from := s.offered
	s.offered, s.revision = to, revision
	if from != to && (s.started || s.resend.Len() > 0) {
		s.follow(from)
	}
	s.rest()
}

// follow takes the difference to what was offered last.
func (s *Session) follow(from resource.Set) {
	repaired := false
	var unsent, gone []string // removed: those the client asked for and was not sent, and all
	told := s.told()
	for c := range s.Since(from) {
		if !differs(c) {
			continue
		}
		if s.started && s.wants(c.Key) {
			s.changed = s.revision
			_, ok := s.refused.Get(c.Key)
			repaired = repaired || ok
			if _, ok := told.Get(c.Key); !ok && !c.HasNew && s.named(c.Key) {
				unsent = append(unsent, c.Key)
			}
		}
		if !c.HasNew {
			gone = append(gone, c.Key)
		}
	}
	s.asked = s.typ.Names.With(s.asked, unsent...)
	s.resend = s.typ.Names.Without(s.resend, gone...)
	if repaired {
		s.retry()
	}
	s.lapse()
}

// lapse ends a rejection of which nothing is left to be mended.
func (s *Session) lapse() {
	if s.rejected != nil && s.refused.Len() == 0 && !s.Pending() {
		s.rejected = nil
	}
}

// retry has all sent again that was refused, since part of it changed: a client
// that refuses one resource may have dropped those that came with it, or not.
func (s *Session) retry() {
	refused := s.refused
	s.refused = resource.Set{}
	var unanswered []string
	for name, r := range refused.All() {
		if !s.asks(name) {
			continue
		}
		_, exists := s.offered.Get(name)
		if r == nothing && !exists && s.named(name) {
			unanswered = append(unanswered, name)
		}
		s.eachHas(func(has resource.Set) resource.Set {
			if _, ok := has.Get(name); !ok && r != nothing {
				return has.Set(name, &resource.Resource{Name: name, Version: refusedVersion})
			}
			return s.typ.Shared.doubt(has, name)
		})
	}
	s.asked = s.typ.Names.With(s.asked, unanswered...)
}

// Resend has named resources sent again although they did not change: their
// parent is being sent, and the client waits for them anew.
func (s *Session) Resend(names []string) {
	if !s.started {
		s.resend = s.typ.Names.With(s.resend, names...)
		return
	}
	for _, name := range names {
		s.doubt(name)
	}
}

// doubt has a name sent again to a client that has it, also one that is due anyway: it
// may come to be again what the client has before it goes.
func (s *Session) doubt(name string) {
	if _, ok := s.told().Get(name); !ok || !s.wants(name) {
		return
	}
	s.eachHas(func(has resource.Set) resource.Set { return s.typ.Shared.doubt(has, name) })
}

// Forget drops removals that were not told yet, and names them: the client gives
// these resources up by itself, as nothing that it has or is being sent refers
// to them any more. Until then it may go on using them.
func (s *Session) Forget(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	var out []string
	leaving := s.sees(removed)
	for _, name := range names {
		if leaving && s.Leaves(name) {
			out = append(out, name)
			if s.inflight != nil && s.delivering(name) {
				s.inflight.dropped = true
			}
			s.eachHas(func(has resource.Set) resource.Set { return has.Delete(name) })
		}
	}
	s.lapse()
	return out
}

// told is what the client has when it has taken what is under way.
func (s *Session) told() resource.Set {
	if s.inflight != nil {
		return s.inflight.has
	}
	return s.has
}

// eachHas replaces what the client has, now and when it has taken what is under
// way.
func (s *Session) eachHas(replace func(resource.Set) resource.Set) {
	s.has = replace(s.has)
	if s.inflight != nil {
		s.inflight.has = replace(s.inflight.has)
	}
}

// asks says whether the client asks for a name, wants whether it can also use it.
func (s *Session) asks(name string) bool { return s.wildcard || s.named(name) }

func (s *Session) wants(name string) bool { return s.asks(name) && s.scope(name) == open }

func (s *Session) named(name string) bool { return s.names.Has(name) }
