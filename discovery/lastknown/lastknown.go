// Package lastknown keeps the last known content of registries in the store. A server
// that starts while the source of a registry is away serves that content.
//
// A registry has one Source for each thing that it follows, such as a datacentre of Consul.
// The leader saves the content of each source (Saver): items, in buckets by the hash of their
// keys. It writes rarely, and only buckets that differ. Every server reads the content once,
// when the registry starts (Memory); nobody watches it.
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
	// Value encodes the item for the store: equal items give equal bytes.
	Value() ([]byte, error)
}

// Known is the content of a source as its registry knows it.
type Known struct {
	// State is data that the registry saves about the source, such as its identity.
	State []byte
	// Items holds the items by keys that the registry chooses.
	Items pmap.Map[Item]
	// Until is when the source last confirmed the content, if it is away now; zero while it is
	// followed.
	Until time.Time
}

// Source is one thing that a registry follows.
type Source interface {
	// SourceName is unique among the sources of all registries. It consists of words, each a
	// part of a key in the store, such as consul/_/dc1.
	SourceName() string
	// Known returns the content of the source, also once the source is away. It returns false
	// while the registry serves anything that the source has not confirmed since the registry
	// started, or has lost; the saved content then stays.
	Known() (Known, bool)
}

// SourcesOf returns the sources of those registries that implement
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

// Recalled is the last saved content of a source. The zero Recalled means that none was saved.
type Recalled struct {
	// Confirmed is when the source last confirmed the content.
	Confirmed time.Time
	State     []byte
	// Items holds the values of the items by key.
	Items map[string][]byte
}

// Memory reads the saved content of sources.
type Memory interface {
	// Recall returns the last saved content of a source. It fails if the store is away, and
	// can be called again then.
	Recall(ctx context.Context, source string) (Recalled, error)
}
