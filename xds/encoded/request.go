package encoded

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

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
	var sizes [len(q.Lists)]int // of the fields, with their heads
	for left := message; len(left) > 0; {
		f, err := cutField(left)
		if err != nil {
			return err
		}
		if i := q.list(f); i >= 0 {
			if name := f.bytes(); !utf8.Valid(name) {
				return fmt.Errorf("a request cannot be read: the name %q in field %d is not UTF-8", name, f.number)
			}
			sizes[i] += len(f.whole)
		}
		left = left[len(f.whole):]
	}
	lists := 0
	for i, size := range sizes {
		if lists += size; size > 0 {
			q.Lists[i].Names = q.Table.Read(func() func() ([]byte, bool) { return names(message, q.Lists[i].Field) })
		}
	}
	if lists == 0 {
		return proto.Unmarshal(message, q.Into)
	}
	rest := make([]byte, 0, len(message)-lists)
	for left := message; len(left) > 0; {
		f, _ := cutField(left)
		if q.list(f) < 0 {
			rest = append(rest, f.whole...)
		}
		left = left[len(f.whole):]
	}
	return proto.Unmarshal(rest, q.Into)
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
