// Package status is what servers say of configuration objects, and of how far
// changes have come: what the store keeps on the side, and what never generates
// anything.
package status

import (
	"time"

	"github.com/portolan-mesh/portolan/storage/config"
)

// The types of the conditions that servers set.
const (
	// Accepted: the object is valid, and the servers have seen it.
	Accepted = "Accepted"
	// Programmed: the proxies that it concerns have acknowledged it.
	Programmed = "Programmed"
	// Rejected: a proxy refused what was made of it. It is there only then.
	Rejected = "Rejected"
)

// Reserved says whether a type of condition is set by servers alone.
func Reserved(condition string) bool {
	return condition == Accepted || condition == Programmed || condition == Rejected
}

// The values of a condition.
const (
	True    = "True"
	False   = "False"
	Unknown = "Unknown"
)

// Report is what servers say of one object. It is never modified.
type Report struct {
	// Key is that of the object, and UID tells which one of that name is meant: of
	// another the report says nothing.
	Key config.Key
	UID string
	// Object is the revision of the object that was looked at, and Generation its
	// generation.
	Object, Generation int64
	Conditions         []Condition
	// Revision is that of the store at which it was said.
	Revision int64
}

// Of says whether the report is of the object with a uid; nil is of none.
func (r *Report) Of(uid string) bool { return r != nil && r.UID == uid }

// Condition is one thing that is said of an object.
type Condition struct {
	Type, Status string
	// Reason is one word for programs, Message a sentence for people.
	Reason, Message string
	// Since is when Status last changed.
	Since time.Time
}

// Replica is what one server knows of the proxies that are connected to it.
type Replica struct {
	ID string
	// Proxies is how many there are.
	Proxies int
	// Changes are the last that were published, oldest first.
	Changes []Change
	// Troubles are the proxies that lack something, those that refused it first. The
	// list is bounded.
	Troubles []Trouble
}

// Change is how far one published change has come: that of the revisions after
// From, up to and including To.
type Change struct {
	From, To int64
	// Alone is about this change, All about everything up to it.
	Alone, All Count
}

// Count is how many proxies took a change, are not concerned by it, refused it,
// and have not answered. Each proxy is counted once.
type Count struct {
	Accepted     int `json:"accepted"`
	NotConcerned int `json:"notConcerned"`
	Rejected     int `json:"rejected"`
	Waiting      int `json:"waiting"`
}

// Plus adds the counts of two servers.
func (c Count) Plus(o Count) Count {
	return Count{c.Accepted + o.Accepted, c.NotConcerned + o.NotConcerned, c.Rejected + o.Rejected, c.Waiting + o.Waiting}
}

// Proxies is how many were counted.
func (c Count) Proxies() int { return c.Accepted + c.NotConcerned + c.Rejected + c.Waiting }

// Concerned is how many of them the change makes a difference to.
func (c Count) Concerned() int { return c.Accepted + c.Rejected + c.Waiting }

// Trouble is a proxy that lacks something of one type of resources.
type Trouble struct {
	Node string `json:"node"`
	Type string `json:"type"`
	// Revision is the one that the proxy is known to be at, Since when it was last
	// in step.
	Revision int64     `json:"revision"`
	Since    time.Time `json:"since,omitzero"`
	// Rejected says that it refused a response, RejectedRevision is that of the
	// response, and Message its words.
	Rejected         bool   `json:"rejected,omitempty"`
	RejectedRevision int64  `json:"rejectedRevision,omitempty"`
	Message          string `json:"message,omitempty"`
	// Objects are the Paths of the objects that the refused resources were built
	// from, as far as that is known.
	Objects []string `json:"objects,omitempty"`
}

// Proxy is a proxy that is or was connected to a server.
type Proxy struct {
	Node string
	// Replica is the server that it is connected to, empty for none.
	Replica string
	// Seen is when it came, or was last seen.
	Seen time.Time
	// Revision is that of the store at which this was said.
	Revision int64
}

// Took counts how the server's proxies took the change of one revision, false where
// the server has not published it yet. Of one that is older than the changes that
// are told apart it counts how they took everything up to the oldest of these.
func (r *Replica) Took(revision int64) (Count, bool) {
	for i, c := range r.Changes {
		switch {
		case c.To < revision:
		case c.From < revision:
			return c.Alone, true
		case i == 0:
			return c.All, true
		default: // it changed nothing
			return Count{NotConcerned: r.Proxies}, true
		}
	}
	return Count{}, false
}

// TookAll counts how they took everything up to a revision.
func (r *Replica) TookAll(revision int64) (Count, bool) {
	for _, c := range r.Changes {
		if c.To >= revision {
			return c.All, true
		}
	}
	return Count{}, false
}
