package status

import (
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
)

// Servers report the objects of their sources other than the store by ids, as they report
// the objects in use: in UseParts parts for each source. A server writes only the parts
// that changed.

// Sources are the sources of configuration of one server, other than the store. They are
// never modified. A server without such sources reports that it has none.
type Sources struct {
	Replica string
	States  []SourceState
}

// SourceState is the state of a source on one server.
type SourceState struct {
	Name string
	// Complete says that the server knows and has published all that the source has.
	Complete bool
	// Problem says what is wrong with it, empty for nothing.
	Problem string
	// Objects is the number of objects, and Digest the sum of their Digests: servers with
	// the same Digest have the same objects.
	Objects int
	Digest  uint64
	// Differing names some of the objects that other servers lack or have in another
	// version.
	Differing []string
}

// Named returns the state of a source, nil for none of that name.
func (s *Sources) Named(name string) *SourceState {
	if s == nil {
		return nil
	}
	at := slices.IndexFunc(s.States, func(state SourceState) bool { return state.Name == name })
	if at < 0 {
		return nil
	}
	return &s.States[at]
}

// Content is a part of the objects of a source on a server. It is never modified.
type Content struct {
	Replica, Source string
	Part            int
	// Objects are in the order of their ids.
	Objects []ContentObject
	// Hosts are the ids (HostID) of the hosts of these objects that need addresses, in
	// order.
	Hosts []uint64
}

// ContentObject is an object of a source.
type ContentObject struct {
	// ID is its ObjectID, and Hash the VersionHash of its resource version.
	ID, Hash uint64
}

// Find returns an object by its id.
func (c *Content) Find(id uint64) (ContentObject, bool) {
	if c == nil {
		return ContentObject{}, false
	}
	at, found := slices.BinarySearchFunc(c.Objects, id, func(o ContentObject, id uint64) int {
		switch {
		case o.ID < id:
			return -1
		case o.ID > id:
			return 1
		}
		return 0
	})
	if !found {
		return ContentObject{}, false
	}
	return c.Objects[at], true
}

// Digest returns what an object adds to the Digest of its source.
func (o ContentObject) Digest() uint64 {
	x := o.ID ^ o.Hash*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// VersionHash returns the Hash of an object with a resource version. Different versions
// have different hashes.
func VersionHash(version string) uint64 { return hashOf(version) }

// HostID returns a hash of a host in a namespace, the same on all servers.
func HostID(namespace, host string) uint64 { return hashOf(namespace, host) }

// ObjectID returns a hash of an object's group, kind, namespace and name, the same on all
// servers.
func ObjectID(key config.Key) uint64 {
	return hashOf(key.Kind.Group, key.Kind.Kind, key.Namespace, key.Name)
}

// hashOf returns the FNV-1a hash of texts, each followed by a separator.
func hashOf(texts ...string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	id := uint64(offset)
	for _, text := range texts {
		for i := range len(text) {
			id = (id ^ uint64(text[i])) * prime
		}
		id = (id ^ '/') * prime
	}
	return id
}
