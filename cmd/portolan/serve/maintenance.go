package serve

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
)

// maintenance returns the operations on the store that the API offers to operators.
func (s *server) maintenance() maintenance.Options {
	o := maintenance.Options{
		Status: &reporter{s}, Snapshots: snapshots{s.store.client},
		Quarantine: quarantine{s}, Format: formatter{s}, Sealing: s.secrets, Authority: s.certificates.authority,
	}
	if s.store.keeper != nil {
		o.Compactor, o.Defragmenter = caretaker{s.store.keeper}, caretaker{s.store.keeper}
	}
	if s.store.members != nil {
		o.Members = s.store.members
	}
	return o
}

// snapshots takes snapshots of the etcd that a client is connected to.
type snapshots struct{ client *clientv3.Client }

// Snapshot implements maintenance.Snapshotter.
func (s snapshots) Snapshot(ctx context.Context) (maintenance.Snapshot, error) {
	body, revision, err := backup.Take(ctx, s.client)
	return maintenance.Snapshot{Body: body, Revision: revision}, err
}

// caretaker lets operators run at once what a Keeper would do later.
type caretaker struct{ keeper *upkeep.Keeper }

// Compact implements maintenance.Compactor.
func (c caretaker) Compact(ctx context.Context, revision int64) (maintenance.Compaction, error) {
	if s := c.keeper.Status(); s != nil && revision > s.Revision {
		// The revision may be newer than the keeper's last look.
		if err := c.keeper.Check(ctx); err != nil {
			return maintenance.Compaction{}, unavailable(err)
		}
		if s = c.keeper.Status(); revision > s.Revision {
			return maintenance.Compaction{}, fmt.Errorf("%w: revision %d: the store is at %d", storage.ErrInvalid, revision, s.Revision)
		}
	}
	change, err := c.keeper.Compact(ctx, revision)
	if err != nil {
		return maintenance.Compaction{}, unavailable(err)
	}
	return maintenance.Compaction{
		Revision: change.After.Compacted, BeforeBytes: change.Before.InUse, AfterBytes: change.After.InUse,
	}, nil
}

// Defragment implements maintenance.Defragmenter.
func (c caretaker) Defragment(ctx context.Context) (maintenance.Defragmentation, error) {
	begun := time.Now()
	change, err := c.keeper.Defragment(ctx)
	if err != nil {
		return maintenance.Defragmentation{}, unavailable(err)
	}
	return maintenance.Defragmentation{
		BeforeBytes: change.Before.Size, AfterBytes: change.After.Size, Seconds: time.Since(begun).Seconds(),
	}, nil
}

// unavailable marks an error of the store as one that may pass.
func unavailable(err error) error { return fmt.Errorf("%w: %w", storage.ErrUnavailable, err) }
