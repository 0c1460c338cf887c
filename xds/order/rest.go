package order

import (
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
)

// rest is a type, and whether it rests: nothing is to be said of it, awaited, held back
// or kept, and its client has what it is offered. Then it is not looked at, and sleeps
// through offers of the same, until it is offered something else or something happens
// to it. All of a flow are beside each other, so that a change costs what it is about.
type rest struct {
	url  string
	is   bool
	set  resource.Set
	naps int // how often it came to rest
}

// restAll has all types rest that can.
func (f *Flow) restAll() {
	for i, k := range f.kinds {
		if r := &f.rests[i]; !r.is && k.still() && k.session.Rests() {
			r.is, r.set = true, k.session.All()
			r.naps++
		}
	}
}

// still says whether nothing of a type is awaited, held back or kept.
func (k *kind) still() bool {
	return k.expected.until.IsZero() && k.stated.IsZero() && k.gate.opened.IsZero() &&
		len(k.withdrawals) == 0 && len(k.gate.since) == 0
}

// rouse ends the rest of a type.
func (f *Flow) rouse(place int) {
	if r := &f.rests[place]; r.is {
		r.is = false
		f.kinds[place].session.Offer(r.set, f.revision) // all that it has slept through
	}
}

// awake is the session of a type to which something happens.
func (k *kind) awake() *stream.Session {
	k.flow.rouse(k.place)
	return k.session
}

// Rests says whether a type, by its place, rests: its client has had what it is offered
// since it came to rest, at any revision until Revision, or has not asked for it.
// Expects and Stuck are false then, and Waiting is none; what its session says is of
// when it came to rest, until Session is called, which ends that. It is 0 where the type
// does not rest, and another number each time that it comes to.
func (f *Flow) Rests(place int) int {
	if r := &f.rests[place]; r.is {
		return r.naps
	}
	return 0
}

// Revision is that of the last offer.
func (f *Flow) Revision() int64 { return f.revision }
