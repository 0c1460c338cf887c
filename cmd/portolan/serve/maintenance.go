package serve

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/escrow"
	"github.com/portolan-mesh/portolan/storage/etcd/peercert"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
	"github.com/portolan-mesh/portolan/storage/seal"
)

// maintenance returns the operations on the store that the API offers to operators.
func (s *server) maintenance() maintenance.Options {
	o := maintenance.Options{
		Status: &reporter{s}, Snapshots: snapshots{s.store.client}, Keys: keyring{s},
		Quarantine: quarantine{s}, Format: formatter{s}, Sealing: s.secrets, Authority: s.certificates.authority,
		Diagnostics: &maintenance.Diagnostics{Settings: s.o.Settings, Log: s.o.recent.text, Metrics: s.metrics},
	}
	if s.o.LogLevels != nil {
		o.Logs = logs{s}
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

// keys returns the keys that belong into a backup, from their files.
func (o *Options) keys() (escrow.Keys, error) {
	var out escrow.Keys
	if file := o.sealingKeys(); file != "" {
		ring, err := seal.Read(file)
		if err != nil && !seal.IsMissing(err) {
			return out, fmt.Errorf("%w: the sealing keys: %w", storage.ErrUnavailable, err)
		}
		if err == nil {
			out.SealingKeys = ring.Text()
		}
	}
	if o.Embedded == nil {
		return out, nil
	}
	var err error
	out.Authority, out.AuthorityKey, err = peercert.In(o.Embedded.DataDir).Authority()
	return out, err
}

// keyring gives out the keys for a backup.
type keyring struct{ server *server }

// BackupKeys implements maintenance.Keyring. The log says who had them.
func (k keyring) BackupKeys(ctx context.Context) (escrow.Keys, error) {
	keys, err := k.server.o.keys()
	if err == nil {
		k.server.logger.Info("the keys of the store were given out for a backup", "to", storage.OriginOf(ctx).User)
	}
	return keys, err
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
