package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// The methods of storage.ConfigStore and storage.Batcher. Reads return the newest
// snapshot; mutations go to FeedOptions.Store.

// Schemas returns the kinds served.
func (f *Feed) Schemas() schema.Set { return f.schemas }

// Version returns the revision of the newest snapshot.
func (f *Feed) Version() string { return f.Snapshot().Version() }

// Get returns an object of the newest snapshot, or storage.ErrNotFound.
func (f *Feed) Get(_ context.Context, kind config.GroupVersionKind, name, namespace string) (*config.Config, error) {
	key := config.Key{Kind: kind, Name: name, Namespace: namespace}
	if err := f.serves(kind); err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	object := f.Snapshot().Get(key)
	if object == nil {
		return nil, fmt.Errorf("get %s: %w", key, storage.ErrNotFound)
	}
	return object, nil
}

// List returns the objects of a kind in the newest snapshot, in the order of
// their namespaces, then names.
func (f *Feed) List(_ context.Context, kind config.GroupVersionKind, namespace string) ([]*config.Config, error) {
	if err := f.serves(kind); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind, err)
	}
	objects := slices.Collect(f.Snapshot().List(kind, namespace))
	slices.SortFunc(objects, func(a, b *config.Config) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return objects, nil
}

func (f *Feed) serves(kind config.GroupVersionKind) error {
	if f.schemas.Kind(kind) == nil {
		return fmt.Errorf("%w: kind %s is not served by this cache", storage.ErrInvalid, kind)
	}
	return nil
}

// Create passes the object on to the store.
func (f *Feed) Create(ctx context.Context, object *config.Config) (string, error) {
	if f.store == nil {
		return "", readOnly("create " + object.Key().String())
	}
	return f.store.Create(ctx, object)
}

// Update passes the object on to the store.
func (f *Feed) Update(ctx context.Context, object *config.Config) (string, error) {
	if f.store == nil {
		return "", readOnly("update " + object.Key().String())
	}
	return f.store.Update(ctx, object)
}

// Delete passes the key on to the store.
func (f *Feed) Delete(ctx context.Context, kind config.GroupVersionKind, name, namespace, resourceVersion string) (string, error) {
	if f.store == nil {
		return "", readOnly("delete " + config.Key{Kind: kind, Name: name, Namespace: namespace}.String())
	}
	return f.store.Delete(ctx, kind, name, namespace, resourceVersion)
}

// Apply passes the batch on to the store, if that is a storage.Batcher.
func (f *Feed) Apply(ctx context.Context, ops []storage.Op) (string, []storage.Result, error) {
	batcher, ok := f.store.(storage.Batcher)
	if !ok {
		return "", nil, readOnly(fmt.Sprintf("apply a batch of %d", len(ops)))
	}
	return batcher.Apply(ctx, ops)
}

func readOnly(what string) error {
	return fmt.Errorf("%s: %w: change the source of this cache instead", what, storage.ErrReadOnly)
}

// GetResourceAtVersion asks the ledger.
func (f *Feed) GetResourceAtVersion(ctx context.Context, version string, key config.Key) (string, error) {
	return f.GetLedger().ResourceVersionAt(ctx, version, key)
}

// GetLedger returns the ledger of the store. Without a store, the history of the
// cache is the ledger, and reaches back as far as Since does.
func (f *Feed) GetLedger() storage.Ledger {
	if f.store != nil {
		return f.store.GetLedger()
	}
	return ledger{f.history}
}

// SetLedger passes the ledger on to the store.
func (f *Feed) SetLedger(l storage.Ledger) error {
	if f.store == nil {
		return fmt.Errorf("set ledger: %w: the history of the cache is its ledger", storage.ErrReadOnly)
	}
	return f.store.SetLedger(l)
}

// ledger answers from a history.
type ledger struct{ history *history }

// ResourceVersionAt implements storage.Ledger.
func (l ledger) ResourceVersionAt(_ context.Context, version string, key config.Key) (string, error) {
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil || revision > l.history.newest.Load().Revision() {
		return "", fmt.Errorf("%s at version %q: %w: no such version", key, version, storage.ErrInvalid)
	}
	snapshot, ok := l.history.at(revision)
	if !ok {
		return "", fmt.Errorf("%s at version %s: %w", key, version, storage.ErrCompacted)
	}
	if object := snapshot.Get(key); object != nil {
		return object.ResourceVersion, nil
	}
	return "", fmt.Errorf("%s at version %s: %w", key, version, storage.ErrNotFound)
}
