package order

import (
	"time"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
)

// gate holds back what refers to targets that the client does not have.
type gate struct {
	// since is when the names that wait began to, those of scopes for a scoped type.
	since map[string]time.Time
	// opened is when all there is began to wait together, zero once it is looked at
	// one by one.
	opened time.Time
	// late are those allowed although they should wait.
	late []Late
}

// passed takes what was late in the response that has just been made.
func (g *gate) passed() []Late {
	out := g.late
	g.late = nil
	return out
}

// holdsAll says whether all of a type waits, of which the client has nothing yet:
// while it is brought up from nothing the resources are not looked at one by one.
func (f *Flow) holdsAll(k *kind, now time.Time) bool {
	if !f.refers(k) || k.Scoped || k.session.InFlight() || !k.session.Opening() || !f.target.opening() {
		return false
	}
	if k.gate.opened.IsZero() {
		k.gate.opened = now
		for _, since := range k.gate.since {
			if since.Before(k.gate.opened) {
				k.gate.opened = since
			}
		}
	}
	return now.Before(f.lateFrom(k.gate.opened))
}

// progressed takes note that a client which is brought up from nothing has asked for
// a type, is sent the first of it, or has taken that: where that is what others wait
// for, they wait from then on. There is so much once on a stream.
func (f *Flow) progressed(k *kind, now time.Time) {
	if k.targets() {
		f.stepped = latest(f.stepped, now)
	}
}

// targets says whether a type is what others wait for: targets or their children.
func (k *kind) targets() bool { return k.Target || k.parent != nil && k.parent.Target }

// lateFrom is when what began to wait together waits no longer.
func (f *Flow) lateFrom(opened time.Time) time.Time {
	limit := f.limits.Ready
	for _, k := range f.kinds {
		limit += k.digests
	}
	return latest(opened, f.stepped).Add(limit)
}

// perSecond is how many bytes of a first response a client is given a second more
// for: an Envoy makes thousands of clusters of it before it answers.
const perSecond = 1 << 20

// toDigest is how long a client may take for a response that it has received.
func toDigest(r *stream.Response) time.Duration {
	size := 0
	for _, one := range r.Resources {
		size += len(one.Body.GetValue())
	}
	return time.Duration(size/perSecond) * time.Second
}

// Opening says whether a client that is brought up from nothing waits for all there
// is of a type until it has what that leads to.
func (f *Flow) Opening() bool {
	for _, k := range f.kinds {
		if !k.gate.opened.IsZero() {
			return true
		}
	}
	return false
}

// Took takes note of when a client that is opening was last seen to take a part of
// what it is sent: it is not given up meanwhile, however long all of it takes.
func (f *Flow) Took(at time.Time) { f.stepped = latest(f.stepped, at) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// additions says what of a type may be added now.
func (f *Flow) additions(k *kind, now time.Time) stream.Allow {
	k.gate.late = nil
	if k.session.InFlight() || !k.session.Lacks() {
		if !k.session.InFlight() {
			k.gate.since = nil
		}
		return f.together(k, nil)
	}
	before := k.gate.since
	k.gate.since = nil
	if k.Scoped {
		return f.together(k, f.waitingScopes(k, before, now))
	}
	if !f.waits(k) {
		return stream.Additions()
	}
	allow := stream.Allow{Add: func(name string) bool {
		if f.unasked(k, name, now) {
			return false
		}
		missing, waits := k.emptied(name)
		if !waits && f.refers(k) {
			missing, waits = f.missing(k, name)
		}
		return !waits || !f.hold(k, name, missing, before, now) || f.announcement(k, name) != nil
	}}
	if k.Announce != nil {
		allow.Instead = func(name string) *resource.Resource { return f.announcement(k, name) }
	}
	return allow
}

// waits says whether anything of a type may have to wait.
func (f *Flow) waits(k *kind) bool {
	if f.refers(k) && (k.Announce != nil || !f.target.settled()) {
		return true
	}
	for child := range k.scoped {
		if len(child.session.Leaving()) > 0 {
			return true
		}
	}
	return !k.stated.IsZero()
}

// refers says whether resources of a type may refer to targets.
func (f *Flow) refers(k *kind) bool { return f.target != nil && k != f.target && k.parent != f.target }

// missing finds a target that the client does not have and the resource of a name
// refers to.
func (f *Flow) missing(k *kind, name string) (string, bool) {
	r := k.session.Offered(name)
	switch {
	case r == nil:
		return "", false
	case f.announces(k, name):
		return f.unannounced(k, name)
	}
	for name := range r.EachRef {
		if !f.target.ready(name) {
			return name, true
		}
	}
	return "", false
}

// hold has a name wait, unless it has waited for too long.
func (f *Flow) hold(k *kind, name, missing string, before map[string]time.Time, now time.Time) bool {
	since, waited := before[name]
	switch {
	case waited:
	case !k.gate.opened.IsZero():
		since = latest(k.gate.opened, f.stepped)
	default:
		since = now
	}
	if now.Sub(since) >= f.limits.Ready {
		k.gate.late = append(k.gate.late, Late{TypeURL: k.URL, Name: name, Missing: missing})
		return false
	}
	if k.gate.since == nil {
		k.gate.since = map[string]time.Time{}
	}
	k.gate.since[name] = since
	return true
}
