package nameset

import (
	"bytes"
	"hash/maphash"
	"slices"
	"weak"
)

// form is how a message has the names of a set.
type form struct {
	bytes []byte // nil where it was met but once
}

const (
	// keepFrom is how many bytes make a form worth keeping.
	keepFrom = 1 << 10
	// beginning is how many of the bytes forms are found by, and alike how many that
	// begin with the same are told apart.
	beginning, alike = 128, 8
)

// Keep remembers that a message had the names of a set in a form, for Known, if it is
// long and the set is met again and again. It holds as long as the set is used.
func (t *Table) Keep(s Set, in []byte) {
	if t == nil || len(in) < keepFrom || s.Len() < internFrom {
		return
	}
	last := s.content.form.Load()
	if last == nil {
		s.content.form.Store(&form{})
		return
	}
	if !bytes.Equal(last.bytes, in) {
		s.content.form.Store(&form{bytes.Clone(in)})
	}
	key, self := maphash.Bytes(t.seed, in[:beginning]), weak.Make(s.content)
	t.mu.Lock()
	defer t.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(t.forms[key]), func(p weak.Pointer[content]) bool { return p == self || !alive(p) })
	t.forms[key] = append([]weak.Pointer[content]{self}, others[:min(len(others), alike-1)]...)
}

// Known finds the set in whose form a message begins, and how long that is: 0 where
// none is known.
func (t *Table) Known(message []byte) (Set, int) {
	if t == nil || len(message) < keepFrom {
		return Set{}, 0
	}
	key := maphash.Bytes(t.seed, message[:beginning])
	t.mu.Lock()
	candidates := t.forms[key] // never modified
	t.mu.Unlock()
	var longest Set
	length := 0
	for _, p := range candidates {
		c := p.Value()
		if c == nil {
			continue
		}
		if f := c.form.Load(); len(f.bytes) > length && bytes.HasPrefix(message, f.bytes) {
			longest, length = Set{c}, len(f.bytes)
		}
	}
	return longest, length
}

func alive(p weak.Pointer[content]) bool { return p.Value() != nil }
