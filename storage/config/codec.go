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
	// Check returns an error if a value cannot be stored as a spec of the kind and read
	// back. The error of a field begins with its path.
	Check(spec any) error
	// ReadJSON reads a spec and drops fields that this program does not know.
	ReadJSON(text []byte) (any, error)
	// Unmarshal reads the spec of a stored value. It keeps fields that this program does
	// not know if the type of the spec can hold them.
	Unmarshal(stored *anypb.Any) (any, error)
	// Known says whether this program knows all of a stored spec. Only then do equal
	// specs have equal bytes.
	Known(stored *anypb.Any) bool

	// Veiled says whether specs are Veiled.
	Veiled() bool

	// keepsText says whether a Written is kept of specs. The documents of Kubernetes' own kinds, and
	// of Veiled specs, have the canonical form alone.
	keepsText() bool

	// decode reads a spec strictly, and reports every fault to o by its path.
	decode(o *object, raw json.RawMessage) any
}

// TopLevel is a spec whose fields stand at the top level of a document, beside metadata,
// like the fields of a Kubernetes Secret or ConfigMap. It is a pointer to a Go struct. All
// other specs stand under the field spec.
type TopLevel interface {
	// TopLevel only marks the type: nobody calls it.
	TopLevel()
}

// form has the operations on a spec that do not depend on its kind.
type form interface {
	clone(spec any) any
	equal(a, b any) bool
	// toJSON writes a spec in its canonical form. Equal specs have equal bytes, except
	// for the blanks of protojson.
	toJSON(spec any) (json.RawMessage, error)
	// marshal returns the bytes to store for a spec that replaces before, and typeURL their
	// type. The result has the fields of before that this program does not know.
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

// MarshalSpec returns the bytes to store for a spec that replaces before, nil for none.
// They have the fields of before that this program does not know. Within one binary equal
// specs have equal bytes.
func MarshalSpec(spec any, before []byte) ([]byte, error) {
	return formOf(spec).marshal(spec, before)
}

// SpecType returns the type URL of the bytes that MarshalSpec returns for a spec.
func SpecType(spec any) string { return formOf(spec).typeURL(spec) }

// Veiled is a spec with a part for servers alone, such as the data of a Secret. The store
// keeps that part, and no document shows it.
type Veiled interface {
	// Shown returns the spec without that part. It does not change the spec.
	Shown() any
	// CheckStored says why the spec must not be stored as it is; nil if it may.
	CheckStored() error
}

// Shown returns an object as documents and the history show it: a Veiled spec without the
// part for servers. It returns any other object, and nil, unchanged.
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
