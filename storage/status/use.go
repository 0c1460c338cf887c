package status

// An object is in use on a server while resources that connected proxies should have are
// made of it. Servers report the objects in use by their ids, in UseParts parts: when the
// use of one object changes, the server writes one part again.

// UseParts is the number of parts.
const UseParts = 32

// Use is one part of the objects in use on a server. It is never modified.
type Use struct {
	Replica string
	Part    int
	// Objects are the ids, in order.
	Objects []uint64
}

// UsePart returns the part that an id belongs to.
func UsePart(id uint64) int { return int(id % UseParts) }
