package rest

import (
	"context"
	"errors"
	"fmt"
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

// asStored is an operation whose condition is one that the store knows. It is false
// where this server has yet to learn of the version: the operation is as it was.
func (s *Server) asStored(ctx context.Context, op storage.Op) (stored storage.Op, learnt bool) {
	named, err := strconv.ParseInt(op.Condition(), 10, 64)
	if err != nil || named == 0 || !op.Served {
		return op, true
	}
	snapshot := s.cache.Snapshot()
	if snapshot.Revision() < named { // the client has it from another server
		if snapshot = s.await(ctx, op.Condition()); snapshot == nil {
			return op, false
		}
	}
	version := storedVersion(snapshot, op, named)
	if version == "" {
		return op, true
	}
	if op.Config == nil {
		op.ResourceVersion = version
		return op, true
	}
	object := *op.Config
	object.ResourceVersion = version
	op.Config = &object
	return op, true
}

// unlearnt is the error of an operation under a version that this server has yet to
// learn of. That the store has an older one is no conflict: the version may be that
// of a report since. A client that tries again, here or elsewhere, is told.
func (s *Server) unlearnt(ctx context.Context, err error) error {
	var conflict *storage.ConflictError
	if !errors.As(err, &conflict) {
		return err
	}
	named, ofName := strconv.ParseInt(conflict.Expected, 10, 64)
	actual, ofStore := strconv.ParseInt(conflict.Actual, 10, 64) // of an object that is gone there is none
	if ofName != nil || ofStore != nil || named < actual {
		return err
	}
	if now, asking := s.storeRevision(ctx); asking == nil && now < named {
		return err // nobody was given that version
	}
	return unavailable(fmt.Sprintf("nothing was written: %s is at version %s in the store, and this server has yet to learn of version %s: try again",
		conflict.Key, conflict.Actual, conflict.Expected))
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
