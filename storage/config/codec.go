package config

import (
	"encoding/json"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Codec reads and checks the specs of one kind. There are two: Protobuf for messages,
// and JSON for Go structs. A schema names the codec of its kind; no other code depends
// on which one it is.
type Codec interface {
	// New returns an empty spec.
	New() any
	// Path is the field of the document that holds the spec: "spec", or empty if the spec's
	// fields stand at the top level (TopLevel).
	Path() string
	// Is says whether a value is a spec of the kind, and not nil.
	Is(spec any) bool
	// Check says why a value cannot be stored as a spec of the kind, or could not
	// be given back. A fault of a field begins with its path.
	Check(spec any) error
	// ReadJSON reads a spec and leaves out what this program does not know.
	ReadJSON(text []byte) (any, error)
	// Unmarshal reads the spec of a stored value, with what this program does not
	// know as far as the spec can hold it.
	Unmarshal(stored *anypb.Any) (any, error)
	// Known says whether this program knows all of a stored spec. Only then do equal
	// specs have equal bytes.
	Known(stored *anypb.Any) bool

	// Veiled says whether specs are Veiled.
	Veiled() bool

	// decode reads a spec strictly, and tells o of every fault by its path.
	decode(o *object, raw json.RawMessage) any
}

// TopLevel is a spec whose fields stand at the top level of a document, beside metadata,
// like the fields of a Kubernetes Secret or ConfigMap. It is a pointer to a Go struct. All
// other specs stand under the field spec.
type TopLevel interface {
	// TopLevel is never called.
	TopLevel()
}

// form does what needs no knowledge of a spec's kind.
type form interface {
	clone(spec any) any
	equal(a, b any) bool
	// toJSON writes a spec in its canonical form. Equal specs have equal bytes, except
	// for the blanks of protojson.
	toJSON(spec any) (json.RawMessage, error)
	// marshal returns the stored bytes of a spec that replaces others, and typeURL their
	// type. marshal keeps the parts of before that this program does not know.
	marshal(spec any, before []byte) ([]byte, error)
	typeURL(spec any) string
	// path is the Path of the codec.
	path() string
}

func formOf(spec any) form {
	switch spec.(type) {
	case proto.Message:
		return message{}
	case TopLevel:
		return structure{topLevel: true}
	}
	return structure{}
}

// SameSpec says whether two specs are equal.
func SameSpec(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	of := formOf(a)
	return of == formOf(b) && of.equal(a, b)
}

// MarshalSpec returns the value under which stores keep a spec in place of
// another, nil for none, whose unknown fields it keeps. Equal specs have equal
// values within one binary.
func MarshalSpec(spec any, before []byte) ([]byte, error) {
	return formOf(spec).marshal(spec, before)
}

// SpecType returns the type URL of what MarshalSpec makes of a spec.
func SpecType(spec any) string { return formOf(spec).typeURL(spec) }

// Veiled is a spec with a part for servers alone, such as the data of a Secret. The store
// keeps that part, and no document shows it.
type Veiled interface {
	// Shown returns the spec without that part. It does not change the spec.
	Shown() any
	// CheckStored says why the spec must not be stored as it is; nil if it may.
	CheckStored() error
}

// Shown returns an object as documents and the history have it: without what is for
// servers alone. An object that has none of that, and nil, is returned as it is.
func Shown(object *Config) *Config {
	if object == nil {
		return nil
	}
	v, ok := object.Spec.(Veiled)
	if !ok {
		return object
	}
	out := *object
	out.Spec = v.Shown()
	return &out
}
