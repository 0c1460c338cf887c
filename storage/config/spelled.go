package config

import "encoding/json"

// Spelled is a spec whose fields have other names in some API versions of its kind.
type Spelled interface {
	// In returns what is written in documents of an API version: the spec itself, or a value
	// of another type.
	In(version string) any
}

// JSONSpelled returns the codec for documents that spell the specs of JSON[T] as an S, which
// convert makes a T of. An S stands where a T stands.
func JSONSpelled[T, S any](convert func(*S) *T) Codec {
	of, _ := JSON[T]().(structured[T])
	return spelled[T, S]{of, convert}
}

type spelled[T, S any] struct {
	structured[T]
	convert func(*S) *T
}

// Written returns an empty S.
func (spelled[T, S]) Written() any { return new(S) }

func (spelled[T, S]) keepsText() bool { return false }

func (c spelled[T, S]) decode(o *object, raw json.RawMessage) any {
	read, _ := structured[S]{c.structure}.decode(o, raw).(*S)
	return c.convert(read)
}
