package resource

import (
	"iter"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Set holds the resources of one type by name. It is immutable, and the zero Set is
// empty. Sets made from one another share their common part, and Diff returns the
// difference. Two Sets that are == have the same content; the converse does not hold.
//
// A Set may keep a few resources apart from the rest, see Beside. That does not change
// its content.
type Set struct {
	most, beside pmap.Map[*Resource] // no name is in both
}

// An Entry is a resource under a name.
type Entry = pmap.Entry[*Resource]

// A Change is the difference between two Sets under one name.
type Change = pmap.Change[*Resource]

// FromSorted builds a Set from resources in strictly ascending order of their names.
// It panics on one out of order.
func FromSorted(resources iter.Seq2[string, *Resource]) Set {
	return Set{most: pmap.FromSorted(resources)}
}

// Beside returns the set with the few resources of another, which replace resources of
// the same names. It keeps them apart if it can. Sets that differ only in such resources
// then share all others, and Differing finds one difference for all of them.
func (s Set) Beside(few Set) Set {
	for name, r := range few.All() {
		if _, ok := s.Get(name); ok || s.beside.Len() > 0 {
			s = s.Set(name, r)
			few = few.Delete(name)
		}
	}
	if few.beside.Len() > 0 {
		few = FromSorted(few.All())
	}
	if few.Len() == 0 {
		return s
	}
	return Set{most: s.most, beside: few.most}
}

// Len is the number of resources.
func (s Set) Len() int { return s.most.Len() + s.beside.Len() }

// Get returns the resource of a name, and whether there is one.
func (s Set) Get(name string) (*Resource, bool) {
	if s.beside.Len() > 0 {
		if r, ok := s.beside.Get(name); ok {
			return r, true
		}
	}
	return s.most.Get(name)
}

// Value returns the resource of a name, nil for none.
func (s Set) Value(name string) *Resource {
	r, _ := s.Get(name)
	return r
}

// Set returns the set with a resource under a name: the set itself, if it has that
// already.
func (s Set) Set(name string, r *Resource) Set {
	if s.apart(name) {
		s.beside = s.beside.Set(name, r)
	} else {
		s.most = s.most.Set(name, r)
	}
	return s
}

// SetAll returns the set with the resources of entries, whose keys must be in strictly
// ascending order. It returns what as many calls of Set would, at less cost.
func (s Set) SetAll(entries []Entry) Set {
	if s.beside.Len() > 0 {
		for _, e := range entries {
			s = s.Set(e.Key, e.Value)
		}
		return s
	}
	s.most = s.most.SetAll(entries)
	return s
}

// Delete returns the set without a name: the set itself, if there is no such name.
func (s Set) Delete(name string) Set {
	if s.apart(name) {
		s.beside = s.beside.Delete(name)
	} else {
		s.most = s.most.Delete(name)
	}
	return s
}

func (s Set) apart(name string) bool {
	if s.beside.Len() == 0 {
		return false
	}
	_, ok := s.beside.Get(name)
	return ok
}

// All iterates over the resources in the order of their names.
func (s Set) All() iter.Seq2[string, *Resource] {
	return func(yield func(string, *Resource) bool) { s.walk("", yield) }
}

// Prefix iterates, in order, over the resources whose names begin with a prefix.
func (s Set) Prefix(prefix string) iter.Seq2[string, *Resource] {
	return func(yield func(string, *Resource) bool) {
		s.walk(prefix, func(name string, r *Resource) bool { return strings.HasPrefix(name, prefix) && yield(name, r) })
	}
}

// walk yields the resources, in order, from the name start on.
func (s Set) walk(start string, yield func(string, *Resource) bool) {
	if s.beside.Len() == 0 {
		s.most.From(start)(yield)
		return
	}
	var few []string
	for name := range s.beside.From(start) {
		few = append(few, name)
	}
	for name, r := range s.most.From(start) {
		for ; len(few) > 0 && few[0] < name; few = few[1:] {
			if !yield(few[0], s.beside.Value(few[0])) {
				return
			}
		}
		if !yield(name, r) {
			return
		}
	}
	for ; len(few) > 0 && yield(few[0], s.beside.Value(few[0])); few = few[1:] {
	}
}

// Values iterates over the resources in the order of their names.
func (s Set) Values() iter.Seq[*Resource] {
	return func(yield func(*Resource) bool) {
		for _, r := range s.All() {
			if !yield(r) {
				return
			}
		}
	}
}

// Keys iterates over the names in order.
func (s Set) Keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range s.All() {
			if !yield(name) {
				return
			}
		}
	}
}

// Find iterates over names, in order, with the resource that a Set has of each, nil for
// none. It costs what pmap.Find costs.
func Find(names pmap.Map[struct{}], in Set) iter.Seq2[string, *Resource] {
	return func(yield func(string, *Resource) bool) { find(names, in, yield) }
}

func find(names pmap.Map[struct{}], in Set, yield func(string, *Resource) bool) {
	for name, r := range pmap.Find(names, in.most) {
		if r == nil {
			r = in.beside.Value(name)
		}
		if !yield(name, r) {
			return
		}
	}
}

// Diff iterates, in order, over what differs between two Sets. It costs what pmap.Diff
// costs.
func Diff(from, to Set) iter.Seq[Change] {
	return func(yield func(Change) bool) { diff(from, to, yield) }
}

func diff(from, to Set, yield func(Change) bool) {
	if from.beside == to.beside {
		pmap.Diff(from.most, to.most)(yield)
		return
	}
	few := slices.Collect(pmap.Diff(from.beside, to.beside))
	for c := range pmap.Diff(from.most, to.most) {
		for ; len(few) > 0 && few[0].Key < c.Key; few = few[1:] {
			if !yield(few[0]) {
				return
			}
		}
		if len(few) > 0 && few[0].Key == c.Key { // the name has moved between most and beside
			c = both(c, few[0])
			few = few[1:]
			if c.HasOld && c.HasNew && c.Old == c.New {
				continue
			}
		}
		if !yield(c) {
			return
		}
	}
	for ; len(few) > 0 && yield(few[0]); few = few[1:] {
	}
}

// both joins two changes of one name: one has the old resource, the other the new.
func both(a, b Change) Change {
	if b.HasOld {
		a.Old, a.HasOld = b.Old, true
	}
	if b.HasNew {
		a.New, a.HasNew = b.New, true
	}
	return a
}

// Differing returns two Sets with the same difference as from and to. It leaves out what
// both of them keep beside the rest, so the clients of a class get the same pair of Sets.
func Differing(from, to Set) (Set, Set) {
	if from.beside == to.beside {
		return Set{most: from.most}, Set{most: to.most}
	}
	return from, to
}
