package encoded

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// Request receives a request, whose lists of names are long and most often those
// that others have sent: what is known of a Table is not decoded again. It is a
// proto.Message, too: a server made without the Codec decodes all of it as what
// Into is.
type Request struct {
	// Into is made of all but the lists.
	Into proto.Message
	// Table is where the names of the lists are known.
	Table *nameset.Table
	// Lists are the fields that are lists of names; those without a number are none.
	Lists [2]List
	// Stated is the field that has versions by name, and these; none without a number.
	Stated Stated
}

// Stated is a map of versions by name, and the versions that are in it.
type Stated struct {
	Field    protowire.Number
	Versions stream.Versions
}

// List is a field that is a list of names, and the names that are in it.
type List struct {
	Field protowire.Number
	Names nameset.Set
}

var _ proto.Message = (*Request)(nil)

// ProtoReflect implements proto.Message.
func (q *Request) ProtoReflect() protoreflect.Message { return q.Into.ProtoReflect() }

// decode takes a message apart.
func (q *Request) decode(message []byte) error {
	parts, err := q.cut(message)
	if err != nil {
		return err
	}
	left := len(message) - parts.stated.fields
	for i, list := range parts.lists {
		if left -= list.size; list.size == 0 || list.known {
			continue
		}
		within := message[list.from:list.to]
		q.Lists[i].Names = q.Table.Read(func() func() ([]byte, bool) { return names(within, q.Lists[i].Field) })
		if len(within) == list.size {
			q.Table.Keep(q.Lists[i].Names, within)
		}
	}
	if parts.stated.entries > 0 {
		q.Stated.Versions = versions(message, q.Stated.Field, parts.stated)
	}
	if left == len(message) {
		return proto.Unmarshal(message, q.Into)
	}
	rest := make([]byte, 0, left)
	for at := 0; at < len(message); {
		if i := parts.begins(at); i >= 0 {
			at = parts.lists[i].to
			continue
		}
		f, _ := cutField(message[at:])
		if q.list(f) < 0 && !q.states(f) {
			rest = append(rest, f.whole...)
		}
		at += len(f.whole)
	}
	return proto.Unmarshal(rest, q.Into)
}

// parts are where in a message the lists and what is stated are.
type parts struct {
	lists  [len(Request{}.Lists)]part
	stated statedSize
}

// part is where in a message the fields of a list are, heads included: from the
// first to the last, and how much of that they are.
type part struct {
	from, to, size int
	known          bool // the names are those of a list that was read before
}

// begins finds a list, of those that were read before, by where it begins; -1 for
// none.
func (p *parts) begins(at int) int {
	for i, list := range p.lists {
		if list.known && list.from == at {
			return i
		}
	}
	return -1
}

// cut goes through the fields of a message once. Names of a list that is known it
// passes over.
func (q *Request) cut(message []byte) (parts, error) {
	var p parts
	for at := 0; at < len(message); {
		f, err := cutField(message[at:])
		if err != nil {
			return p, err
		}
		size := len(f.whole)
		if i := q.list(f); i >= 0 {
			list := &p.lists[i]
			if list.size == 0 {
				list.from = at
				if names, n := q.Table.Known(message[at:]); n > 0 {
					q.Lists[i].Names, list.known, size = names, true, n
				}
			} else {
				list.known = false // it goes on, so that all is read
			}
			if name := f.bytes(); !utf8.Valid(name) {
				return p, fmt.Errorf("a request cannot be read: the name %q in field %d is not UTF-8", name, f.number)
			}
			list.size += size
			list.to = at + size
		} else if q.states(f) {
			if err := p.stated.add(f); err != nil {
				return p, err
			}
		}
		at += size
	}
	return p, nil
}

// states says whether a field is an entry of what is stated.
func (q *Request) states(f field) bool {
	return f.number == q.Stated.Field && f.kind == protowire.BytesType
}

// statedSize is how much is stated: entries, the bytes of their fields, and of the
// text in them.
type statedSize struct{ entries, fields, text int }

func (s *statedSize) add(f field) error {
	name, version, err := f.entry()
	switch {
	case err != nil:
		return err
	case !utf8.Valid(name) || !utf8.Valid(version):
		return fmt.Errorf("a request cannot be read: the name %q or its version %q in field %d is not UTF-8", name, version, f.number)
	}
	*s = statedSize{s.entries + 1, s.fields + len(f.whole), s.text + len(name) + len(version)}
	return nil
}

// versions are those in a message, which was read once. They share one copy of
// their text.
func versions(message []byte, stated protowire.Number, size statedSize) stream.Versions {
	var text strings.Builder
	text.Grow(size.text)
	out := make([]stream.Stated, 0, size.entries)
	for left := message; len(left) > 0; {
		f, _ := cutField(left)
		left = left[len(f.whole):]
		if f.number != stated || f.kind != protowire.BytesType {
			continue
		}
		name, version, _ := f.entry()
		at := text.Len()
		text.Write(name)
		text.Write(version)
		own := text.String()[at:] // it does not move, as there is room for all
		out = append(out, stream.Stated{Name: own[:len(name)], Version: own[len(name):]})
	}
	return stream.VersionsOf(out)
}

// list is the place of the list that a field is of, -1 for none.
func (q *Request) list(f field) int {
	for i := range q.Lists {
		if f.number == q.Lists[i].Field && f.kind == protowire.BytesType {
			return i
		}
	}
	return -1
}

// names goes through those of a list: what it returns tells the next, and false
// after the last.
func names(message []byte, list protowire.Number) (next func() ([]byte, bool)) {
	return func() ([]byte, bool) {
		for len(message) > 0 {
			f, _ := cutField(message) // it was read once
			message = message[len(f.whole):]
			if f.number == list && f.kind == protowire.BytesType {
				return f.bytes(), true
			}
		}
		return nil, false
	}
}

// field is one of a message, with its head.
type field struct {
	number protowire.Number
	kind   protowire.Type
	head   int
	whole  []byte
}

// cutField takes the first off a message.
func cutField(message []byte) (field, error) {
	number, kind, head := protowire.ConsumeTag(message)
	if head < 0 {
		return field{}, fmt.Errorf("a request cannot be read: %w", protowire.ParseError(head))
	}
	size := protowire.ConsumeFieldValue(number, kind, message[head:])
	if size < 0 {
		return field{}, fmt.Errorf("a request cannot be read: %w", protowire.ParseError(size))
	}
	return field{number, kind, head, message[:head+size]}, nil
}

// bytes is the content of one that has bytes.
func (f field) bytes() []byte {
	content, _ := protowire.ConsumeBytes(f.whole[f.head:])
	return content
}

// entry takes apart one that is an entry of a map of text by text.
func (f field) entry() (key, value []byte, err error) {
	for left := f.bytes(); len(left) > 0; {
		part, err := cutField(left)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case part.kind != protowire.BytesType:
		case part.number == 1:
			key = part.bytes()
		case part.number == 2:
			value = part.bytes()
		}
		left = left[len(part.whole):]
	}
	return key, value, nil
}
