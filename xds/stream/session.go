package stream

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Variant is how responses relate to what the client has.
type Variant int

// The variants of the protocol.
const (
	StateOfTheWorld Variant = iota
	Delta
)

func (v Variant) String() string {
	if v == Delta {
		return "delta"
	}
	return "state of the world"
}

// Type is what the protocol has to know of a resource type.
type Type struct {
	URL string
	// Full types are clusters and listeners: a client may ask for all there are,
	// and a response in state of the world is the whole truth.
	Full bool
	// Empty makes the answer to an unknown name, where the clients of the type
	// wait for each resource; nil, or no answer, where unknown names are answered
	// as removed.
	Empty func(name string) (*resource.Resource, error)
}

// Mark names a response: its nonce, its version and the revision of the store
// that it carried.
type Mark struct {
	Nonce    string
	Version  string
	Revision int64
}

// Response is what is to be sent. Resources are in the order of their names.
type Response struct {
	Mark
	Resources []*resource.Resource
	Removed   []string // delta only
	// Changed are those of Resources that the client lacks: all in delta, while in
	// state of the world the rest goes along because it has to.
	Changed []*resource.Resource
	// Withdrawn are the resources that the client has to give up, as they were,
	// nil where that is not known.
	Withdrawn map[string]*resource.Resource
}

// Session is the state of one type on one stream.
type Session struct {
	typ     Type
	variant Variant

	// What the client asked for.
	started  bool
	explicit bool // it has used names, so that naming none is no wildcard
	wildcard bool
	names    map[string]struct{}

	// What the client should have, and in which it does not have it yet. due
	// names resources to be sent, or to be answered as unknown; fresh ones the
	// client never had. leaving are resources that it has to give up, as they
	// were. owed are names to be sent whatever version the first request states.
	offered  resource.Set
	revision int64
	changed  int64 // revision of the last offer that made a difference to the client
	due      map[string]dueness
	leaving  map[string]*resource.Resource
	owed     map[string]struct{}
	owes     bool // an answer is due even if nothing is to be said

	// What was said and how it was taken: sent is in the response under way,
	// refused what the client refused and was not sent since.
	count    int
	nonce    string // of the last response
	inflight *Mark
	sent     map[string]dueness
	acked    Mark
	// The client has all of what it should have had at the revision covered, and at
	// covering as soon as it takes the response under way.
	covered, covering int64
	rejected          *Rejection
	refused  map[string]struct{}
}

type dueness struct{ fresh bool }

// Rejection is a response that the client refused, and its words.
type Rejection struct {
	Mark
	Message string
}

// New returns the session of a type on which nothing was said yet.
func New(typ Type, variant Variant) *Session {
	return &Session{
		typ: typ, variant: variant, names: map[string]struct{}{}, due: map[string]dueness{},
		leaving: map[string]*resource.Resource{}, owed: map[string]struct{}{}, refused: map[string]struct{}{},
	}
}

// Offer says what the client should have from now on, as of a revision of the
// store. The cost follows the difference to what was offered last.
func (s *Session) Offer(to resource.Set, revision int64) {
	if s.inStep() {
		s.covered = s.revision
	}
	s.revision = revision
	if s.started || len(s.owed) > 0 {
		s.follow(to)
	}
	s.offered = to
}

// follow takes the difference to what was offered last.
func (s *Session) follow(to resource.Set) {
	repaired := false
	for c := range pmap.Diff(s.offered, to) {
		if c.HasOld && c.HasNew && c.Old.Version == c.New.Version {
			continue
		}
		if _, ok := s.refused[c.Key]; ok {
			repaired = true
		}
		if !c.HasNew {
			delete(s.owed, c.Key)
			delete(s.refused, c.Key)
		}
		if s.wants(c.Key) {
			s.change(c)
		}
	}
	if repaired {
		s.retry()
	}
}

