package progress

import (
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// Type is how far one proxy has come with one type of resource, as a Tracker found it
// after a turn of the connection. What it points to is never modified, so it can be
// copied.
type Type struct {
	// Name is the short name of the type, such as CDS.
	Name string
	// Status is the status of the subscription. While the proxy is about to request more
	// of the type, because it took a change of another, Status counts that as missing:
	// Synced and NotSent become Stale.
	protocol.Status
	// Changes are the revisions that made a difference to the proxy.
	Changes Ranges
	// Rejections are the resources that the proxy rejects.
	Rejections []Rejected
	// StaleSince is since when the proxy has not acknowledged all that it should have;
	// zero if it has. SentAt and AnsweredAt are the times of the last response and the
	// last answer.
	StaleSince, SentAt, AnsweredAt time.Time

	// Held is how many changes wait for what they need. Kept is how many removals wait
	// because something still refers to the resource. Late is how many changes were sent
	// without what they need, because they had waited too long.
	Held, Kept, Late int

	// idle is 0 while the type is not idle, and another number each time that it becomes so.
	// An idle type does not change, except for its revisions.
	idle int
}

// Rejected is a resource that a proxy rejects. Range has the revisions that brought its
// content.
type Rejected struct {
	Range
	// Name of the resource; empty if it is unknown which one the proxy rejects.
	Name string
	// Version of the resource; empty if the proxy should have none of the name.
	Version string
	*protocol.Rejection
	// Objects are those to which the rejection is due, as far as they are known, the likeliest
	// first.
	Objects []config.Key
}

// outcome is how one proxy took a change.
type outcome int

const (
	notConcerned outcome = iota
	accepted
	waiting
	rejected // the gravest
)

// outcomeOf returns how the proxy took the change of one revision.
func (t *Type) outcomeOf(revision int64) outcome {
	switch {
	case t.Desired >= revision && !t.Changes.has(revision):
		return notConcerned
	case t.AckedRevision >= revision:
		return accepted
	case t.rejects(func(r Rejected) bool { return r.has(revision) }):
		return rejected
	case t.AckedIgnoringRejected >= revision: // an older rejection does not keep it from this change
		return accepted
	}
	return waiting
}

// outcomeUpTo returns how the proxy took all changes up to a revision. Whether the proxy is
// concerned depends on the revision itself.
func (t *Type) outcomeUpTo(revision int64) outcome {
	reach := revision
	if t.Desired >= revision {
		reach = t.Changes.upTo(revision)
	}
	out := t.outcomeOfAll(reach)
	if out == accepted && !t.Changes.has(revision) {
		return notConcerned
	}
	return out
}

// outcomeOfAll returns how the proxy took all changes up to a revision. While a rejection stands
// the proxy has not taken them; once only rejected resources are missing, it rejected them.
func (t *Type) outcomeOfAll(revision int64) outcome {
	switch {
	case t.AckedRevision >= revision:
		return accepted
	case t.rejects(func(r Rejected) bool {
		return r.has(revision) || r.From < revision && t.AckedIgnoringRejected >= revision
	}):
		return rejected
	}
	return waiting
}

func (t *Type) rejects(it func(Rejected) bool) bool { return slices.ContainsFunc(t.Rejections, it) }

// problem reports that the proxy lacks something of the type.
func (t *Type) problem(node string) status.Problem {
	return status.Problem{Node: node, Type: t.Name, Revision: t.AckedRevision, Since: t.StaleSince}
}

// rejectionProblem reports that the proxy rejects a resource of the type.
func (t *Type) rejectionProblem(node string, r Rejected) status.Problem {
	out := t.problem(node)
	out.Rejected, out.RejectedRevision, out.Resource, out.Message = true, r.Revision, r.Name, Shorten(r.Message, MaxMessage)
	for _, key := range r.Objects {
		out.Objects = append(out.Objects, key.Path())
	}
	return out
}
