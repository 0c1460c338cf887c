package config

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// maxMessages bounds how deep messages are nested. A mapping or list of JSON nests three
// messages, and protobuf reads 10,000.
const maxMessages = 4 * maxDepth

// checkReadable returns an error if a stored message could not be read back, in
// protobuf or in JSON. It would be nested too deep, or hold text that is not UTF-8, a
// number that is not one, a time out of range, or a message of an unknown type. The
// error names the field below path.
func checkReadable(path string, m proto.Message) error {
	fault := &unreadable{}
	if fault.in(m.ProtoReflect(), 1) {
		return nil
	}
	return fault.below(path)
}

// unreadable is a value that could not be read back. Its path has the last part first.
type unreadable struct {
	path []string
	why  error
}

// below returns the error of the fault, with its path below another.
func (u *unreadable) below(path string) error {
	for i := len(u.path) - 1; i >= 0; i-- {
		if path += u.path[i]; len(path) > 4*maxShown && i > 0 {
			path += "..."
			break
		}
	}
	return faultAt(strings.TrimPrefix(path, "."), u.why)
}

// faultAt returns the error of the field at a path, which is empty for a whole document.
func faultAt(path string, err error) error {
	if path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// is records a fault, and returns false as in does.
func (u *unreadable) is(err error) bool {
	u.why = err
	return false
}

// within adds a part of the path to a fault that was found.
func (u *unreadable) within(part string) bool {
	u.path = append(u.path, part)
	return false
}

// in says whether a message is sound, as field and value do for theirs.
func (u *unreadable) in(m protoreflect.Message, depth int) bool {
	if depth > maxMessages {
		return u.is(fmt.Errorf("is nested more than %d messages deep", maxMessages))
	}
	if err := wellKnown(m.Interface()); err != nil {
		return u.is(err)
	}
	sound := true
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if sound = u.field(fd, v, depth); !sound {
			u.within("." + fd.JSONName())
		}
		return sound
	})
	return sound
}

func (u *unreadable) field(fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int) bool {
	sound := true
	switch {
	case fd.IsMap():
		v.Map().Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
			if sound = u.value(fd.MapKey(), key.Value(), depth) && u.value(fd.MapValue(), v, depth); !sound {
				u.within(fmt.Sprintf("[%s]", short(key.String())))
			}
			return sound
		})
	case fd.IsList():
		for i := range v.List().Len() {
			if !u.value(fd, v.List().Get(i), depth) {
				return u.within(fmt.Sprintf("[%d]", i))
			}
		}
	default:
		sound = u.value(fd, v, depth)
	}
	return sound
}

func (u *unreadable) value(fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int) bool {
	switch {
	case fd.Message() != nil:
		return u.in(v.Message(), depth+1)
	case fd.Kind() == protoreflect.StringKind && !utf8.ValidString(v.String()):
		return u.is(errors.New("is not text in UTF-8"))
	}
	return true
}

// wellKnown checks a message that has a JSON form of its own.
func wellKnown(m proto.Message) error {
	switch m := m.(type) {
	case *durationpb.Duration:
		return m.CheckValid()
	case *timestamppb.Timestamp:
		return m.CheckValid()
	case *structpb.Value:
		switch kind := m.GetKind().(type) {
		case nil:
			return errors.New("is a value that says nothing")
		case *structpb.Value_NumberValue:
			if math.IsNaN(kind.NumberValue) || math.IsInf(kind.NumberValue, 0) {
				return fmt.Errorf("is %v, which is no number of JSON", kind.NumberValue)
			}
		}
	case *anypb.Any:
		inner, err := m.UnmarshalNew()
		if err != nil {
			return fmt.Errorf("holds a message that is unknown here: %w", err)
		}
		return checkReadable("the message in it", inner)
	}
	return nil
}
