package nameset

import (
	"bytes"
	"hash/maphash"
	"slices"
	"weak"
)

// form is the part of a message that carries the names of a set, as bytes.
type form struct {
	bytes []byte // nil if it was met only once
}

const (
	// keepFrom is the least number of bytes that make a form worth keeping.
	keepFrom = 1 << 10
	// beginning is how many first bytes of a form make its key; alike is how many forms
	// with one key are kept.
	beginning, alike = 128, 8
)

// Keep remembers, for Known, the bytes that carried the names of a set in a message. It
// does so only for long ones, and from the second time that the set is met. It forgets
// them with the set.
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

// Known returns the set whose form a message begins with, and the length of that form; 0
// if none is known.
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
