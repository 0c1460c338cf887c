package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

func (s *Server) create(c *call) error {
	trial, err := s.rehearse(c, c.query["dryRun"])
	if err != nil {
		return err
	}
	object, err := s.readObject(c, storage.Create)
	if err != nil {
		return err
	}
	object.UID, object.ManagedFields = "", nil
	revision, err := s.createNamed(c, trial, object)
	c.name = object.Name // for errors
	if err != nil {
		return err
	}
	if trial != nil {
		return s.writeObject(c, http.StatusCreated, trial.object())
	}
	return s.writeObject(c, http.StatusCreated, s.objectAfterWrite(c.r.Context(), object, revision))
}

// If the generated name is taken, createNamed generates another.
func (s *Server) createNamed(c *call, trial *rehearsal, object *config.Config) (revision string, err error) {
	for attempt := 1; ; attempt++ {
		revision, err = s.applyOne(c, trial, storage.Op{Verb: storage.Create, Config: object})
		if !errors.Is(err, storage.ErrExists) || object.GenerateName == "" || attempt == attempts {
			return revision, err
		}
		object.Name = generatedName(object.GenerateName)
	}
}

// Versions in the request, if any, must match the store.
func (s *Server) replace(c *call) error {
	trial, err := s.rehearse(c, c.query["dryRun"])
	if err != nil {
		return err
	}
	object, err := s.readObject(c, storage.Update)
	if err != nil {
		return err
	}
	uid := object.UID
	object.UID = ""
	if err := s.permit(storage.Op{Verb: storage.Update, Config: object}); err != nil {
		return err
	}
	given := precondition{uid: uid, resourceVersion: object.ResourceVersion}
	managing := s.managing(c, object.ManagedFields)
	object.ManagedFields = nil
	revision, err := s.conditional(c, given, trial, func(resourceVersion string, served bool) (string, error) {
		object.ResourceVersion = resourceVersion
		return s.applyOne(c, trial, storage.Op{Verb: storage.Update, Config: object, Served: served, Managed: managing})
	})
	if err != nil {
		return err
	}
	if trial != nil {
		return s.writeObject(c, http.StatusOK, trial.object())
	}
	return s.writeObject(c, http.StatusOK, s.objectAfterWrite(c.r.Context(), object, revision))
}

// remove deletes an object, if the preconditions of the request hold.
func (s *Server) remove(c *call) error {
	given, dry, err := s.readDeleteOptions(c)
	if err != nil {
		return err
	}
	return s.removeIf(c, given, dry)
}

// removeIf is remove for options that are read already.
func (s *Server) removeIf(c *call, given precondition, dry []string) error {
	trial, err := s.rehearse(c, dry)
	if err != nil {
		return err
	}
	if err := s.permit(storage.Op{Verb: storage.Delete, Key: c.key()}); err != nil {
		return err
	}
	details := metav1.StatusDetails{Name: c.name, Group: c.schema.Group, Kind: c.schema.Plural}
	before := s.cache.Snapshot()
	if object := before.Stored(c.key()); object != nil {
		details.UID = types.UID(object.UID)
	}
	advice := s.advise(c.r.Context(), []storage.Op{{Verb: storage.Delete, Key: c.key()}})[0]
	revision, err := s.conditional(c, given, trial, func(resourceVersion string, served bool) (string, error) {
		return s.applyOne(c, trial, storage.Op{Verb: storage.Delete, Key: c.key(), ResourceVersion: resourceVersion, Served: served})
	})
	if err != nil {
		return err
	}
	if trial == nil {
		s.await(c.r.Context(), revision)
	}
	warnings := allWarnings(nil, advice)
	if left := s.replacementAfterDelete(before, c.key()); left != "" {
		warnings = append(warnings, left)
	}
	warn(c.w, warnings)
	writeJSON(c.w, http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: revision},
		Status:   metav1.StatusSuccess, Details: &details,
	})
	return nil
}

// applyOne does a single operation, or rehearses it.
func (s *Server) applyOne(c *call, trial *rehearsal, op storage.Op) (string, error) {
	if err := s.mayStore(c, op); err != nil {
		return "", err
	}
	if err := s.checkRoom(op); err != nil {
		return "", err
	}
	op, err := s.granted(c, op)
	if err != nil {
		return "", err
	}
	op, learnt := s.asStored(c.r.Context(), op)
	op.KeepSpec = s.keepSpec(op)
	op, err = s.sealed(c.r.Context(), op, trial != nil)
	if err != nil {
		return "", err
	}
	revision, err := plan.ApplyOne(op, func(ops []storage.Op) (string, []storage.Result, error) {
		return s.batcher(trial).Apply(c.r.Context(), ops)
	})
	if err != nil && !learnt {
		err = s.unseenVersionError(c.r.Context(), err)
	}
	return revision, err
}

