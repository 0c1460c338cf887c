package status

import "github.com/portolan-mesh/portolan/storage/config"

// An object is in use on a server while resources that connected proxies should have are
// made of it. Servers report the objects in use by their ids, in UseParts parts: where
// the use of one object changes, one part is written again.

// UseParts is the number of parts.
const UseParts = 32

// Use is one part of the objects in use on a server. It is never modified.
type Use struct {
	Replica string
	Part    int
	// Objects are the ids, in order.
	Objects []uint64
}

// ObjectID is a hash of an object's group, kind, namespace and name. All servers agree
// on it.
func ObjectID(key config.Key) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	id := uint64(offset)
	for _, part := range [...]string{key.Kind.Group, key.Kind.Kind, key.Namespace, key.Name} {
		for i := range len(part) {
			id = (id ^ uint64(part[i])) * prime
		}
		id = (id ^ '/') * prime
	}
	return id
}

// UsePart is the part that an id belongs to.
func UsePart(id uint64) int { return int(id % UseParts) }
