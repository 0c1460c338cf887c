package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// GetResourceAtVersion reads at an old revision of etcd, as far back as etcd is not
// compacted.
func (s *Store) GetResourceAtVersion(ctx context.Context, version string, key config.Key) (string, error) {
	return ledger{s}.ResourceVersionAt(ctx, version, key)
}

// GetLedger returns etcd's own history.
func (s *Store) GetLedger() storage.Ledger { return ledger{s} }

// SetLedger refuses: the ledger of this store is the history of etcd. The error
// is an errors.ErrUnsupported.
func (s *Store) SetLedger(storage.Ledger) error {
	return fmt.Errorf("set ledger: %w: the ledger of an etcd store is the history of etcd", errors.ErrUnsupported)
}

// ledger is etcd's MVCC history.
type ledger struct{ store *Store }

func (l ledger) ResourceVersionAt(ctx context.Context, at string, key config.Key) (string, error) {
	canonical, err := plan.Key(l.store.Schemas(), key.Kind, key.Name, key.Namespace)
	if err != nil {
		return "", fmt.Errorf("%s at version %s: %w", key, at, err)
	}
	revision, err := plan.Revision(at) // to etcd, revision 0 means the newest
	if err != nil {
		return "", fmt.Errorf("%s at version %s: %w", key, at, err)
	}
	response, err := l.store.get(ctx, ConfigKey(canonical), clientv3.WithRev(revision), clientv3.WithKeysOnly())
	if err != nil {
		return "", fmt.Errorf("%s at version %s: %w", key, at, l.store.readError(err))
	}
	if len(response.Kvs) == 0 {
		return "", fmt.Errorf("%s at version %s: %w", key, at, storage.ErrNotFound)
	}
	return version(response.Kvs[0].ModRevision), nil
}
