package nameset

import (
	"bytes"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Set is an immutable set of names. The zero Set is empty. Sets of one Table that are ==
// are equal. The converse holds of sets of at least internFrom names.
type Set struct{ content *content }

// content is what equal sets share.
type content struct {
	names pmap.Map[struct{}]
	sum   uint64 // sum of the hashes of the names
	text  int    // bytes of the names

	form atomic.Pointer[form] // nil if Keep was never called with the set
}

// empty is the content of the zero Set.
var empty content

func (s Set) get() *content {
	if s.content == nil {
		return &empty
	}
	return s.content
}

func (s Set) names() pmap.Map[struct{}] { return s.get().names }

// Len returns the number of names.
func (s Set) Len() int { return s.names().Len() }

// perName estimates the memory of a name besides its text, in bytes.
const perName = 64

// Bytes estimates the memory that the set takes.
func (s Set) Bytes() int64 { return int64(s.get().text) + perName*int64(s.Len()) }

// Has says whether a name is in the set.
func (s Set) Has(name string) bool {
	_, ok := s.names().Get(name)
	return ok
}

// All iterates over the names in order.
func (s Set) All() iter.Seq[string] { return s.names().Keys() }

// In iterates over the names, in order, each with its resource in a set, nil for none.
func In(s Set, of resource.Set) iter.Seq2[string, *resource.Resource] {
	return resource.Find(s.names(), of)
}

// Missing iterates, in order, over the names of s that are not in other. If one set was
// made from the other, the cost follows what differs.
func (s Set) Missing(other Set) iter.Seq[string] {
	return func(yield func(string) bool) {
		for c := range pmap.Diff(s.names(), other.names()) {
			if !c.HasNew && !yield(c.Key) {
				return
			}
		}
	}
}

// internFrom is the least number of names that make a set worth a place in the table.
const internFrom = 16

// Table makes sets. Several goroutines may use it. A nil Table makes sets that share
// nothing with other sets.
type Table struct {
	seed maphash.Seed

	mu   sync.Mutex
	sets map[uint64]weak.Pointer[content] // by sum
	live int                              // entries that the last sweep left

	forms map[uint64][]weak.Pointer[content] // by a hash of their first bytes; see Keep
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{seed: maphash.MakeSeed(), sets: map[uint64]weak.Pointer[content]{}, forms: map[uint64][]weak.Pointer[content]{}}
}

// Of returns the set of names, which may come in any order and more than once.
func (t *Table) Of(names []string) Set {
	if !ascending(names) {
		names = slices.Compact(slices.Sorted(slices.Values(names)))
	}
	if len(names) == 0 {
		return Set{}
	}
	var sum uint64
	text := 0
	for _, name := range names {
		sum += t.hash(name)
		text += len(name)
	}
	if c := t.find(len(names), sum); c != nil && holds(c.names, names) {
		return Set{c}
	}
	return t.intern(&content{names: pmap.FromSorted(each(names)), sum: sum, text: text})
}

// Read returns the set of the names in a message. Each call of begin starts again with
// the first name; the function that it returns yields the next name, and false after the
// last. If the names come in order and the set is known, Read copies none of them.
func (t *Table) Read(begin func() (next func() ([]byte, bool))) Set {
	var sum uint64
	var last []byte
	n, inOrder := 0, true
	next := begin()
	for name, ok := next(); ok; name, ok = next() {
		inOrder = inOrder && (n == 0 || bytes.Compare(last, name) < 0)
		sum, last, n = sum+t.hashBytes(name), name, n+1
	}
	if c := t.find(n, sum); inOrder && c != nil && reads(c.names, begin()) {
		return Set{c}
	}
	names := make([]string, 0, n)
	next = begin()
	for name, ok := next(); ok; name, ok = next() {
		names = append(names, string(name))
	}
	return t.Of(names)
}

// reads says whether a map has exactly the names that next yields, in order.
func reads(m pmap.Map[struct{}], next func() ([]byte, bool)) bool {
	for has := range m.Keys() {
		if name, ok := next(); !ok || string(name) != has {
			return false
		}
	}
	_, more := next()
	return !more
}

// Plus returns the set of the names of s and of other.
func (t *Table) Plus(s, other Set) Set {
	switch {
	case s == other || other.Len() == 0:
		return s
	case s.Len() < other.Len():
		s, other = other, s
	}
	return t.With(s, slices.Collect(other.All())...)
}

// With returns the set of the names of s and names.
func (t *Table) With(s Set, names ...string) Set {
	if len(names) > s.Len() {
		if s.Len() == 0 {
			return t.Of(names)
		}
		return t.Of(slices.AppendSeq(slices.Clone(names), s.All()))
	}
	if len(names) == 0 {
		return s
	}
	had := s.get()
	next, sum, text := had.names, had.sum, had.text
	for _, name := range names {
		if grown := next.Set(name, struct{}{}); grown != next {
			next, sum, text = grown, sum+t.hash(name), text+len(name)
		}
	}
	return t.replace(s, &content{names: next, sum: sum, text: text})
}

// Minus returns the set of the names of s that are not in other.
func (t *Table) Minus(s, other Set) Set {
	switch {
	case s == other:
		return Set{}
	case other.Len() < s.Len()/8:
		return t.Without(s, slices.Collect(other.All())...)
	}
	return t.Of(slices.Collect(s.Missing(other)))
}

// Without returns the set of the names of s that are not among names.
func (t *Table) Without(s Set, names ...string) Set {
	if len(names) == 0 || s.Len() == 0 {
		return s
	}
	had := s.get()
	next, sum, text := had.names, had.sum, had.text
	for _, name := range names {
		if shrunk := next.Delete(name); shrunk != next {
			next, sum, text = shrunk, sum-t.hash(name), text-len(name)
		}
	}
	return t.replace(s, &content{names: next, sum: sum, text: text})
}

// Len returns how many sets the table knows. That includes sets freed since the last
// sweep.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sets)
}