// mayStore says why the store may not get an operation of a user: another source has the object, or
// only servers may write it.
func (s *Server) mayStore(c *call, op storage.Op) error {
	if err := s.checkSource(op); err != nil {
		return err
	}
	return s.unreserved(c.r, op)
}

// batcher returns what does the operations of a write: the store, or the rehearsal of a dry run.
func (s *Server) batcher(trial *rehearsal) storage.Batcher {
	if trial != nil {
		return trial
	}
	return s.store
}

// precondition is the uid and version that the stored object must have; empty is any.
type precondition struct{ uid, resourceVersion string }

// otherUID is the conflict of a request for one object with another of its name.
func otherUID(stored, expected string) error {
	return fmt.Errorf("%w: uid is %s, and the request expects %s: the object was deleted and made anew", storage.ErrConflict, stored, expected)
}

// readDeleteOptions reads the precondition of a delete, and the values of dryRun
// in the query and in the body.
func (s *Server) readDeleteOptions(c *call) (out precondition, dry []string, err error) {
	body, err := s.budget.readJSON(c, "the DeleteOptions in the request body")
	if err != nil {
		return precondition{}, nil, err
	}
	var options metav1.DeleteOptions
	if err := decodeStrict(body, &options); err != nil {
		return precondition{}, nil, refusal.BadRequest(fmt.Sprintf("the DeleteOptions in the request body cannot be read: %v", err))
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil {
			out.uid = string(*p.UID)
		}
		if p.ResourceVersion != nil {
			out.resourceVersion = *p.ResourceVersion
		}
	}
	return out, slices.Concat(c.query["dryRun"], options.DryRun), nil
}

// attempts bounds how often a write with a uid precondition is tried while others change
// the object, and how many generated names are tried.
const attempts = 5

// conditional does a write under a precondition. The store compares resource versions.
// conditional compares the uid itself, and makes the write conditional on the version
// that it read with it. A rehearsal compares with its snapshot. Clients name served
// versions; a version read here is the store's.
func (s *Server) conditional(c *call, given precondition, trial *rehearsal, write func(resourceVersion string, served bool) (string, error)) (string, error) {
	if given.uid == "" {
		return write(given.resourceVersion, true)
	}
	for attempt := 1; ; attempt++ {
		stored, err := s.current(c, trial)
		if err != nil {
			return "", err
		}
		if stored.UID != given.uid {
			return "", otherUID(stored.UID, given.uid)
		}
		if given.resourceVersion != "" {
			return write(given.resourceVersion, true)
		}
		revision, err := write(stored.ResourceVersion, false)
		if errors.Is(err, storage.ErrConflict) && attempt < attempts {
			continue
		}
		return revision, err
	}
}

func (s *Server) current(c *call, trial *rehearsal) (*config.Config, error) {
	if trial == nil {
		return s.store.Get(c.r.Context(), c.schema.GroupVersionKind, c.name, c.namespace)
	}
	if object := ofStore(trial.snapshot, c.key()); object != nil {
		return object, nil
	}
	return nil, storage.ErrNotFound
}

// objectAfterWrite returns an object as this write left it.
func (s *Server) objectAfterWrite(ctx context.Context, object *config.Config, revision string) *config.Config {
	snapshot := s.await(ctx, revision)
	stored := snapshot.Get(object.Key())
	if out := withStatus(snapshot, stored); out != nil && (stored.ResourceVersion == revision || out.ResourceVersion == revision) {
		return out
	}
	out, err := s.store.Get(ctx, object.GroupVersionKind, object.Name, object.Namespace)
	if err == nil && out.ResourceVersion == revision {
		return out
	}
	mine := *object // another client has written since
	mine.ResourceVersion = revision
	return &mine
}

// await waits for the cache to show a revision, so that the client reads its own writes
// here. It does not wait long: the write is done. It returns nil if the cache took
// longer.
func (s *Server) await(ctx context.Context, version string) *cache.Snapshot {
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return nil // a store whose versions are not revisions
	}
	wait, cancel := context.WithTimeout(ctx, ownWriteWait)
	defer cancel()
	snapshot, err := s.cache.Await(wait, revision)
	if err != nil {
		s.logger.Debug("cache is behind a write", "revision", revision, "err", err)
		return nil
	}
	return snapshot
}
