package aggregate

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hashicorp/go-multierror"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// writes is the store of an aggregate: it refuses writes that another source prevents
// (Permit).
type writes struct {
	Store
	cache *Cache
}

// Permit returns why an operation may not be written to the store, nil if it may. The
// error is a *storage.SourceError. The store may change its own objects, and create an
// object that shadows one of a source behind it. Its objects that a source before it
// shadows it may only delete and restore. Permit refuses to create an object behind one
// of a source before the store, because it would have no effect.
func (c *Cache) Permit(op storage.Op) error {
	snapshot := c.Snapshot()
	object := snapshot.Get(op.Target())
	if object == nil || object.Source == "" {
		return nil
	}
	if (op.Verb == storage.Delete || op.Verb == storage.Restore) && snapshot.Stored(op.Target()) != nil {
		return nil
	}
	source, behind := c.ranked(object.Source)
	if behind && op.Verb != storage.Update && op.Verb != storage.Delete {
		return nil
	}
	err := &storage.SourceError{Verb: op.Verb, Key: object.Key(), Source: object.Source}
	if source.Place != nil {
		err.Place = source.Place(err.Key)
	}
	if !behind && op.Verb != storage.Delete {
		err.Else = "it goes before the store: what is written there would have no effect until it is taken out of the source"
	}
	return err
}

// Place returns the place of an object in the first source other than the store that has
// the key; "" if no source has it, or the place is unknown.
func (c *Cache) Place(key config.Key) string {
	object := c.Snapshot().Beside(key)
	if object == nil {
		return ""
	}
	if source, _ := c.ranked(object.Source); source.Place != nil {
		return source.Place(key)
	}
	return ""
}

// ranked returns the source with a name, the zero Source if it was removed, and whether
// the store has priority over it.
func (c *Cache) ranked(name string) (source Source, behind bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		switch {
		case m.own:
			behind = true
		case m.Name == name:
			return m.Source, behind
		}
	}
	return Source{}, true
}

// Create implements storage.ConfigStore.
func (w writes) Create(ctx context.Context, object *config.Config) (string, error) {
	if err := w.cache.Permit(storage.Op{Verb: storage.Create, Config: object}); err != nil {
		return "", err
	}
	return w.Store.Create(ctx, object)
}

// Update implements storage.ConfigStore.
func (w writes) Update(ctx context.Context, object *config.Config) (string, error) {
	if err := w.cache.Permit(storage.Op{Verb: storage.Update, Config: object}); err != nil {
		return "", err
	}
	return w.Store.Update(ctx, object)
}

// Delete implements storage.ConfigStore.
func (w writes) Delete(ctx context.Context, kind config.GroupVersionKind, name, namespace, resourceVersion string) (string, error) {
	op := storage.Op{Verb: storage.Delete, Key: config.Key{Kind: kind, Name: name, Namespace: namespace}}
	if err := w.cache.Permit(op); err != nil {
		return "", err
	}
	return w.Store.Delete(ctx, kind, name, namespace, resourceVersion)
}

// Apply implements storage.Batcher.
func (w writes) Apply(ctx context.Context, ops []storage.Op) (string, []storage.Result, error) {
	var faults *multierror.Error
	for i, op := range ops {
		if err := w.cache.Permit(op); err != nil {
			faults = multierror.Append(faults, &storage.OpError{Index: i, Err: err})
		}
	}
	if faults != nil {
		return "", nil, faults
	}
	return w.Store.Apply(ctx, ops)
}

// GetLedger implements storage.ConfigStore.
func (w writes) GetLedger() storage.Ledger { return ledger(w) }

// ledger answers from the history of the cache, which has the objects of all sources.
// For older revisions it asks the store's ledger, which has only the store's objects.
type ledger writes

// ResourceVersionAt implements storage.Ledger.
func (l ledger) ResourceVersionAt(ctx context.Context, version string, key config.Key) (string, error) {
	if revision, err := strconv.ParseInt(version, 10, 64); err == nil {
		if then, ok := l.cache.At(revision); ok {
			if object := then.Get(key); object != nil {
				return object.ResourceVersion, nil
			}
			return "", fmt.Errorf("%s at version %s: %w", key, version, storage.ErrNotFound)
		}
	}
	return l.Store.GetLedger().ResourceVersionAt(ctx, version, key)
}
