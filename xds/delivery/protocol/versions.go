package protocol

import (
	"cmp"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// Stated is a resource that a client says it has, and the version of that.
type Stated struct{ Name, Version string }

// Versions are what a client says it has of a type, in the order of the names. An
// Envoy states megabytes of them: they are a list, and nothing keeps them when the
// request was taken.
type Versions []Stated

// VersionsOf puts what a client states into its order, in place, each name once.
func VersionsOf(stated []Stated) Versions {
	byName := func(a, b Stated) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(stated, byName) {
		slices.SortFunc(stated, byName)
	}
	return slices.CompactFunc(stated, func(a, b Stated) bool { return a.Name == b.Name })
}

// Has says whether something of a name is stated.
func (v Versions) Has(name string) bool {
	_, found := slices.BinarySearchFunc(v, name, func(s Stated, name string) int { return cmp.Compare(s.Name, name) })
	return found
}

// stated is what a client has who states some versions: the desired Set, which clients
// share, where nearly all are of that.
func (s *Subscription) stated(versions Versions) resource.Set {
	same := func(v Stated) bool {
		r := s.desired.Value(v.Name)
		return r != nil && r.Version == v.Version
	}
	var others []string
	known := 0
	for _, v := range versions {
		switch {
		case !s.subscribes(v.Name):
		case same(v):
			known++
		default: // a name of its own: that of the request would keep all of it
			others = append(others, strings.Clone(v.Name))
		}
	}
	has := s.desired
	if known < s.Size()/8*7 {
		has = resource.FromSorted(func(yield func(string, *resource.Resource) bool) {
			for _, v := range versions {
				if r := s.desired.Value(v.Name); s.subscribes(v.Name) && same(v) && !yield(r.Name, r) {
					return
				}
			}
		})
	} else if known < s.Size() {
		for c := range s.differences(resource.Set{}, s.desired) {
			if !versions.Has(c.Key) {
				has = has.Delete(c.Key)
			}
		}
	}
	for _, name := range others {
		has = has.Set(name, &resource.Resource{Name: name, Version: unknownVersion})
	}
	return has
}