// retry has all sent again that was refused, since part of it changed: a client
// that refuses one resource may have dropped those that came with it.
func (s *Session) retry() {
	for name := range s.refused {
		s.make(name, false)
	}
	if len(s.refused) == 0 {
		s.rejected = nil
	}
}

func (s *Session) change(c pmap.Change[*resource.Resource]) {
	s.changed = s.revision
	if c.HasNew {
		_, had := s.leaving[c.Key]
		delete(s.leaving, c.Key)
		if _, already := s.due[c.Key]; !already {
			s.due[c.Key] = dueness{fresh: !c.HasOld && !had}
		}
		return
	}
	was, unsent := s.due[c.Key]
	delete(s.due, c.Key)
	if !unsent || !was.fresh {
		s.leaving[c.Key] = c.Old
	} else if s.named(c.Key) {
		s.due[c.Key] = was // it was asked for by name: answer that it is unknown
	}
}

// Resend has named resources sent again although they did not change: their
// parent is being sent, and the client waits for them anew.
func (s *Session) Resend(names []string) {
	for _, name := range names {
		switch _, exists := s.offered.Get(name); {
		case !s.started:
			s.owed[name] = struct{}{}
		case s.wants(name) && exists:
			s.make(name, false)
		}
	}
}

// Forget drops removals that were not told yet: the client gives these
// resources up by itself, as nothing that it has or is being sent refers to them
// any more. Until then it may go on using them.
func (s *Session) Forget(names []string) {
	for _, name := range names {
		delete(s.leaving, name)
	}
}

// make has a name sent.
func (s *Session) make(name string, fresh bool) {
	if _, already := s.due[name]; !already {
		s.due[name] = dueness{fresh}
	}
	delete(s.leaving, name)
}

func (s *Session) wants(name string) bool { return s.wildcard || s.named(name) }

func (s *Session) named(name string) bool {
	_, ok := s.names[name]
	return ok
}

// Next returns the response to send now, if there is one: nothing while another
// is on its way. Removals wait until they are allowed: a client must not lose
// what others of its resources still refer to. They never go with additions,
// which a client may refuse.
func (s *Session) Next(allow Allow) (*Response, bool) {
	if !s.started || s.inflight != nil {
		return nil, false
	}
	due, gated := divide(s.due, func(name string) bool {
		_, known := s.offered.Get(name)
		return !known || allow.adds(name)
	})
	var leaving, kept map[string]*resource.Resource
	if len(due) > 0 {
		kept = s.leaving
	} else {
		leaving, kept = divide(s.leaving, allow.removes)
	}
	if len(due) == 0 && len(leaving) == 0 && (!s.owes || len(gated) > 0) {
		return nil, false
	}
	s.due, s.leaving = due, leaving
	removals := len(leaving) > 0
	r := &Response{}
	if s.variant == Delta {
		s.fillDelta(r, removals)
	} else {
		s.fillWorld(r, removals, kept)
	}
	s.count++
	s.nonce = fmt.Sprintf("%d-%d", s.revision, s.count)
	r.Revision, r.Nonce = s.revision, s.nonce
	mark := r.Mark
	s.inflight = &mark
	s.owes = false
	s.sent, s.due, s.leaving = s.due, gated, kept
	if s.covering = s.covered; len(gated) == 0 && len(kept) == 0 {
		s.covering = s.revision
	}
	if removals {
		r.Withdrawn = leaving
		for name := range r.Withdrawn {
			s.sent[name] = dueness{}
		}
	}
	return r, true
}

// divide parts a map into what holds and what does not.
func divide[T any](from map[string]T, holds func(name string) bool) (does, doesNot map[string]T) {
	does, doesNot = map[string]T{}, map[string]T{}
	for name, v := range from {
		if holds(name) {
			does[name] = v
		} else {
			doesNot[name] = v
		}
	}
	return does, doesNot
}

