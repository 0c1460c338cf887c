package order

import (
	"slices"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// announces says whether a client is told of the targets of a resource before it
// gets that: it has one of the name already, in whose place it can be told. What
// it refused it is not told in another form.
func (f *Flow) announces(k *kind, name string) bool {
	return k.Announce != nil && k.session.Held(name) != nil && !k.session.Refuses(name)
}

// unannounced finds a target that keeps a resource waiting which is announced: one
// that nothing leads to in what the client has, or of the others one that it does
// not have. It uses what it has once it has all that is named there.
func (f *Flow) unannounced(k *kind, name string) (string, bool) {
	if some := f.unnamed(k, name); len(some) > 0 {
		return some[0], true
	}
	for _, target := range k.session.Held(name).Refs {
		if !f.target.complete(target) {
			return target, true
		}
	}
	return "", false
}

// unnamed are the targets of a resource that are not named in what the client has.
func (f *Flow) unnamed(k *kind, name string) []string {
	var out []string
	has := k.session.Held(name)
	for target := range k.session.Offered(name).EachRef {
		if f.target.session.Offered(target) != nil && !slices.Contains(has.Refs, target) && !slices.Contains(out, target) {
			out = append(out, target)
		}
	}
	return out
}

// announcement is what goes out of a name that waits, in its place, for the client
// to ask for the targets that it does not know: nil where it was told of these.
func (f *Flow) announcement(k *kind, name string) *resource.Resource {
	if _, waits := k.gate.since[name]; !waits || !f.announces(k, name) {
		return nil
	}
	unnamed := f.unnamed(k, name)
	if len(unnamed) == 0 {
		return nil
	}
	out, err := k.Announce(k.session.Held(name), unnamed)
	if err != nil {
		return nil // it waits for its limit
	}
	return out
}

// complete says whether a client that asks for targets by name has been answered
// one, with all that belongs to it.
func (k *kind) complete(name string) bool {
	if !k.session.Answered(name) {
		return false
	}
	if k.arrivals.has(name) && k.session.Offered(name) != nil {
		return false
	}
	for _, child := range k.children {
		for _, name := range k.session.ChildrenOf(name) {
			if !child.session.Answered(name) {
				return false
			}
		}
	}
	return true
}
