package stream

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

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
	// Scoped types are of resources that live within others; see Open. Delta only.
	Scoped bool
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
	// New are those of Changed of which the client is not known to have any version.
	New []*resource.Resource
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

	// What the client should have, and in which it does not have it yet: due names
	// resources to be sent, or to be answered as unknown, leaving those that it has
	// to give up, each with what the client has instead. owed are names to be sent
	// whatever version the first request states.
	offered  resource.Set
	revision int64
	changed  int64 // revision of the last offer that made a difference to the client
	due      map[string]holding
	leaving  map[string]holding
	owed     map[string]struct{}
	owes     bool // an answer is due even if nothing is to be said

	// Of a scoped type: the scopes that are open, and the versions that the client
	// has stated of names in others.
	scopes map[string]struct{}
	stated map[string]string

	// What was said and how it was taken: sent is in the response under way,
	// refused what the client refused and was not sent since.
	count    int
	nonce    string // of the last response
	inflight *Mark
	sent     map[string]delivery
	acked    Mark
	// The client has all of what it should have had at the revision covered, and at
	// covering as soon as it takes the response under way.
	covered, covering int64
	rejected          *Rejection
	refused           map[string]holding
}

// Rejection is a response that the client refused, and its words.
type Rejection struct {
	Mark
	Message string
}

// New returns the session of a type on which nothing was said yet.
func New(typ Type, variant Variant) *Session {
	return &Session{
		typ: typ, variant: variant, names: map[string]struct{}{}, due: map[string]holding{},
		leaving: map[string]holding{}, owed: map[string]struct{}{}, refused: map[string]holding{},
		scopes: map[string]struct{}{}, stated: map[string]string{},
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
		if s.wants(c.Key) {
			s.changed = s.revision
			if c.HasNew {
				s.make(c.Key, s.has(c.Key))
			} else {
				s.giveUp(c.Key)
			}
		}
		if !c.HasNew {
			delete(s.owed, c.Key)
			delete(s.stated, c.Key)
			delete(s.refused, c.Key)
		}
	}
	if repaired {
		s.retry()
	}
}

// retry has all sent again that was refused, since part of it changed: a client
// that refuses one resource may have dropped those that came with it.
func (s *Session) retry() {
	for name, h := range s.refused {
		s.make(name, h)
	}
	if len(s.refused) == 0 {
		s.rejected = nil
	}
}

// giveUp has the client told that a name is gone, where it may have a resource
// or has asked for it by that name.
func (s *Session) giveUp(name string) {
	h, due := s.due[name]
	_, sent := s.sent[name]
	if due && h.none() && !sent {
		if !s.named(name) {
			delete(s.due, name)
		}
		return
	}
	s.leaving[name] = s.has(name)
	delete(s.due, name)
}

// Resend has named resources sent again although they did not change: their
// parent is being sent, and the client waits for them anew.
func (s *Session) Resend(names []string) {
	for _, name := range names {
		switch _, exists := s.offered.Get(name); {
		case !s.started:
			s.owed[name] = struct{}{}
		case s.wants(name) && exists:
			s.make(name, s.has(name))
		}
	}
}

// Forget drops removals that were not told yet, and names them: the client gives
// these resources up by itself, as nothing that it has or is being sent refers
// to them any more. Until then it may go on using them.
func (s *Session) Forget(names []string) []string {
	var out []string
	for _, name := range names {
		if _, ok := s.leaving[name]; ok {
			out = append(out, name)
			delete(s.leaving, name)
		}
	}
	return out
}

// make has a name sent to a client that has something else of it, or nothing.
func (s *Session) make(name string, instead holding) {
	if _, already := s.due[name]; !already {
		s.due[name] = instead
	}
	delete(s.leaving, name)
}

func (s *Session) wants(name string) bool { return (s.wildcard || s.named(name)) && s.open(name) }

func (s *Session) named(name string) bool {
	_, ok := s.names[name]
	return ok
}

// Next returns the response to send now, if there is one: nothing while another
// is on its way, and nothing that is not allowed. Unless they are allowed to, no
// removals go with additions, which a client may refuse. In state of the world a
// response that says all there is has what must wait in the version that the
// client has.
func (s *Session) Next(allow Allow) (*Response, bool) {
	if !s.started || s.inflight != nil {
		return nil, false
	}
	due, waiting := divide(s.due, func(name string) bool {
		_, known := s.offered.Get(name)
		return !known || s.open(name) && allow.adds(name)
	})
	leaving, kept := map[string]holding{}, s.leaving
	if len(s.leaving) > 0 && (len(due) == 0 || allow.Together) {
		leaving, kept = divide(s.leaving, allow.removes)
	}
	if len(due) == 0 && len(leaving) == 0 && (!s.owes || len(waiting) > 0) {
		return nil, false
	}
	if s.variant == StateOfTheWorld && s.typ.Full && anyUnknown(waiting) {
		return nil, false // what is left out of the response, the client gives up
	}
	r := &Response{}
	s.due, s.leaving = due, leaving
	if s.variant == Delta {
		s.fillDelta(r)
	} else {
		s.fillWorld(r, kept, waiting)
	}
	s.count++
	s.nonce = fmt.Sprintf("%d-%d", s.revision, s.count)
	r.Revision, r.Nonce = s.revision, s.nonce
	mark := r.Mark
	s.inflight = &mark
	s.owes = false
	s.deliver(r)
	s.due, s.leaving = waiting, kept
	if s.covering = s.covered; len(waiting) == 0 && len(kept) == 0 {
		s.covering = s.revision
	}
	return r, true
}

