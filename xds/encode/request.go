package encode

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// Request receives a request of either variant, whose lists of names are long and most
// often those that others have sent: what is known of a Table is not decoded again.
type Request struct {
	Variant protocol.Variant
	// Into is made of all but the names and the stated versions.
	Into proto.Message
	// Table shares the sets of names.
	Table *nameset.Table
	// Names are what a request in state of the world names, or what a delta request
	// subscribes to, and then what it unsubscribes from.
	Names [2]nameset.Set
	// Stated are the versions that a delta request states.
	Stated protocol.Versions
	// Limit bounds the memory that it takes to answer the request, in bytes; 0 is no
	// limit. A request beyond it fails with a TooMuchError before anything is made of it.
	Limit int64
}

// TooMuchError is the error of a request that has more names than its Limit allows.
type TooMuchError struct{ Names int }

// Error implements error.
func (e *TooMuchError) Error() string { return fmt.Sprintf("a request for %d names", e.Names) }

// The fields of requests that list names.
const (
	requestNames     protowire.Number = 3 // of both variants
	deltaUnsubscribe protowire.Number = 4
	deltaStated      protowire.Number = 5
)

// Decode reads the request from a message.
func (q *Request) Decode(data mem.BufferSlice) error {
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	message := whole.ReadOnlyData()
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
		q.Names[i] = q.Table.Read(func() func() ([]byte, bool) { return names(within, requestNames+protowire.Number(i)) })
		if len(within) == list.size {
			q.Table.Keep(q.Names[i], within)
		}
	}
	if parts.stated.entries > 0 {
		q.Stated = versions(message, parts.stated)
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

// parts says where the lists and the stated versions are in a message.
type parts struct {
	lists  [len(Request{}.Names)]part
	stated statedSize
}

// part says where the fields of a list are in a message, heads included: from the first
// to the last, and how many of those bytes they are.
type part struct {
	from, to, size int
	names          int
	known          bool // the names are those of a list read before
}

// PerName estimates the bytes, besides the name itself, that it takes to answer a
// request for a name that does not exist: the name in sets, the answer, and the encoded
// answer. perStated estimates the bytes of a stated version.
const PerName, perStated = 600, 64

// check fails where it would take more memory to answer a request than it may.
func (p *parts) check(limit int64) error {
	names, size := p.stated.entries, p.stated.text+perStated*p.stated.entries
	for _, list := range p.lists {
		names, size = names+list.names, size+list.size+PerName*list.names
	}
	if limit > 0 && int64(size) > limit {
		return &TooMuchError{names}
	}
	return nil
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
			list.names++
			if list.size == 0 {
				list.from = at
				if names, n := q.Table.Known(message[at:]); n > 0 {
					q.Names[i], list.known, size = names, true, n
					list.names = names.Len()
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
	return p, p.check(q.Limit)
}

// states says whether a field is an entry of the stated versions.
func (q *Request) states(f field) bool {
	return q.Variant == protocol.Delta && f.number == deltaStated && f.kind == protowire.BytesType
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

// versions returns the versions in a message that was read once. They share one copy of
// their text.
func versions(message []byte, size statedSize) protocol.Versions {
	var text strings.Builder
	text.Grow(size.text)
	out := make([]protocol.Stated, 0, size.entries)
	for left := message; len(left) > 0; {
		f, _ := cutField(left)
		left = left[len(f.whole):]
		if f.number != deltaStated || f.kind != protowire.BytesType {
			continue
		}
		name, version, _ := f.entry()
		at := text.Len()
		text.Write(name)
		text.Write(version)
		own := text.String()[at:] // it does not move, as there is room for all
		out = append(out, protocol.Stated{Name: own[:len(name)], Version: own[len(name):]})
	}
	return protocol.VersionsOf(out)
}

// list is the place of the list that a field is of, -1 for none.
func (q *Request) list(f field) int {
	switch {
	case f.kind != protowire.BytesType:
	case f.number == requestNames:
		return 0
	case f.number == deltaUnsubscribe && q.Variant == protocol.Delta:
		return 1
	}
	return -1
}

// names iterates over the names of a list: next returns the next name, and false after
// the last.
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

// field is one field of a message, with its head.
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

// bytes returns the content of a length-delimited field.
func (f field) bytes() []byte {
	content, _ := protowire.ConsumeBytes(f.whole[f.head:])
	return content
}

// entry splits a field that is an entry of a map from text to text.
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