// replace returns the set of the content by, which was made from s. It returns s if no
// name changed.
func (t *Table) replace(s Set, by *content) Set {
	switch {
	case by.names == s.names():
		return s
	case by.names.Len() == 0:
		return Set{}
	}
	return t.intern(by)
}

func (t *Table) hashBytes(name []byte) uint64 {
	if t == nil {
		return 0
	}
	return maphash.Bytes(t.seed, name)
}

func (t *Table) hash(name string) uint64 {
	if t == nil {
		return 0
	}
	return maphash.String(t.seed, name)
}

// find returns the known content with a sum and a number of names; nil for none.
func (t *Table) find(size int, sum uint64) *content {
	if t == nil || size < internFrom {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.sets[sum].Value(); c != nil && c.names.Len() == size {
		return c
	}
	return nil
}

// intern returns the known set that equals c, or else makes c known. When the table has
// grown enough, it first sweeps out the sets that are freed.
func (t *Table) intern(c *content) Set {
	if t == nil || c.names.Len() < internFrom {
		return Set{c}
	}
	if known := t.find(c.names.Len(), c.sum); known != nil && pmap.Equal(known.names, c.names) {
		return Set{known}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.sets) > 2*t.live+internFrom {
		maps.DeleteFunc(t.sets, func(_ uint64, p weak.Pointer[content]) bool { return p.Value() == nil })
		maps.DeleteFunc(t.forms, func(_ uint64, all []weak.Pointer[content]) bool { return !slices.ContainsFunc(all, alive) })
		t.live = len(t.sets)
	}
	t.sets[c.sum] = weak.Make(c)
	return Set{c}
}

func ascending(names []string) bool {
	for i := 1; i < len(names); i++ {
		if names[i-1] >= names[i] {
			return false
		}
	}
	return true
}

func each(names []string) iter.Seq2[string, struct{}] {
	return func(yield func(string, struct{}) bool) {
		for _, name := range names {
			if !yield(name, struct{}{}) {
				return
			}
		}
	}
}

// holds says whether a map has exactly these names, given in order.
func holds(m pmap.Map[struct{}], names []string) bool {
	i := 0
	for name := range m.Keys() {
		if i == len(names) || names[i] != name {
			return false
		}
		i++
	}
	return i == len(names)
}
