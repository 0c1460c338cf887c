package protocol

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Stated is a resource that a client says it has, and the version of that.
type Stated struct{ Name, Version string }

// Versions are what a client says it has of a type, in the order of the names. An
// Envoy states megabytes of them: they are a list, and nothing keeps them when the
// request was taken.
type Versions []Stated

// VersionsOf puts what a client states into its order, in place.
func VersionsOf(stated []Stated) Versions {
	byName := func(a, b Stated) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(stated, byName) {
		slices.SortFunc(stated, byName)
	}
	return stated
}

// Has says whether something of a name is stated.
func (v Versions) Has(name string) bool {
	_, found := slices.BinarySearchFunc(v, name, func(s Stated, name string) int { return cmp.Compare(s.Name, name) })
	return found
}

// comparison is of a resource that is asked for: as it is offered, nil where it is
// not, and the version that is stated, where one is.
type comparison struct {
	name    string
	desired *resource.Resource
	version string
	stated  bool
}

// same says whether the client has what is offered.
func (c comparison) same() bool {
	return c.stated && c.desired != nil && c.desired.Version == c.version
}

// compare goes, in order, through what is asked for and offered or stated.
func (s *Subscription) compare(versions Versions) iter.Seq[comparison] {
	return func(yield func(comparison) bool) {
		next := 0
		gone := func(until string, last bool) bool { // what is stated and not offered
			for ; next < len(versions) && (last || versions[next].Name < until); next++ {
				v := versions[next]
				if s.subscribes(v.Name) && !yield(comparison{name: v.Name, version: v.Version, stated: true}) {
					return false
				}
			}
			return true
		}
		for name, r := range s.askedOf() {
			if !gone(name, false) {
				return
			}
			c := comparison{name: name, desired: r}
			for ; next < len(versions) && versions[next].Name == name; next++ {
				c.version, c.stated = versions[next].Version, true
			}
			if !yield(c) {
				return
			}
		}
		gone("", true)
	}
}

// askedOf goes, in order, through what is offered of what is asked for.
func (s *Subscription) askedOf() iter.Seq2[string, *resource.Resource] {
	if s.wildcard {
		return s.desired.All()
	}
	return func(yield func(string, *resource.Resource) bool) {
		for name, r := range nameset.In(s.names, s.desired) {
			if r != nil && !yield(name, r) {
				return
			}
		}
	}
}

// stated is what a client has who states some versions: where they are those of
// what is offered, that itself.
func (s *Subscription) stated(versions Versions) resource.Set {
	if len(versions) == 0 {
		return resource.Set{}
	}
	var other []comparison
	for c := range s.compare(versions) {
		if !c.same() {
			other = append(other, c)
		}
	}
	has := s.desired
	whole := len(other) < s.desired.Len()/8
	if !whole {
		has = resource.FromSorted(func(yield func(string, *resource.Resource) bool) {
			for c := range s.compare(versions) {
				if c.same() && !yield(c.name, c.desired) {
					return
				}
			}
		})
	}
	for _, c := range other {
		switch {
		case c.stated: // a name of its own: that of the request would keep all of it
			name := strings.Clone(c.name)
			has = has.Set(name, &resource.Resource{Name: name, Version: unknownVersion})
		case whole:
			has = has.Delete(c.name)
		}
	}
	return has
}
