package rest

import (
	"context"
	"strconv"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
)

// A condition on the version of an object is about all of which that is made: the
// object, its health, and what servers say of it. The store knows the first two.
// The last nobody but servers can write, so it stands in nobody's way: a client who
// names a version that servers gave the object by a report, since it was last
// written, means the object as it was written. Whether it still is so is for the
// store to decide, in its transaction.

// asStored is an operation whose condition is one that the store knows.
func (s *Server) asStored(ctx context.Context, op storage.Op) storage.Op {
	named, err := strconv.ParseInt(op.Condition(), 10, 64)
	if err != nil || named == 0 || !op.Served {
		return op
	}
	snapshot := s.cache.Snapshot()
	if snapshot.Revision() < named { // the client has it from another server
		if snapshot = s.await(ctx, op.Condition()); snapshot == nil {
			return op
		}
	}
	version := storedVersion(snapshot, op, named)
	if version == "" {
		return op
	}
	if op.Config == nil {
		op.ResourceVersion = version
		return op
	}
	object := *op.Config
	object.ResourceVersion = version
	op.Config = &object
	return op
}

// storedVersion is that of the object when it was last written, where a report
// gave it the named version since; empty where that is not so.
func storedVersion(snapshot *cache.Snapshot, op storage.Op, named int64) string {
	key := op.Target()
	object, report := snapshot.Get(key), snapshot.Statuses().Value(key.Path())
	if object == nil || !report.Of(object.UID) || named > report.Revision {
		return ""
	}
	kept := keptWith(snapshot, object).ResourceVersion
	if own, err := strconv.ParseInt(kept, 10, 64); err != nil || named <= own {
		return ""
	}
	return kept
}