// deliver notes what is in the response under way.
func (s *Session) deliver(r *Response) {
	s.sent = make(map[string]delivery, len(s.due)+len(s.leaving))
	for name, h := range s.due {
		s.sent[name] = delivery{before: h, after: s.offered.Value(name)}
	}
	for _, changed := range r.Changed {
		if h, ok := s.due[changed.Name]; ok && s.isNew(h) {
			r.New = append(r.New, changed)
		}
	}
	if len(s.leaving) > 0 {
		r.Withdrawn = make(map[string]*resource.Resource, len(s.leaving))
	}
	for name, h := range s.leaving {
		r.Withdrawn[name] = h.resource
		s.sent[name] = delivery{before: h}
	}
}

// divide parts a map into what holds and what does not.
func divide(from map[string]holding, holds func(name string) bool) (does, doesNot map[string]holding) {
	does, doesNot = map[string]holding{}, map[string]holding{}
	for name, v := range from {
		if holds(name) {
			does[name] = v
		} else {
			doesNot[name] = v
		}
	}
	return does, doesNot
}

func anyUnknown(holdings map[string]holding) bool {
	for _, h := range holdings {
		if h.unknown {
			return true
		}
	}
	return false
}

// Due iterates, in order, over the names that the client lacks or has in an
// older version.
func (s *Session) Due() iter.Seq[string] {
	return slices.Values(slices.Sorted(maps.Keys(s.due)))
}

func (s *Session) fillDelta(r *Response) {
	for _, name := range slices.Sorted(maps.Keys(s.due)) {
		if known, ok := s.offered.Get(name); ok {
			r.Resources = append(r.Resources, known)
		} else {
			s.tellUnknown(r, name)
		}
	}
	r.Changed = r.Resources
	for _, name := range slices.Sorted(maps.Keys(s.leaving)) {
		s.tellUnknown(r, name)
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

func (s *Session) fillWorld(r *Response, kept, waiting map[string]holding) {
	world := s.world(kept, waiting)
	r.Version = resource.SetVersion(world)
	if s.typ.Full {
		r.Resources = world
		for _, known := range r.Resources {
			if _, lacks := s.due[known.Name]; lacks {
				r.Changed = append(r.Changed, known)
			}
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.due)) {
		if known, ok := s.offered.Get(name); ok {
			r.Resources = append(r.Resources, known)
		} else {
			s.tellUnknown(r, name)
		}
	}
	r.Changed = r.Resources
	for _, name := range slices.Sorted(maps.Keys(s.leaving)) {
		s.tellUnknown(r, name)
	}
}

// world is all that the client should have now, in order: what is kept for now
// included, and what waits, or was refused, as the client has it.
func (s *Session) world(kept, waiting map[string]holding) []*resource.Resource {
	var out []*resource.Resource
	add := func(name string, r *resource.Resource) {
		if h, waits := waiting[name]; waits {
			r = h.resource
		} else if h, refused := s.refused[name]; refused && !h.unknown {
			if _, again := s.due[name]; !again {
				r = h.resource
			}
		}
		if r != nil {
			out = append(out, r)
		}
	}
	if s.wildcard {
		for name, r := range s.offered.All() {
			add(name, r)
		}
	} else {
		for name := range s.names {
			if r, ok := s.offered.Get(name); ok {
				add(name, r)
			} else if _, stays := kept[name]; !stays {
				add(name, s.empty(name))
			}
		}
	}
	for _, h := range kept {
		if h.resource != nil {
			out = append(out, h.resource)
		}
	}
	slices.SortFunc(out, func(a, b *resource.Resource) int { return strings.Compare(a.Name, b.Name) })
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
func (s *Session) worldVersion() string { return resource.SetVersion(s.world(nil, nil)) }

// Pending says whether something is on its way, or would be if it could.
func (s *Session) Pending() bool {
	return s.inflight != nil || len(s.due) > 0 || len(s.leaving) > 0 || s.owes
}

// Lacks says whether there is something to add or change that was not sent.
func (s *Session) Lacks() bool { return s.started && (len(s.due) > 0 || s.owes) }

// InFlight says whether a response was sent and not answered.
func (s *Session) InFlight() bool { return s.inflight != nil }
