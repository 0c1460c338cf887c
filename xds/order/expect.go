package order

import (
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// expected is what a client is yet to ask for: it has taken resources that it uses
// only when it has their children. Normally that is nothing.
type expected struct {
	// parents are those of which it asks for some children and not for all; nil
	// where it asks for nothing of the type yet.
	parents []*resource.Resource
	// until is when it is taken for one that will not ask.
	until time.Time
}

// expect takes note that the client has taken resources of a type.
func (k *kind) expect(taken lacked, until time.Time) {
	for _, child := range k.children {
		switch {
		case child.Scoped || child.Optional: // it is not asked for by name, or not at all
		case !child.session.Started():
			for r := range taken.each {
				if len(r.Children) > 0 {
					child.awake()
					child.expected = expected{until: until}
					break
				}
			}
		default:
			child.expectOf(taken, until)
		}
	}
}

func (k *kind) expectOf(taken lacked, until time.Time) {
	for r := range taken.each {
		if k.unasked(r) {
			k.awake()
			k.expected.parents = append(k.expected.parents, r)
			k.expected.until = until
		}
	}
}

// unasked says whether the client does not ask for a child that a resource has.
func (k *kind) unasked(parent *resource.Resource) bool {
	return slices.ContainsFunc(parent.Children, func(name string) bool { return !k.session.Wants(name) })
}

// Expects says whether the client is about to ask for more of a type, since it has
// taken what makes it wait for that; for as long as one waits for the other at
// most. Until it has asked and was answered it does not use what it has taken.
func (f *Flow) Expects(typeURL string, now time.Time) bool {
	k := f.kind(typeURL)
	if k == nil || k.expected.until.IsZero() {
		return false
	}
	e := &k.expected
	started := k.session.Started()
	if started {
		e.parents = slices.DeleteFunc(e.parents, func(r *resource.Resource) bool {
			return !k.unasked(r) || k.parent.session.Offered(r.Name) != r
		})
	}
	if started && len(e.parents) == 0 || !now.Before(e.until) {
		*e = expected{}
		return false
	}
	return true
}
