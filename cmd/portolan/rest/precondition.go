package rest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// A precondition names the resourceVersion of an object as served: the greatest revision
// of the object, its health, and the conditions that servers report. The store knows the
// first two. A report changes nothing of the object, so it conflicts with nobody: a client
// that names the revision of a report means the object as it was last written. The store
// decides in its transaction whether that is still so. Conditions of clients are reports too.

// asStored returns an operation whose precondition is a version that the store knows. If
// this server has not seen the version yet, it returns the operation unchanged, and
// false.
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

// unseenVersionError returns the error of an operation under a version that this server has not
// seen yet. An older version in the store is then no conflict, since the named version
// may be that of a report. The client should try again.
func (s *Server) unseenVersionError(ctx context.Context, err error) error {
	var conflict *storage.ConflictError
	if !errors.As(err, &conflict) {
		return err
	}
	named, ofName := strconv.ParseInt(conflict.Expected, 10, 64)
	actual, ofStore := strconv.ParseInt(conflict.Actual, 10, 64) // an object that is gone has no version
	if ofName != nil || ofStore != nil || named < actual {
		return err
	}
	if now, asking := s.storeRevision(ctx); asking == nil && now < named {
		return err // no server has shown that version
	}
	return refusal.Unavailable(fmt.Sprintf("nothing was written: %s is at version %s in the store, and this server has yet to learn of version %s: try again",
		conflict.Key, conflict.Actual, conflict.Expected))
}

// storedVersion returns the version at which the object was last written, if a later
// report has the named version; else it is empty.
func storedVersion(snapshot *cache.Snapshot, op storage.Op, named int64) string {
	key := op.Target()
	object, report := snapshot.Stored(key), snapshot.Statuses().Value(key.Path())
	if object == nil || named > report.Latest(object.UID) {
		return ""
	}
	kept := withComparedStatus(snapshot, object).ResourceVersion
	if own, err := strconv.ParseInt(kept, 10, 64); err != nil || named <= own {
		return ""
	}
	return kept
}

// sameIncarnation compares the versions in a patched object with those of the object that was
// patched.
func sameIncarnation(snapshot *cache.Snapshot, live, object *config.Config) error {
	served := withStatus(snapshot, live)
	switch {
	case live == nil && object.UID != "":
		return fmt.Errorf("%w: uid is %s in the request, and there is no such object", &versionError{storage.ErrConflict}, object.UID)
	case live == nil:
		return nil
	case object.UID != "" && object.UID != live.UID:
		return &versionError{otherUID(live.UID, object.UID)}
	case object.ResourceVersion != "" && object.ResourceVersion != served.ResourceVersion:
		return &versionError{&storage.ConflictError{Key: live.Key(), Expected: object.ResourceVersion, Actual: served.ResourceVersion}}
	}
	return nil
}