// Holds tells what the client has of a name: the version that it has
// acknowledged or stated, and true; else the version that is on its way to it,
// or "", and false.
func (s *Session) Holds(name string) (version string, acked bool) {
	known, ok := s.offered.Get(name)
	if !ok || !s.started || !s.wants(name) {
		return "", false
	}
	_, sent := s.sent[name]
	_, due := s.due[name]
	_, refused := s.refused[name]
	switch {
	case sent:
		return known.Version, false
	case due || refused:
		return "", false
	}
	return known.Version, true
}

// Due iterates, in order, over the names that the client lacks or has in an
// older version.
func (s *Session) Due() iter.Seq[string] {
	return slices.Values(slices.Sorted(maps.Keys(s.due)))
}

func (s *Session) fillDelta(r *Response, removals bool) {
	for _, name := range slices.Sorted(maps.Keys(s.due)) {
		if known, ok := s.offered.Get(name); ok {
			r.Resources = append(r.Resources, known)
		} else {
			s.tellUnknown(r, name)
		}
	}
	r.Changed = r.Resources
	if removals {
		for _, name := range slices.Sorted(maps.Keys(s.leaving)) {
			s.tellUnknown(r, name)
		}
	}
	r.Version = fmt.Sprint(s.revision)
}

// tellUnknown answers a name for which there is no resource.
func (s *Session) tellUnknown(r *Response, name string) {
	if empty := s.empty(name); empty != nil {
		r.Resources = append(r.Resources, empty)
		return
	}
	if s.variant == Delta {
		r.Removed = append(r.Removed, name)
	}
}

func (s *Session) fillWorld(r *Response, removals bool, kept map[string]*resource.Resource) {
	r.Version = s.worldVersion(kept)
	if s.typ.Full {
		r.Resources = s.world(kept)
		for _, known := range r.Resources {
			if _, lacks := s.due[known.Name]; lacks {
				r.Changed = append(r.Changed, known)
			}
		}
		return
	}
	tell := maps.Clone(s.due)
	if removals {
		for name := range s.leaving {
			tell[name] = dueness{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tell)) {
		if known, ok := s.offered.Get(name); ok {
			r.Resources = append(r.Resources, known)
		} else {
			s.tellUnknown(r, name)
		}
	}
	r.Changed = r.Resources
}

// world is all that the client should have, in order, those resources included
// that are kept for now.
func (s *Session) world(kept map[string]*resource.Resource) []*resource.Resource {
	var out []*resource.Resource
	if s.wildcard {
		out = slices.Collect(s.offered.Values())
	} else {
		for name := range s.names {
			if r, ok := s.offered.Get(name); ok {
				out = append(out, r)
			} else if _, stays := kept[name]; !stays {
				out = append(out, s.empty(name))
			}
		}
	}
	out = slices.AppendSeq(out, maps.Values(kept))
	out = slices.DeleteFunc(out, func(r *resource.Resource) bool { return r == nil })
	slices.SortFunc(out, func(a, b *resource.Resource) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

// empty is the answer to a name that was asked for and is unknown, nil where that
// is none.
func (s *Session) empty(name string) *resource.Resource {
	if s.typ.Empty == nil || !s.named(name) {
		return nil
	}
	empty, err := s.typ.Empty(name)
	if err != nil {
		return nil
	}
	return empty
}

// worldVersion is the version of all that the client should have.
func (s *Session) worldVersion(kept map[string]*resource.Resource) string {
	return resource.SetVersion(s.world(kept))
}

// Pending says whether something is on its way, or would be if it could.
func (s *Session) Pending() bool {
	return s.inflight != nil || len(s.due) > 0 || len(s.leaving) > 0 || s.owes
}

// Lacks says whether there is something to add or change that was not sent.
func (s *Session) Lacks() bool { return s.started && (len(s.due) > 0 || s.owes) }

// InFlight says whether a response was sent and not answered.
func (s *Session) InFlight() bool { return s.inflight != nil }
