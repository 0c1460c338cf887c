package order

import (
	"iter"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// Type is a resource type and how it relates to others.
type Type struct {
	stream.Type
	// Parent is the URL of the type whose resources' Children are of this type, or,
	// where this type is scoped, whose resources these live in; empty for none.
	Parent string
	// CoverParent says that resources have the names of their parents.
	CoverParent bool
	// Target says that the Refs of resources of other types are of this one.
	Target bool
	// Announce makes, of a resource that a client has, one which is the same but for
	// clusters that it names besides, and leads nothing to. Nil for a type whose
	// clients are told of clusters before of what leads there.
	Announce func(has *resource.Resource, clusters []string) (*resource.Resource, error)
	// Optional says that the client may never ask for the type. For others that it
	// has not asked for yet, withdrawals wait.
	Optional bool
}

// Limits bound the waiting. None may be zero.
type Limits struct {
	// Ready is how long a resource waits until the client has what it refers to.
	Ready time.Duration
	// Resolve is the moment that a client is given to resolve host names.
	Resolve time.Duration
	// Ask is the moment that a client is given to say what it has of one type after
	// another.
	Ask time.Duration
	// Withdraw is how long a resource that is gone is kept for what refers to it.
	Withdraw time.Duration
}

// Late is a resource that was sent although the client did not have what it
// refers to: the limit had passed.
type Late struct {
	TypeURL, Name string
	// Missing is one of those that it refers to.
	Missing string
}

// Flow is what goes to one client. It is used by one goroutine.
type Flow struct {
	variant  stream.Variant
	limits   Limits
	kinds    []*kind // in the order of sending
	rests    []rest  // of the kinds, in their order
	target   *kind   // nil for none
	late     []Late
	asked    time.Time // when Responses was asked last
	revision int64     // of the last offer
	stepped  time.Time // see progressed
}

// kind is a type of a Flow.
type kind struct {
	Type
	flow     *Flow
	place    int             // among the kinds of the flow
	session  *stream.Session // what is done to it is done to that of awake
	parent   *kind
	children []*kind

	// changed are the resources under way that the client lacks, under those of them
	// that are new to it, of a type on which others wait.
	changed lacked
	under   resource.Set

	expected expected
	gate     gate
	// digests is how much longer than others the client may take to answer the first
	// of the type, zero once it has.
	digests time.Duration
	// Of a target: how far the client has come with what is new to it.
	arrivals arrivals
	// awaited are the names under way whose parents wait for them.
	awaited nameset.Set
	// owed are those sent before the client asked for this type, whose children it
	// waits for.
	owed resource.Set
	// withdrawals are the names that are kept, by when they first were; zero for
	// those that are kept without limit.
	withdrawals map[string]time.Time
	// stated, of a parent of scoped resources, is when the client said what it has,
	// zero once it has said so of those, too.
	stated time.Time
	// doubted, of a parent of scoped resources, are those of which the client refused
	// a version.
	doubted map[string]struct{}
}

// New returns the flow to a client that has said nothing yet. Types are in the
// order in which they are sent: parents before their children, and what is
// referred to before what refers.
func New(types []Type, variant stream.Variant, limits Limits) *Flow {
	f := &Flow{variant: variant, limits: limits, kinds: make([]*kind, 0, len(types)), rests: make([]rest, 0, len(types))}
	for _, t := range types {
		f.add(t)
	}
	return f
}

// kind finds that of a type, nil where there is none. They are few.
func (f *Flow) kind(typeURL string) *kind {
	for i := range f.rests {
		if f.rests[i].url == typeURL {
			return f.kinds[i]
		}
	}
	return nil
}

func (f *Flow) add(t Type) *kind {
	k := &kind{Type: t, flow: f, place: len(f.kinds), session: stream.New(t.Type, f.variant), arrivals: arrivals{names: t.Names}}
	if k.parent = f.kind(t.Parent); k.parent != nil {
		k.parent.children = append(k.parent.children, k)
	}
	if t.Target {
		f.target = k
	}
	f.kinds, f.rests = append(f.kinds, k), append(f.rests, rest{url: t.URL})
	return k
}

// Add takes in a type on which nothing depends.
func (f *Flow) Add(t stream.Type) *stream.Session { return f.add(Type{Type: t}).session }

// Session is that of a type, which does not rest from then on; nil for one that was
// never taken in.
func (f *Flow) Session(typeURL string) *stream.Session {
	if k := f.kind(typeURL); k != nil {
		return k.awake()
	}
	return nil
}

// Sessions iterates over the types, in the order of sending. They do not rest from then
// on.
func (f *Flow) Sessions() iter.Seq2[string, *stream.Session] {
	return func(yield func(string, *stream.Session) bool) {
		for _, k := range f.kinds {
			if !yield(k.URL, k.awake()) {
				return
			}
		}
	}
}

// Forgo makes a type optional: the client will not ask for it after all.
func (f *Flow) Forgo(typeURL string) {
	if k := f.kind(typeURL); k != nil {
		k.Optional = true
	}
}

// Len is the number of types.
func (f *Flow) Len() int { return len(f.kinds) }

// Offer says what the client should have of each type from now on, as of a
// revision of the store.
func (f *Flow) Offer(sets func(typeURL string) resource.Set, revision int64) {
	back := revision < f.revision // the store is another one
	for i := range f.rests {
		r := &f.rests[i]
		to := sets(r.url)
		if r.is && r.set == to && !back {
			continue
		}
		k := f.kinds[i]
		before := k.session.All()
		k.awake().Offer(to, revision)
		if k.Target {
			k.dropped(before)
		}
	}
	f.revision = revision
}

// Request takes what the client said of a type that the flow has.
func (f *Flow) Request(typeURL string, q stream.Request, now time.Time) stream.Answer {
	k := f.kind(typeURL)
	k.repay(q)
	opening := k.targets() && k.session.Opening()
	answer := k.awake().Request(q)
	if answer.Acked != nil || answer.Rejected != nil {
		k.digests = 0
	}
	if answer.First || opening && !k.session.Opening() {
		f.progressed(k, now)
	}
	switch {
	case answer.Acked != nil:
		f.acknowledged(k, now)
	case answer.Rejected != nil:
		f.refused(k)
	}
	k.rescope(q, answer.First)
	if answer.First {
		k.began(q, now)
	}
	return answer
}

// acknowledged takes note that the client has what was under way.
func (f *Flow) acknowledged(k *kind, now time.Time) {
	if k.Target {
		asked := slices.ContainsFunc(k.children, func(c *kind) bool { return c.session.Started() })
		k.arrivals.answered(k.under, true, asked, now.Add(f.limits.Resolve))
	}
	if k.parent != nil && k.parent.Target {
		k.parent.arrivals.warmed(k.awaited)
	}
	k.openNew()
	k.expect(k.changed, now.Add(f.limits.Ready))
	k.landed()
}

// landed forgets what was under way.
func (k *kind) landed() {
	k.changed, k.under, k.awaited = lacked{}, resource.Set{}, nameset.Set{}
}

// refused takes note that the client does not have what was under way.
func (f *Flow) refused(k *kind) {
	if k.Target {
		k.arrivals.answered(k.under, false, true, time.Time{})
	}
	k.doubt()
	k.landed()
}

// Responses iterates over what is to be sent now. What is added goes type by
// type in their order, what is withdrawn in the opposite order, unless it has been
// kept for too long.
func (f *Flow) Responses(now time.Time) iter.Seq2[string, *stream.Response] {
	return func(yield func(string, *stream.Response) bool) {
		f.asked = now
		if f.target != nil {
			f.target.arrivals.pass(now)
		}
		for i, k := range f.kinds {
			if f.rests[i].is || k.idle() {
				continue
			}
			if k.overdue(now, f.limits.Withdraw) && !f.withdraw(k, now, yield) {
				return
			}
			if f.holdsAll(k, now) {
				continue
			}
			if r, ok := f.addTo(k, now); ok && !yield(k.URL, r) {
				return
			}
		}
		for i, k := range slices.Backward(f.kinds) {
			if !f.rests[i].is && !k.idle() && !f.withdraw(k, now, yield) {
				return
			}
		}
		f.restAll()
	}
}

// addTo takes the next response of a type that adds something.
func (f *Flow) addTo(k *kind, now time.Time) (*stream.Response, bool) {
	opening := k.targets() && k.session.Opening()
	r, ok := f.next(k, f.additions(k, now))
	if ok && opening {
		k.digests = toDigest(r)
		f.progressed(k, now)
	}
	k.gate.opened = time.Time{}
	return r, ok
}

// idle says that there is nothing to say of a type and nothing awaited.
func (k *kind) idle() bool {
	if k.session.Pending() {
		return false
	}
	k.gate.since, k.gate.opened, k.withdrawals = nil, time.Time{}, nil
	return true
}

// withdraw yields the next response of a type that takes something away, behind one
// that takes away what lives in that.
func (f *Flow) withdraw(k *kind, now time.Time, yield func(string, *stream.Response) bool) bool {
	allow, some := f.withdrawals(k, now)
	if !some {
		return true
	}
	for child := range k.scoped {
		if r, ok := f.vacate(k, child, allow); ok && !yield(child.URL, r) {
			return false
		}
	}
	r, ok := f.next(k, allow)
	if !ok {
		return true
	}
	for name := range r.Withdrawn {
		delete(k.withdrawals, name)
	}
	return yield(k.URL, r)
}

// next takes the next response of a type, and what follows from its being sent.
func (f *Flow) next(k *kind, allow stream.Allow) (*stream.Response, bool) {
	r, ok := k.session.Next(allow)
	if !ok {
		return nil, false
	}
	f.late = append(f.late, k.gate.passed()...)
	if k.Target || len(k.children) > 0 {
		k.changed, k.under = underWay(r)
	}
	if k.Target {
		k.depart(r)
	}
	if p := k.parent; p != nil && p.Target {
		k.awaited = p.arrivals.awaitedIn(r)
	}
	for _, child := range k.children {
		child.follow(k, r)
	}
	return r, true
}

// lacked are resources of a response: all there are, or some.
type lacked struct {
	all  resource.Set
	some []*resource.Resource
}

func (l lacked) each(yield func(*resource.Resource) bool) {
	for r := range l.all.Values() {
		if !yield(r) {
			return
		}
	}
	for _, r := range l.some {
		if !yield(r) {
			return
		}
	}
}

// underWay is what the client lacks of a response, and what of that is new to it.
func underWay(r *stream.Response) (changed lacked, under resource.Set) {
	if r.All.Len() > 0 {
		return lacked{all: r.All}, r.All
	}
	return lacked{some: r.Changed}, setOf(r.New)
}

// setOf is the set of some resources, which are in the order of their names.
func setOf(resources []*resource.Resource) resource.Set {
	return resource.FromSorted(func(yield func(string, *resource.Resource) bool) {
		for _, r := range resources {
			if !yield(r.Name, r) {
				return
			}
		}
	})
}

// Wake is when Responses may yield more than it did last though nothing has
// happened since; zero for never.
func (f *Flow) Wake() time.Time {
	var at time.Time
	soonest := func(t time.Time) {
		if t.After(f.asked) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for i, k := range f.kinds {
		if f.rests[i].is {
			continue
		}
		soonest(k.expected.until)
		if !k.stated.IsZero() {
			soonest(k.stated.Add(f.limits.Ask))
		}
		if k.session.InFlight() {
			continue // nothing goes before the client has answered
		}
		if opened := k.gate.opened; !opened.IsZero() {
			soonest(f.lateFrom(opened))
		}
		for _, since := range k.gate.since {
			soonest(since.Add(f.limits.Ready))
		}
		for _, since := range k.withdrawals {
			if !since.IsZero() {
				soonest(since.Add(f.limits.Withdraw))
			}
		}
	}
	if f.target != nil {
		soonest(f.target.arrivals.wake())
	}
	return at
}

// Late takes the resources that were sent too early since the last call.
func (f *Flow) Late() []Late {
	out := f.late
	f.late = nil
	return out
}

// Stuck says whether all that a client lacks of a type is to give up what it goes on
// using since it refused what was to take its place.
func (f *Flow) Stuck(typeURL string) bool {
	k := f.kind(typeURL)
	if k == nil || len(k.withdrawals) == 0 || k.session.InFlight() || k.session.Lacks() {
		return false
	}
	for _, since := range k.withdrawals {
		if !since.IsZero() {
			return false
		}
	}
	return true
}

// Waiting is how much of a type is held back: additions until the client has what
// they refer to, and withdrawals until nothing refers to them.
func (f *Flow) Waiting(typeURL string) (additions, withdrawals int) {
	k := f.kind(typeURL)
	if k == nil {
		return 0, 0
	}
	if !k.gate.opened.IsZero() {
		return k.session.Size(), len(k.withdrawals)
	}
	return len(k.gate.since), len(k.withdrawals)
}
