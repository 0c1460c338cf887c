package stream

import (
	"slices"
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

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
	// All is what New are where the response is the first and has all there is, as
	// the Set that was offered; else it is empty.
	All resource.Set
	// Withdrawn are the resources that the client has to give up, as they were,
	// nil where that is not known.
	Withdrawn map[string]*resource.Resource
}

// plan is what a response says of what is due, and what it leaves.
type plan struct {
	add     []*resource.Resource
	instead []*resource.Resource // those of add that are not what is offered
	older   bool                 // the client has some of add in another form
	again   []string             // those of add that the client has as they are
	unknown []string             // names it asked for, of no resource
	gone    []change             // what it has to give up
	held    []change             // what is not said, or is none of its concern
	left    int                  // how many of held are due, and of instead
	asked   nameset.Set
	gated   bool // an addition is not allowed
	blind   bool // so is one of which the client may have something
}

// Next returns the response to send now, if there is one: nothing while another
// is on its way, and nothing that is not allowed, but for the answer that a name
// is unknown. Unless they are allowed to, no removals go with additions, which a
// client may refuse. In state of the world a response that says all there is has
// what must wait in the version that the client has.
func (s *Session) Next(allow Allow) (*Response, bool) {
	if !s.started || s.inflight != nil {
		return nil, false
	}
	if s.has == s.offered && s.asked.Len() == 0 && !s.owes {
		return nil, false
	}
	p := s.plan(allow)
	if len(p.add)+len(p.unknown)+len(p.gone) == 0 && (!s.owes || p.gated) {
		if s.absorb(p.held) {
			s.has = s.offered // they differ in what it does not ask for
		}
		return nil, false
	}
	if s.whole() && p.blind {
		return nil, false // what is left out of the response, the client gives up
	}
	f := &flight{has: s.after(p), unknown: p.unknown}
	for _, r := range p.instead {
		f.instead = append(f.instead, r.Name)
	}
	s.count++
	s.nonce = nonce(s.revision, s.count)
	r := s.response(p, f.has)
	for _, name := range p.again {
		s.has = s.typ.Shared.doubt(s.has, name)
	}
	r.Revision, r.Nonce = s.revision, s.nonce
	f.Mark = r.Mark
	s.inflight, s.asked, s.owes = f, p.asked, false
	if s.covering = s.covered; p.left == 0 && p.asked.Len() == 0 {
		s.covering = s.revision
	}
	return r, true
}

// usual is how many resources a change mostly has, or fewer.
const usual = 8

// nonce is that of a response: the revision and how many there were on the stream.
func nonce(revision int64, count int) string {
	var text [2 * 20]byte
	return string(strconv.AppendInt(append(strconv.AppendInt(text[:0], revision, 10), '-'), int64(count), 10))
}

// plan parts what is due into what may be said now and what may not.
func (s *Session) plan(allow Allow) *plan {
	p := &plan{}
	if s.has.Len() == 0 { // a first response has all there is of what is asked for
		p.add = make([]*resource.Resource, 0, s.Size())
	}
	var leaving []change
	for c := range s.differences(s.has) {
		seen, ok := s.concerns(c)
		asked := s.asked.Has(c.Key)
		switch {
		case !ok, !asked && s.suppressed(seen):
			p.held = append(p.held, c)
		case seen.HasNew && allow.adds(c.Key):
			if p.add == nil {
				p.add = make([]*resource.Resource, 0, usual)
			}
			p.add = append(p.add, p.form(c.New, allow.instead(c.Key)))
			p.older = p.older || !s.isNew(c.Old)
		case seen.HasNew:
			p.hold(c)
			p.gated = true
			p.blind = p.blind || s.unknown(c.Old)
		case !asked || c.HasNew:
			leaving = append(leaving, seen)
		}
	}
	s.planAsked(p, allow)
	said := len(p.add)+len(p.unknown) > 0
	for _, c := range leaving {
		lost := s.whole() && said && known(c.Old) == nil // there is nothing to keep it by
		if lost || (!said || allow.Together) && allow.removes(c.Key) {
			p.gone = append(p.gone, c)
		} else {
			p.hold(c)
		}
	}
	return p
}

// form is that in which a resource is added: itself, or another for now.
func (p *plan) form(r, instead *resource.Resource) *resource.Resource {
	if instead == nil {
		return r
	}
	p.instead = append(p.instead, instead)
	p.left++
	return instead
}

// hold leaves what is due for later.
func (p *plan) hold(c change) {
	p.held = append(p.held, c)
	p.left++
}

