// Package lastknown keeps the last known content of registries in the store. A server
// that starts while the source of a registry is away serves that content.
//
// A registry has one Source for each thing that it follows, such as a datacentre of
// Consul. The leader of all servers saves the content of each source (Saver): items, in
// buckets by the hash of their keys. It writes seldom, and only buckets that differ.
// Every server reads the content once, when the registry starts (Memory); nobody
// watches it.
package lastknown

import (
	"context"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Item is one entry of a source, such as an instance of a service. It is a pointer to
// an immutable value, so equal pointers are equal items.
type Item interface {
	// Value returns the item for the store: always the same bytes for equal items.
	Value() ([]byte, error)
}

// Known is the content of a source.
type Known struct {
	// State is the registry's own note on the source, such as its identity.
	State []byte
	// Items are by keys of the registry's own.
	Items pmap.Map[Item]
}

// Source is one thing that a registry follows.
type Source interface {
	// SourceName names it among the sources of all registries: some words, each a
	// part of a key in the store, such as consul/_/dc1.
	SourceName() string
	// Known returns what the source has. It is false while the registry serves
	// anything that the source has not confirmed: then what was saved stays.
	Known() (Known, bool)
}

// SourcesOf returns the sources of those registries that have any: that implement
//
//	Sources() []Source
func SourcesOf(registries []discovery.Instance) (out []Source) {
	for _, r := range registries {
		if r, ok := r.(interface{ Sources() []Source }); ok {
			out = append(out, r.Sources()...)
		}
	}
	return out
}

// Recalled is the last saved content of a source. The zero Recalled is nothing.
type Recalled struct {
	// Confirmed is when the source had it.
	Confirmed time.Time
	State     []byte
	// Items are values, by key.
	Items map[string][]byte
}

// Memory tells what was saved.
type Memory interface {
	// Recall returns what a source last had. The error is one of the store's, which
	// may be away: then it can be called again.
	Recall(ctx context.Context, source string) (Recalled, error)
}
