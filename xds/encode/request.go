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

// Request decodes a request of either variant. Its lists of names are long, and mostly
// the same as other clients have sent: a list that Table knows is not decoded again.
type Request struct {
	Variant protocol.Variant
	// Into receives all fields except the names and the stated versions.
	Into proto.Message
	// Table shares the sets of names.
	Table *nameset.Table
	// Names has two sets. The first is what a request in state of the world names, or
	// what a delta request subscribes to. The second is what a delta request unsubscribes
	// from.
	Names [2]nameset.Set
	// Stated has the versions of resources that a delta request states.
	Stated protocol.Versions
	// Limit bounds the memory that it takes to answer the request, in bytes; 0 means no
	// limit. A request beyond it fails with a TooMuchError before it is decoded.
	Limit int64
}

// TooMuchError is the error of a request that has more names than its Limit allows.
type TooMuchError struct{ Names int }

// Error implements error.
func (e *TooMuchError) Error() string { return fmt.Sprintf("a request for %d names", e.Names) }

// The fields of requests that list names.
const (
	requestNames     protowire.Number = 3 // in both variants
	deltaUnsubscribe protowire.Number = 4
	deltaStated      protowire.Number = 5
)

// Decode reads the request from an encoded message.
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

// parts says where in a message the lists of names are, and how much is stated.
type parts struct {
	lists  [len(Request{}.Names)]part
	stated statedSize
}

// part says where in a message the fields of one list are, their tags included: from the
// first to the last, and size, the bytes of just these fields.
type part struct {
	from, to, size int
	names          int
	known          bool // Table knows the names, so they need not be read
}

// PerName estimates the bytes, besides the name itself, that it takes to answer a
// request for a name that does not exist: the name in sets, the answer, and the encoded
// answer. perStated estimates the bytes of a stated version.
const PerName, perStated = 600, 64

// check fails if the answer to the request would take more memory than the limit.
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

// begins returns the index of the known list that begins at a position of the message; -1
// for none.
func (p *parts) begins(at int) int {
	for i, list := range p.lists {
		if list.known && list.from == at {
			return i
		}
	}
	return -1
}

// cut goes through the fields of a message once. It skips the names of a known list.
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
				list.known = false // the list goes on after the known names, so all of it is read
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

// statedSize is how much a request states: the number of entries, the bytes of their
// fields, and the bytes of the names and versions in them.
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

// versions returns the stated versions of a message that cut has checked. They share one
// copy of their text.
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
		own := text.String()[at:] // Grow has made room for all, so it does not move
		out = append(out, protocol.Stated{Name: own[:len(name)], Version: own[len(name):]})
	}
	return protocol.VersionsOf(out)
}

// list returns the index in Names of the list that a field belongs to; -1 for none.
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
			f, _ := cutField(message) // cut has checked it
			message = message[len(f.whole):]
			if f.number == list && f.kind == protowire.BytesType {
				return f.bytes(), true
			}
		}
		return nil, false
	}
}

// field is one encoded field of a message. head is the length of its tag.
type field struct {
	number protowire.Number
	kind   protowire.Type
	head   int
	whole  []byte
}

// cutField returns the first field of a message.
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

// entry returns the key and the value of a field that is a map entry of strings.
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