// planAsked adds the answers to names that were asked for: also where the client
// has the resource, and where there is none.
func (s *Session) planAsked(p *plan, allow Allow) {
	var later []string
	for name := range s.asked.All() {
		r, exists := s.offered.Get(name)
		switch has, ok := s.has.Get(name); {
		case !exists:
			p.unknown = append(p.unknown, name)
		case s.scope(name) != open || !allow.adds(name):
			later, p.gated = append(later, name), true
		case ok && has.Version == r.Version:
			p.add, p.older = append(p.add, r), true
			p.again = append(p.again, name)
		}
	}
	p.asked = s.typ.Names.Of(later)
	if len(p.again) > 0 {
		slices.SortFunc(p.add, byName)
	}
	if s.whole() {
		p.again = nil // it is sent every time
	}
}

func byName(a, b *resource.Resource) int { return strings.Compare(a.Name, b.Name) }

// whole says whether a response has to have all that the client wants.
func (s *Session) whole() bool { return s.typ.Full && s.variant == StateOfTheWorld }

// after is what the client has when it has taken a response. Where all is said
// that is what is offered, shared by all who have the same.
func (s *Session) after(p *plan) resource.Set {
	if said := len(p.add) + len(p.unknown) + len(p.gone); said < len(p.held) && !s.whole() {
		return s.afterSaid(p)
	}
	to := s.offered
	for _, r := range p.instead {
		to = to.Set(r.Name, r)
	}
	for _, c := range p.gone {
		to = to.Delete(c.Key)
	}
	for _, c := range p.held {
		switch {
		case s.whole() && c.HasNew && s.unknown(c.Old): // refused before, it goes along
		case c.HasOld:
			to = to.Set(c.Key, c.Old)
		default:
			to = to.Delete(c.Key)
		}
	}
	return to
}

// afterSaid is after where more is left than said.
func (s *Session) afterSaid(p *plan) resource.Set {
	to := s.has
	for _, r := range p.add {
		to = to.Set(r.Name, r)
	}
	for _, name := range p.unknown {
		to = to.Delete(name)
	}
	for _, c := range p.gone {
		to = to.Delete(c.Key)
	}
	return to
}

// response says what is planned to a client that then has a set.
func (s *Session) response(p *plan, to resource.Set) *Response {
	r := &Response{Resources: p.add}
	for _, name := range p.unknown {
		s.tellUnknown(r, name)
	}
	if len(r.Resources) > len(p.add) {
		slices.SortFunc(r.Resources, byName)
	}
	r.Changed, r.New = r.Resources, r.Resources
	if p.older {
		r.New = nil
		for _, added := range r.Changed {
			if s.isNew(s.has.Value(added.Name)) {
				r.New = append(r.New, added)
			}
		}
	}
	if !p.older && len(p.add) == s.offered.Len() && len(r.New) == len(p.add) && len(p.instead) == 0 {
		r.All = s.offered
	}
	if len(p.gone) > 0 {
		r.Withdrawn = make(map[string]*resource.Resource, len(p.gone))
	}
	for _, c := range p.gone {
		s.tellUnknown(r, c.Key)
		r.Withdrawn[c.Key] = known(c.Old)
	}
	slices.Sort(r.Removed)
	if s.variant == Delta {
		r.Version = s.nonce[:strings.LastIndexByte(s.nonce, '-')]
		return r
	}
	if s.typ.Full {
		r.Resources = s.world(to)
	}
	r.Version = resource.SetVersion(r.Resources)
	return r
}

// known is what is known of a resource that a client has, nil for nothing.
func known(has *resource.Resource) *resource.Resource {
	if has == nil || has.Version == unsure || has.Version == refusedVersion {
		return nil
	}
	return has
}

// tellUnknown answers a name for which there is no resource.
func (s *Session) tellUnknown(r *Response, name string) {
	switch empty := s.empty(name); {
	case empty != nil:
		r.Resources = append(r.Resources, empty)
	case s.variant == Delta:
		r.Removed = append(r.Removed, name)
	}
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

// world is all that a client has who has a set, in order.
func (s *Session) world(has resource.Set) []*resource.Resource {
	if s.wildcard {
		out := make([]*resource.Resource, 0, has.Len())
		for r := range has.Values() {
			if r := known(r); r != nil {
				out = append(out, r)
			}
		}
		return out
	}
	out := make([]*resource.Resource, 0, s.names.Len())
	for name := range s.names.All() {
		r := known(has.Value(name))
		if r == nil {
			r = s.empty(name)
		}
		if r != nil {
			out = append(out, r)
		}
	}
	return out
}
