package storage

import (
	"context"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/storage/config"
)

// HistoryGrace is the age below which Prune keeps a record whatever the retention: a writer
// whose response was lost finds its own change by the record.
const HistoryGrace = 5 * time.Minute

// Origin says who makes a mutation, and how. A store keeps it in the history and does not
// interpret it; any part may be empty.
type Origin struct {
	// User is the authenticated user.
	User string
	// Address is the address of the client, as the server of the API saw it.
	Address string
	// Tool is the program and its version.
	Tool string
	// Message is the user's comment on the change.
	Message string
}

type originKey struct{}

// WithOrigin returns a context whose mutations the history records with o.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginOf returns the Origin that WithOrigin put into a context, else the zero Origin. It
// replaces invalid UTF-8.
func OriginOf(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin)
	for _, s := range []*string{&o.User, &o.Address, &o.Tool, &o.Message} {
		*s = strings.ToValidUTF8(*s, "\uFFFD")
	}
	return o
}

// Change is the change of one object at one revision.
//
// A Config without a spec stands for an object whose content is not known: its value cannot
// be read, or the records in between are gone.
type Change struct {
	Revision string
	Time     time.Time
	Origin   Origin
	Key      config.Key
	// Outcome is Created, Configured or Deleted.
	Outcome Outcome
	// Before is the object as it was, nil for a created one; After as it became,
	// nil for a deleted one. Each carries the resource version that it had.
	Before, After *config.Config
}

// Record is the record of one batch: its changes in the order of its operations. All
// have the Revision, Time and Origin of the record.
type Record struct {
	Revision string
	Time     time.Time
	Origin   Origin
	Changes  []Change
}

// Selection selects objects of a store: all, the objects of a kind, a namespace or both, or
// one. An empty field selects everything; a Name needs a Kind, and a Namespace unless the
// kind has none.
type Selection struct {
	Kind            config.GroupVersionKind
	Namespace, Name string
}

// Has says whether the selection has an object. API versions do not matter.
func (s Selection) Has(key config.Key) bool {
	return (s.Kind.Kind == "" || s.Kind.Kind == key.Kind.Kind && s.Kind.Group == key.Kind.Group) &&
		(s.Name == "" || s.Name == key.Name && s.Namespace == key.Namespace) &&
		(s.Namespace == "" || s.Namespace == key.Namespace)
}

// Query asks for records. The zero Query asks for all.
type Query struct {
	// Selection selects the objects of the changes. A record shows no others, and a
	// record without selected changes is left out.
	Selection Selection
	// After and Until bound the revision: above After, and at most Until. So the records
	// lead from the state at After to the state at Until.
	After, Until string
	// Limit is the largest number of records, 0 for all.
	Limit int
}

// Retention says what Prune keeps.
type Retention struct {
	// Keep is how many of its newest changes every object keeps, at least 1.
	Keep int
	// Deleted is how long the history of an object stays after the object has
	// gone; 0 is for ever.
	Deleted time.Duration
}

// Historian is a store that remembers who changed what. It keeps one record for every
// batch that changes something, written together with the change. Compaction does not
// touch records; only Prune removes them. A change made in etcd by hand has no record.
type Historian interface {
	// History returns the newest changes of one object, newest first and at most
	// limit, 0 for all. It reaches beyond a deletion, to earlier objects of that
	// key. It may read every record there is.
	History(ctx context.Context, key config.Key, limit int) ([]Change, error)
	// Records returns the newest records of a query, newest first. It may read
	// every record there is.
	Records(ctx context.Context, query Query) ([]Record, error)
	// At returns the selected objects as they were when the store was at a version, in
	// the order of groups, kinds, namespaces and names. It leaves out values that cannot
	// be read. ErrCompacted says that the history does not reach back so far. For a
	// single object it often reaches further than for a namespace.
	At(ctx context.Context, version string, selection Selection) ([]*config.Config, error)
	// Prune removes a record if all its objects are past their retention: each has Keep
	// newer records, or was deleted at least Deleted ago. It removes no record younger than
	// HistoryGrace. Several servers may prune at once. It returns how many records it
	// removed, also with an error.
	Prune(ctx context.Context, r Retention) (removed int, err error)
}
