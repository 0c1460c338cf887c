package config

import (
	"bytes"
	"encoding/json"
	"slices"
)

// duplicates reports the duplicate keys of valid JSON, which encoding/json accepts silently. It
// skips text that is nested too deep, since tooDeep reports that.
func (o *object) duplicates(data []byte) {
	if nesting(data) <= maxDepth {
		(&keyReader{object: o, rest: data}).value()
	}
}

// keyReader reads valid JSON for its keys, and makes no copy of a key without escapes.
type keyReader struct {
	object *object
	rest   []byte // what is not read yet
	path   []place
	keys   [][]byte // of the mappings around the rest, the outermost first
}

// place is a place in one mapping or list, as in step.
type place struct {
	list  bool
	index int
	key   []byte
}

// fewKeys is how many keys of a mapping are compared one by one.
const fewKeys = 16

func (r *keyReader) value() {
	switch r.peek() {
	case '{':
		r.rest = r.rest[1:]
		r.mapping()
	case '[':
		r.rest = r.rest[1:]
		r.path = append(r.path, place{list: true})
		last := len(r.path) - 1
		for r.more(']') && !r.object.full() {
			r.value()
			r.path[last].index++
		}
		r.path = r.path[:last]
	case '"':
		r.text()
	default: // a number, true, false or null
		end := bytes.IndexAny(r.rest, ",]} \t\r\n")
		if end < 0 {
			end = len(r.rest)
		}
		r.rest = r.rest[end:]
	}
}

// mapping reads the rest of a mapping, and reports its keys that are there twice.
func (r *keyReader) mapping() {
	r.path = append(r.path, place{})
	last, first := len(r.path)-1, len(r.keys)
	var many map[string]bool // the keys, if they are more than few
	for r.more('}') && !r.object.full() {
		key := r.text()
		r.path[last].key = key
		siblings := r.keys[first:]
		switch {
		case many == nil && len(siblings) == fewKeys:
			many = make(map[string]bool, 2*fewKeys)
			for _, k := range siblings {
				many[string(k)] = true
			}
			fallthrough
		case many != nil:
			if many[string(key)] {
				r.object.fail(r.where(), "is set twice")
			}
			many[string(key)] = true
		case slices.ContainsFunc(siblings, func(k []byte) bool { return bytes.Equal(k, key) }):
			r.object.fail(r.where(), "is set twice")
		default:
			r.keys = append(r.keys, key)
		}
		r.peek()
		r.rest = r.rest[1:] // the colon
		r.value()
	}
	r.path, r.keys = r.path[:last], r.keys[:first]
}

// peek skips blanks, and returns the next byte; 0 at the end.
func (r *keyReader) peek() byte {
	for i, c := range r.rest {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			r.rest = r.rest[i:]
			return c
		}
	}
	r.rest = nil
	return 0
}

// more says whether a member of a mapping or list follows, and skips the comma before it. It
// reads the end if none follows.
func (r *keyReader) more(end byte) bool {
	switch r.peek() {
	case end:
		r.rest = r.rest[1:]
		return false
	case ',':
		r.rest = r.rest[1:]
	}
	return len(r.rest) > 0
}

// text reads a string, and returns what stands between its quotes, without escapes.
func (r *keyReader) text() []byte {
	r.peek()
	escaped, end := false, 1
	for ; end < len(r.rest) && r.rest[end] != '"'; end++ {
		if r.rest[end] == '\\' {
			escaped = true
			end++
		}
	}
	quoted := r.rest[:end+1]
	r.rest = r.rest[end+1:]
	if !escaped {
		return quoted[1:end]
	}
	var text string
	_ = json.Unmarshal(quoted, &text) // the JSON is valid
	return []byte(text)
}

// where returns the path of the key that was read last.
func (r *keyReader) where() string {
	steps := make([]step, len(r.path))
	for i, p := range r.path {
		steps[i] = step{list: p.list, index: p.index, key: string(p.key)}
	}
	return pathText(steps)
}
