package protocol

import (
	"cmp"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// Stated is the name and the version of a resource that a client says it has.
type Stated struct{ Name, Version string }

// Versions lists what a client says it has of a type, in the order of the names. An Envoy
// may state megabytes of it. A list takes little memory, and the subscription keeps
// nothing of it after the request.
type Versions []Stated

// VersionsOf sorts what a client states by name, in place. Of a repeated name the last counts, as in
// a map of protobuf.
func VersionsOf(stated []Stated) Versions {
	byName := func(a, b Stated) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(stated, byName) {
		slices.SortStableFunc(stated, byName)
	}
	out := stated[:0]
	for _, v := range stated {
		if last := len(out) - 1; last >= 0 && out[last].Name == v.Name {
			out[last] = v
		} else {
			out = append(out, v)
		}
	}
	return out
}

// Has says whether a name is stated.
func (v Versions) Has(name string) bool {
	_, found := slices.BinarySearchFunc(v, name, func(s Stated, name string) int { return cmp.Compare(s.Name, name) })
	return found
}

// setOfStated returns the acked set of a client that states versions. Where the client states
// nearly everything in the desired version, that is the desired Set without the few
// others, so that clients share it. A stated resource in another version gets an unknown
// one.
func (s *Subscription) setOfStated(versions Versions) resource.Set {
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
		default: // a copy: the name itself keeps the whole request in memory
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
