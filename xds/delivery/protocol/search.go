package protocol

import (
	"slices"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// search finds which resources of a rejected response the client rejects. They become
// suspects, which are sent apart from all others and few at a time. Each rejection
// halves their number, until one is rejected alone, and each ACK doubles it. One bad
// resource among n costs 3 log n responses at most, and n bad ones n + log n.
//
// If the message of the NACK names some of the resources, only these become suspects,
// and the others go first, all together. That is faster if the message is right, and as
// safe if it is not, since a search does so only once.
type search struct {
	// suspects holds, by name, Rejection.Since of the first NACK of the suspect.
	suspects   map[string]int64
	limit      int  // how many of them the next response may send
	othersNext bool // the last response was of suspects; the next sends others, if any are due
	// maybe holds the forms that the client rejected along with others: it may have
	// taken them even so.
	maybe map[string][]*resource.Resource
	// first holds the forms in which suspects go out before they are tried, see Type.Otherwise.
	first map[string]*resource.Resource

	// Suspects of a scope can conflict with each other, like two virtual hosts with one
	// domain. alone are the suspects that were rejected alone. again are those to try once
	// more, because the client has acknowledged other suspects since.
	alone, again []string
}

// startSearch returns the search, and begins one if there is none.
func (s *Subscription) startSearch() *search {
	if s.search == nil {
		s.search = &search{suspects: map[string]int64{}, limit: 1, othersNext: true, maybe: map[string][]*resource.Resource{}, first: map[string]*resource.Resource{}}
	}
	return s.search
}

// mayGoNow says whether a response may send a name: a suspect in a trial, as long as sent,
// the number of changes that the response has already, is below the limit; any other name
// otherwise.
func (s *Subscription) mayGoNow(name string, trial bool, sent int) bool {
	if s.search == nil {
		return true
	}
	limit := s.search.limit
	if s.typ.Otherwise != nil {
		limit = 1
	}
	_, suspect := s.search.suspects[name]
	return suspect == trial && (!trial || sent < limit)
}

// firstForm returns the form in which a suspect goes out before it is tried; nil for none.
func (s *Subscription) firstForm(name string) *resource.Resource {
	if s.search == nil {
		return nil
	}
	return s.search.first[name]
}

// sentFirst notes that the response in flight was answered: the suspects that it sent in their
// first form may be tried. It reports whether there are any.
func (s *Subscription) sentFirst(f *inFlight) bool {
	some := false
	for _, name := range f.interim {
		if s.firstForm(name) != nil {
			delete(s.search.first, name)
			some = true
		}
	}
	return some
}

// contents returns what a response sends: the changes for the client, and the names that do
// not exist. It omits what a response with the whole state leaves out.
func (s *Subscription) contents(f *inFlight) []change {
	var out []change
	for c := range s.differences(s.acked, f.acked) {
		_, unknown := slices.BinarySearch(f.unknown, c.Key)
		if c.HasNew || !s.sendsWholeState() && !unknown {
			out = append(out, c)
		}
	}
	for _, name := range f.unknown {
		out = append(out, change{Key: name})
	}
	return out
}

// reject processes a NACK. The client keeps what it had. A response with one change
// rejects that; several changes become suspects.
func (s *Subscription) reject(f *inFlight, r *Rejection) {
	changes, first := s.contents(f), s.sentFirst(f)
	if s.sendsWholeState() { // it may have removed what the response left out
		for c := range resource.Diff(s.acked, f.acked) {
			if !c.HasNew {
				s.resendAnyway(c)
			}
		}
	}
	switch len(changes) {
	case 0:
		s.rejectOmissions(f, r)
	case 1:
		if first { // it stays a suspect, and is tried next
			s.resendAnyway(changes[0])
			return
		}
		s.rejectOne(f, changes[0], r)
	default:
		s.rejectSeveral(f, changes, r)
	}
}

// rejectOmissions processes the NACK of a response without changes: the client rejected
// what it left out, so the response is not sent again. The rejection has no name if it
// left out nothing; it stands until the next ACK. None is noted if the client has
// unsubscribed from names of the response meanwhile.
func (s *Subscription) rejectOmissions(f *inFlight, r *Rejection) {
	for c := range s.differences(s.acked, f.acked) {
		if !c.HasNew {
			s.markRejected(c.Key, nil, r)
		}
	}
	if s.rejected.Len() == 0 && !f.dropped {
		s.markRejected("", nil, r)
	}
}

// rejectOne processes the NACK of a response with one change: the same version is not
// sent again. If another version is desired by now, the client has unsubscribed from a
// name of the response, or the scope is not open, the NACK is not held against the name.
// It becomes a suspect then, and due again.
func (s *Subscription) rejectOne(f *inFlight, c change, r *Rejection) {
	if s.search != nil {
		if since, suspect := s.search.suspects[c.Key]; suspect {
			r.HadAllAt = since
			delete(s.search.suspects, c.Key)
		}
		if f.trial && s.typ.Scoped {
			s.search.alone = append(s.search.alone, c.Key)
		}
	}
	if refused := s.rejected.Value(c.Key); c.HasNew && refused != nil && slices.Contains(f.interim, c.Key) { // it stood in for the rejected one
		s.acked = s.acked.Set(c.Key, &resource.Resource{Name: c.Key, Version: rejectedVersion})
		return
	}
	offered, exists := s.desired.Get(c.Key)
	stands := exists == c.HasNew && (!exists || offered.Version == c.New.Version) || slices.Contains(f.interim, c.Key)
	if f.dropped || s.scope(c.Key) != open || !stands {
		s.suspectAgain(c.Key, r.HadAllAt)
		s.resendAnyway(c)
		return
	}
	if has := s.acked.Value(c.Key); has != nil && isReplaceable(has) { // it still has that
		s.acked = s.acked.Set(c.Key, withKnownVersion(has))
	}
	s.markRejected(c.Key, c.New, r)
}

// rejectSeveral makes suspects of the changes of a rejected response.
func (s *Subscription) rejectSeveral(f *inFlight, changes []change, r *Rejection) {
	suspects, limit := changes, (len(changes)+1)/2
	if s.search == nil && s.typ.Otherwise == nil {
		if named := mentioned(r.Message, changes); len(named) > 0 && len(named) < len(changes) {
			suspects, limit = named, 1
		}
	}
	search := s.startSearch()
	search.limit = limit
	for _, c := range suspects {
		s.suspectAgain(c.Key, r.HadAllAt)
	}
	for _, c := range changes {
		s.resendAnyway(c)
		if c.HasNew && !slices.Contains(search.maybe[c.Key], c.New) {
			search.maybe[c.Key] = append(search.maybe[c.Key], c.New)
		}
	}
	s.mustAnswer = s.typ.Names.With(s.mustAnswer, f.unknown...)
}

// suspect makes a name a suspect, which is sent apart from others.
func (s *Subscription) suspect(name string, since int64) {
	search := s.startSearch()
	if _, suspected := search.suspects[name]; !suspected {
		search.suspects[name] = since
	}
}

// suspectAgain is suspect for a form that the client has just rejected. What it had before must
// still be known.
func (s *Subscription) suspectAgain(name string, since int64) {
	s.suspect(name, since)
	if s.typ.Otherwise == nil {
		return
	}
	has := s.acked.Value(name)
	form := lastForm(has)
	if form == nil && !s.unknownState && (has == nil || has.Version == rejectedVersion) { // else it may have a form that no other may replace
		form, _ = s.typ.Otherwise(name) // without one it is tried at once
	}
	if form != nil {
		s.search.first[name] = form
	}
}

// resendAnyway makes a change due again, whatever the client has taken of it: acked gets
// the name in an unknown form.
func (s *Subscription) resendAnyway(c change) {
	s.updateAcked(func(has resource.Set) resource.Set {
		r, ok := has.Get(c.Key)
		if !ok && c.HasNew {
			return has.Set(c.Key, &resource.Resource{Name: c.Key, Version: rejectedVersion})
		} else if ok && isCertain(r) {
			return has.Set(c.Key, replaceable(r))
		}
		return has
	})
}

func (s *Subscription) markRejected(name string, form *resource.Resource, r *Rejection) {
	s.clearRejected(name)
	s.rejected = s.rejected.Set(name, &RejectedForm{r, form})
}

// clearRejected forgets the rejection of a name, and suspects it no longer.
func (s *Subscription) clearRejected(name string) {
	s.rejected = s.rejected.Delete(name)
	s.clearSuspect(name)
}

func (s *Subscription) clearSuspect(name string) {
	if s.search != nil {
		delete(s.search.suspects, name)
		delete(s.search.maybe, name)
		delete(s.search.first, name)
	}
}

// accept processes an ACK, before acked is replaced.
func (s *Subscription) accept(f *inFlight) {
	if s.rejected.Len() == 0 && s.search == nil {
		return
	}
	for c := range resource.Diff(s.acked, f.acked) {
		leftOut := !c.HasNew && s.sendsWholeState() && s.desired.Value(c.Key) != nil
		switch {
		case !differs(c), leftOut:
		case s.firstForm(c.Key) != nil && slices.Contains(f.interim, c.Key):
			delete(s.search.maybe, c.Key)
		case slices.Contains(f.interim, c.Key):
			s.clearSuspect(c.Key)
		default:
			s.clearRejected(c.Key)
		}
	}
	for _, name := range f.unknown {
		s.clearRejected(name)
	}
	s.clearRejected("")
	if s.search == nil {
		return
	}
	s.sentFirst(f)
	if s.sendsWholeState() {
		clear(s.search.maybe) // it has removed what the response left out
	}
	if f.trial {
		s.search.limit *= 2
		s.search.again, s.search.alone = append(s.search.again, s.search.alone...), nil
	}
}

// retry makes rejected names due again, as suspects.
func (s *Subscription) retry(names []string) {
	var unanswered []string
	for _, name := range names {
		r, ok := s.rejected.Get(name)
		if !ok {
			continue
		}
		since := r.HadAllAt
		s.clearRejected(name)
		if !s.subscribes(name) {
			continue
		}
		if r.form == nil && s.desired.Value(name) == nil && s.subscribesByName(name) {
			unanswered = append(unanswered, name)
		}
		if offered := s.desired.Value(name); r.form != nil && offered != nil && offered.Version == r.form.Version {
			s.suspectAgain(name, since)
		} else {
			s.suspect(name, since)
		}
		s.resendAnyway(change{Key: name, HasNew: r.form != nil})
	}
	s.mustAnswer = s.typ.Names.With(s.mustAnswer, unanswered...)
}

// endSearch ends a search that has nothing left to find: no suspects and no forms that
// the client may have taken, or nothing due. Before that it tries the names in again once
// more.
func (s *Subscription) endSearch() {
	if s.search == nil {
		return
	}
	if len(s.search.suspects) == 0 && len(s.search.again) > 0 {
		again := s.search.again
		s.search.again, s.search.limit = nil, 1
		s.retry(again)
	}
	if len(s.search.suspects)+len(s.search.maybe) == 0 || !s.Pending() {
		s.search = nil
	}
}

// dropSettledSuspects drops suspects that have no change due.
func (s *Subscription) dropSettledSuspects() {
	if s.search == nil {
		return
	}
	for name := range s.search.suspects {
		if _, due := s.dueChange(name); !due && !s.mustAnswer.Has(name) {
			s.clearSuspect(name)
		}
	}
	s.endSearch()
}

// Searching says whether a search is under way: suspects are due or in flight.
func (s *Subscription) Searching() bool {
	if s.search == nil {
		return false
	}
	for name := range s.search.suspects {
		if c, due := s.dueChange(name); due && c.HasNew || s.mustAnswer.Has(name) {
			return true
		}
	}
	return s.inflight != nil && s.inflight.trial
}

// newestRejection returns the newest rejection that stands; nil for none.
func (s *Subscription) newestRejection() *Rejection {
	var newest *Rejection
	for r := range s.rejected.Values() {
		if newest == nil || r.after(newest.ResponseID) {
			newest = r.Rejection
		}
	}
	return newest
}
