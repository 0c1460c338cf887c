package protocol

import (
	"slices"
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Response is a response to send. Resources are in the order of their names.
type Response struct {
	ResponseID
	Resources []*resource.Resource
	Removed   []string // delta only
	// Changed are the Resources that the client lacks. In delta that is all of them; in
	// state of the world a response may have to repeat others.
	Changed []*resource.Resource
	// Withdrawn are the removed resources, in the form that the client has; nil if that
	// is unknown.
	Withdrawn map[string]*resource.Resource
}

// plan is the content of a response, and what it leaves for later.
type plan struct {
	add             []*resource.Resource
	interim         []*resource.Resource // those of add that are not the desired form
	repeat          []string             // those of add that the client has already
	unknown         []string             // requested names without a resource
	removed         []change             // what the client must remove
	leftOut         []change             // changes that are not sent, or do not concern the client
	left            int                  // how many of held and interim are due
	mustAnswer      nameset.Set
	heldBack        bool     // an addition is not allowed
	heldBackUnknown bool     // so is one that the client may have in an unknown form
	notYourTurn     []string // additions that the search holds back, in order
}

// Next returns the response to send now, if any. It returns none while another is in
// flight, and only allowed changes; but names that do not exist are always answered.
// Unless Allow.Together is set, no removals go with additions, which a client may reject.
// A response that carries the whole state repeats the client's version of what must wait.
func (s *Subscription) Next(allow Allow) (*Response, bool) {
	if !s.started || s.inflight != nil {
		return nil, false
	}
	if s.acked == s.desired && s.mustAnswer.Len() == 0 && !s.mustRespond {
		return nil, false
	}
	p, trial := s.plan(allow, false), false
	if s.search != nil && (!s.search.othersNext || p.size() == 0) {
		if q := s.plan(allow, true); q.size() > 0 {
			p, trial = q, true
		}
	}
	if p.size() == 0 && (!s.mustRespond || p.heldBack) {
		s.dropSettledSuspects()
		s.ignoreUnopened()
		return nil, false
	}
	if s.sendsWholeState() && p.heldBackUnknown {
		return nil, false // the client would give up what the response leaves out
	}
	f := &inFlight{acked: s.ackedAfter(&p), unknown: p.unknown, trial: trial}
	if s.search != nil {
		s.search.othersNext = trial
	}
	for _, r := range p.interim {
		f.interim = append(f.interim, r.Name)
	}
	s.count++
	s.nonce = nonce(s.revision, s.count)
	r := s.response(&p, f.acked)
	for _, name := range p.repeat {
		s.acked = s.typ.Shared.markUnknown(s.acked, name)
	}
	r.Revision, r.Nonce = s.revision, s.nonce
	f.ResponseID = r.ResponseID
	s.inflight, s.mustAnswer, s.mustRespond = f, p.mustAnswer, false
	if s.pendingRevision = s.ackedRevision; p.left == 0 && p.mustAnswer.Len() == 0 {
		s.pendingRevision = s.revision
	}
	return r, true
}

// usualChanges is the first capacity for the additions of a response. Most changes have no more.
const usualChanges = 8

// nonce makes the nonce of a response: the revision, and the number of the response on
// the stream.
func nonce(revision int64, count int) string {
	var text [2 * 20]byte
	return string(strconv.AppendInt(append(strconv.AppendInt(text[:0], revision, 10), '-'), int64(count), 10))
}

// size returns how many changes the plan sends.
func (p *plan) size() int { return len(p.add) + len(p.unknown) + len(p.removed) }

// plan divides the due changes into those to send now and those for later. A trial
// sends suspects only; otherwise it sends all others.
func (s *Subscription) plan(allow Allow, trial bool) plan {
	var p plan
	if s.acked.Len() == 0 { // a first response has everything that the client requests
		p.add = make([]*resource.Resource, 0, s.Size())
	}
	var leaving []change
	for c := range s.differences(s.acked, s.desired) {
		seen, ok := s.sendable(c)
		asked := s.mustAnswer.Has(c.Key)
		switch {
		case !ok:
			p.leftOut = append(p.leftOut, c)
		case seen.HasNew && !s.mayGoNow(c.Key, trial, p.size()):
			p.hold(c)
			p.heldBack, p.notYourTurn = true, append(p.notYourTurn, c.Key)
		case seen.HasNew && allow.adds(c.Key):
			if p.add == nil {
				p.add = make([]*resource.Resource, 0, usualChanges)
			}
			p.add = append(p.add, seen.New)
			switch first := s.firstForm(c.Key); {
			case trial && first != nil:
				p.setInterim(first)
			case seen.New == c.New:
				p.setInterim(allow.interim(c.Key))
			default:
				p.interim = append(p.interim, seen.New)
			}
		case seen.HasNew:
			p.hold(c)
			p.heldBack = true
			p.heldBackUnknown = p.heldBackUnknown || s.mayBeAnyForm(c.Old)
		case !asked || c.HasNew:
			leaving = append(leaving, seen)
		}
	}
	s.planRequested(&p, allow, trial)
	adds := len(p.add)+len(p.unknown) > 0
	for _, c := range leaving {
		lost := s.sendsWholeState() && adds && lastForm(c.Old) == nil // no form of it is known that the response could repeat
		if lost || (!adds || allow.Together) && s.mayGoNow(c.Key, trial, p.size()) && allow.removes(c.Key) {
			p.removed = append(p.removed, c)
		} else {
			p.hold(c)
		}
	}
	return p
}

// setInterim replaces the last addition by its interim form, unless instead is nil.
func (p *plan) setInterim(instead *resource.Resource) {
	if instead != nil {
		p.add[len(p.add)-1] = instead
		p.interim = append(p.interim, instead)
		p.left++
	}
}

// hold leaves a due change for later.
func (p *plan) hold(c change) {
	p.leftOut = append(p.leftOut, c)
	p.left++
}

// planRequested adds the answers to mustAnswer: a resource is sent even if the client has it,
// and a name without one gets the answer that it does not exist.
func (s *Subscription) planRequested(p *plan, allow Allow, trial bool) {
	var later []string
	wait := func(name string) { later, p.heldBack = append(later, name), true }
	for name := range s.mustAnswer.All() {
		r, exists := s.desired.Get(name)
		has, ok := s.acked.Get(name)
		asIs := ok && exists && has.Version == r.Version
		_, turned := slices.BinarySearch(p.notYourTurn, name)
		switch {
		case turned:
			wait(name)
		case asIs && !s.mayGoNow(name, trial, p.size()):
			wait(name)
		case !exists && !s.mayGoNow(name, trial, p.size()):
			wait(name)
			if ok {
				p.hold(change{Key: name, Old: has, HasOld: true})
			}
		case !exists:
			p.unknown = append(p.unknown, name)
		case s.scope(name) != open || !allow.adds(name):
			wait(name)
		case asIs:
			p.add = append(p.add, r)
			p.repeat = append(p.repeat, name)
		}
	}
	p.mustAnswer = s.typ.Names.Of(later)
	if len(p.repeat) > 0 {
		slices.SortFunc(p.add, byName)
	}
	if s.sendsWholeState() {
		p.repeat = nil // a whole state repeats them anyway
	}
}

func byName(a, b *resource.Resource) int { return strings.Compare(a.Name, b.Name) }

// sendsWholeState says whether a response must carry everything that the client
// requests.
func (s *Subscription) sendsWholeState() bool { return s.typ.Full && s.variant == StateOfTheWorld }

// ackedAfter returns what the client has once it acknowledges the response of a plan. If
// the response leaves nothing, that is the desired set, which clients share.
func (s *Subscription) ackedAfter(p *plan) resource.Set {
	if p.size() < len(p.leftOut) && !s.sendsWholeState() {
		return s.ackedWithSent(p)
	}
	acked := s.desired
	for _, r := range p.interim {
		acked = acked.Set(r.Name, r)
	}
	for _, c := range p.removed {
		acked = acked.Delete(c.Key)
	}
	for _, c := range p.leftOut {
		switch {
		case c.HasOld && (!s.sendsWholeState() || lastForm(c.Old) != nil):
			acked = acked.Set(c.Key, c.Old)
		default:
			acked = acked.Delete(c.Key)
		}
	}
	return acked
}

// ackedWithSent is ackedAfter for a response that leaves more than it sends.
func (s *Subscription) ackedWithSent(p *plan) resource.Set {
	acked := s.acked
	for _, r := range p.add {
		acked = acked.Set(r.Name, r)
	}
	for _, name := range p.unknown {
		acked = acked.Delete(name)
	}
	for _, c := range p.removed {
		acked = acked.Delete(c.Key)
	}
	return acked
}

// held is what the client then has.
func (s *Subscription) response(p *plan, held resource.Set) *Response {
	r := &Response{Resources: p.add}
	for _, name := range p.unknown {
		s.removeOrEmpty(r, name)
	}
	if len(r.Resources) > len(p.add) {
		slices.SortFunc(r.Resources, byName)
	}
	r.Changed = r.Resources
	if len(p.removed) > 0 {
		r.Withdrawn = make(map[string]*resource.Resource, len(p.removed))
	}
	for _, c := range p.removed {
		s.removeOrEmpty(r, c.Key)
		r.Withdrawn[c.Key] = lastForm(c.Old)
	}
	slices.Sort(r.Removed)
	if s.variant == Delta {
		r.Version = s.nonce[:strings.LastIndexByte(s.nonce, '-')]
		return r
	}
	if s.typ.Full {
		r.Resources = s.wholeState(held)
	}
	r.Version = resource.SetVersion(r.Resources)
	return r
}

// lastForm returns the form of a resource that the client has; nil if it is unknown.
func lastForm(has *resource.Resource) *resource.Resource {
	if has == nil || has.Version == unknownVersion || has.Version == rejectedVersion {
		return nil
	}
	return has
}

// removeOrEmpty answers a name that has no resource.
func (s *Subscription) removeOrEmpty(r *Response, name string) {
	switch empty := s.empty(name); {
	case empty != nil:
		r.Resources = append(r.Resources, empty)
	case s.variant == Delta:
		r.Removed = append(r.Removed, name)
	}
}

// empty returns the empty resource that answers an unknown name; nil if the type has
// none.
func (s *Subscription) empty(name string) *resource.Resource {
	if s.typ.Empty == nil || !s.subscribesByName(name) {
		return nil
	}
	empty, err := s.typ.Empty(name)
	if err != nil {
		return nil
	}
	return empty
}

// wholeState returns all resources that a client with a set has, in order.
func (s *Subscription) wholeState(has resource.Set) []*resource.Resource {
	if s.wildcard {
		out := make([]*resource.Resource, 0, has.Len())
		for r := range has.Values() {
			if r := lastForm(r); r != nil {
				out = append(out, r)
			}
		}
		return out
	}
	out := make([]*resource.Resource, 0, s.names.Len())
	for name := range s.names.All() {
		r := lastForm(has.Value(name))
		if r == nil {
			r = s.empty(name)
		}
		if r != nil {
			out = append(out, r)
		}
	}
	return out
}
