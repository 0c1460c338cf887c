package history

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Record is the stored record of one batch.
type Record struct {
	Revision int64
	Time     time.Time
	Origin   storage.Origin
	Entries  []Entry
}

// Entry is the change of one object by a batch. It lacks the object after the change: that
// is the present object, or the Before of a later record.
type Entry struct {
	Key     config.Key
	Outcome storage.Outcome
	// Before is nil for a created object. It has no spec where it could not be
	// read.
	Before *config.Config
}

// Scope returns the key of an object without its name and API version: what the objects of
// one kind in one namespace have in common. Floors, how far back the history is complete,
// are kept by scope.
func Scope(key config.Key) config.Key {
	return config.Key{Kind: config.GroupVersionKind{Group: key.Kind.Group, Kind: key.Kind.Kind}, Namespace: key.Namespace}
}

// InScope says whether objects of a scope may be in a selection.
func InScope(selection storage.Selection, scope config.Key) bool {
	return storage.Selection{Kind: selection.Kind, Namespace: selection.Namespace}.Has(scope)
}

// Excerpt is the history of some objects as of one revision.
type Excerpt struct {
	// Live are the objects there are.
	Live map[config.Key]*config.Config
	// Records are the records of the changes, newest first, without entries of other
	// objects.
	Records []Record
	// Floor is the highest revision among the removed records of the same scopes: above it
	// none is missing.
	Floor int64
	// Single says that the view is of one object only.
	Single bool
}

// Sort brings records into the order of an Excerpt.
func Sort(records []Record) {
	slices.SortFunc(records, func(a, b Record) int { return cmp.Compare(b.Revision, a.Revision) })
}

// Recorded returns the records of the view above revision after and up to until, newest
// first and at most limit, 0 for all.
func (v Excerpt) Recorded(after, until int64, limit int) []storage.Record {
	var records []storage.Record
	state := maps.Clone(v.Live) // of the objects, right after record r
	for _, r := range v.Records {
		if r.Revision <= after || limit > 0 && len(records) == limit {
			break
		}
		if record := r.rewind(state); r.Revision <= until && len(record.Changes) > 0 {
			records = append(records, record)
		}
	}
	return records
}

// rewind returns the changes of a record. state has the objects after it, and rewind sets them
// back to before it.
func (r Record) rewind(state map[config.Key]*config.Config) storage.Record {
	revision := version(r.Revision)
	record := storage.Record{Revision: revision, Time: r.Time, Origin: r.Origin}
	for _, e := range r.Entries {
		change := storage.Change{
			Revision: revision, Time: r.Time, Origin: r.Origin,
			Key: e.Key, Outcome: e.Outcome, Before: e.Before,
		}
		if e.Outcome != storage.Deleted {
			if change.After = state[e.Key]; change.After == nil || change.After.ResourceVersion != revision {
				change.After = Unknown(e.Key, revision)
			}
		}
		state[e.Key] = e.Before
		record.Changes = append(record.Changes, change)
	}
	return record
}

// Unknown returns an object that stands for one whose content is not known.
func Unknown(key config.Key, resourceVersion string) *config.Config {
	return &config.Config{Meta: config.Meta{
		GroupVersionKind: key.Kind, Namespace: key.Namespace, Name: key.Name, ResourceVersion: resourceVersion,
	}}
}

// version makes a revision an opaque version.
func version(revision int64) string { return strconv.FormatInt(revision, 10) }

// revisionOf is the inverse of version for the resource version of an object.
func revisionOf(object *config.Config) int64 {
	revision, err := strconv.ParseInt(object.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return revision
}
