package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	etcdschema "go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// revisionBump is how much a restore adds to the revision of a snapshot. It is more than
// a store can have advanced since the snapshot, so no revision stands for two states.
// Watches from an older revision must list again.
// https://github.com/etcd-io/etcd/issues/16028
const revisionBump = 1_000_000_000

// ErrNotEmpty is the error of a directory that holds something already.
var ErrNotEmpty = errors.New("the directory is not empty")

// RestoreOptions say which member to restore from a snapshot.
type RestoreOptions struct {
	// File is a snapshot. DataDir is the data directory to make: it must be empty or not
	// exist.
	File, DataDir string
	// Name and Initial are the Cluster.Name and Cluster.Initial with which the member
	// will be started as one of several. Empty is a cluster of one.
	Name    string
	Initial []Peer
	// Token makes the restored store different from any before, so that caches notice.
	// All members restored together need the same token, and no other restore may have
	// had it. Empty means a new one, which is for a cluster of one.
	Token string
	// Keep puts more into the data directory, before the store appears in it; nil for
	// nothing.
	Keep func(dataDir string) error
	// Schemas are the known kinds: the Summary counts other objects as unreadable.
	Schemas schema.Set
}

// A Restored describes a restored data directory.
type Restored struct {
	// Summary describes the snapshot.
	*backup.Summary
	// Revision is the revision of the restored store. All lower revisions count as
	// compacted.
	Revision int64
	// Token is the given token, or the new one.
	Token string
}

// Restore verifies a snapshot and makes the data directory of a member from it, which is
// not started yet. The directory appears whole or, with an error, not at all. A
// directory in use is an ErrInUse, and one that is not empty an ErrNotEmpty.
func Restore(ctx context.Context, opts RestoreOptions) (*Restored, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	summary, err := backup.Inspect(opts.File, opts.Schemas)
	if err != nil {
		return nil, err
	}
	_, err = os.Stat(opts.DataDir)
	existed := err == nil
	if err := makeDataDir(opts.DataDir); err != nil {
		return nil, err
	}
	lock, err := lockDir(ctx, opts.DataDir, newHolder(processID{}, ""))
	if err != nil {
		return nil, err
	}
	err = opts.fill(summary.Size)
	lock.release()
	if err != nil {
		if !existed {
			err = errors.Join(err, os.RemoveAll(opts.DataDir))
		}
		return nil, err
	}
	return &Restored{Summary: summary, Revision: summary.Revision + revisionBump, Token: opts.Token}, nil
}

// complete returns the options with their defaults, or what is wrong with them.
func (o RestoreOptions) complete() (RestoreOptions, error) {
	if o.File == "" || o.DataDir == "" {
		return o, errors.New("restore: a snapshot and a data directory are required")
	}
	if o.Name == "" && len(o.Initial) == 0 {
		o.Name, o.Initial = memberName, []Peer{{Name: memberName, URL: peerURL}}
	}
	if !slices.ContainsFunc(o.Initial, func(p Peer) bool { return p.Name == o.Name }) {
		return o, fmt.Errorf("restore: member %q is not among the initial ones, %q: give both, as the member is to be started", o.Name, texts(o.Initial))
	}
	if len(o.Initial) > 1 && o.Token == "" {
		return o, errors.New("restore: the members of a cluster need one id of the restore between them, which no restore before had")
	}
	abs, err := filepath.Abs(o.DataDir)
	if err != nil {
		return o, fmt.Errorf("data directory %s: %w", o.DataDir, err)
	}
	o.DataDir = abs
	o.Token = cmp.Or(o.Token, "restored-"+uuid.NewString())
	return o, nil
}

// fill restores a snapshot of a given size into a locked data directory.
func (o RestoreOptions) fill(size int64) (err error) {
	if err := o.checkEmpty(); err != nil {
		return err
	}
	if err := o.checkRoom(size); err != nil {
		return err
	}
	part, err := os.MkdirTemp(o.DataDir, "restore-*")
	if err != nil {
		return fmt.Errorf("restore to %s: %w", o.DataDir, err)
	}
	err = o.restore(part)
	if err == nil {
		err = amend(filepath.Join(part, "member", "snap", "db"), withoutUsers, withoutLeases)
	}
	if err == nil && o.Keep != nil {
		err = o.Keep(o.DataDir)
	}
	if err == nil {
		err = os.Rename(part, etcdDir(o.DataDir))
	}
	if err != nil {
		return fmt.Errorf("restore to %s: %w", o.DataDir, errors.Join(err, os.RemoveAll(part)))
	}
	return syncDir(o.DataDir)
}

// checkEmpty refuses a directory that holds more than what servers leave without data: a
// lock, a socket, and the mark of a store that is gone.
func (o RestoreOptions) checkEmpty() error {
	entries, err := os.ReadDir(o.DataDir)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", o.DataDir, err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{lockFile, markFile, APISocket}, e.Name()) {
			return fmt.Errorf("restore to %s: %w: it has %s: name another, or move that away", o.DataDir, ErrNotEmpty, e.Name())
		}
	}
	return nil
}

// checkRoom refuses a file system without space for the restored store.
func (o RestoreOptions) checkRoom(size int64) error {
	space, err := upkeep.SpaceOf(o.DataDir)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", o.DataDir, err)
	}
	if need := size + 2*wal.SegmentSizeBytes + startRoom; space.Free < need {
		return fmt.Errorf("restore to %s: %w: its file system has %d MiB free, and %d MiB are needed: free some, or name another directory",
			o.DataDir, ErrNoSpace, space.Free>>20, (need+1<<20-1)>>20)
	}
	return nil
}

// restore has etcd restore into a directory. etcd would end the process on some errors;
// here it panics instead, and restore returns an error.
// https://github.com/etcd-io/etcd/pull/10597
func (o RestoreOptions) restore(dir string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("etcd: %v", v)
		}
	}()
	logger := zap.NewNop().WithOptions(zap.WithFatalHook(zapcore.WriteThenPanic))
	return snapshot.NewV3(logger).Restore(snapshot.RestoreConfig{
		SnapshotPath: o.File, OutputDataDir: dir,
		Name: o.Name, PeerURLs: o.peerURLs(), InitialCluster: strings.Join(texts(o.Initial), ","), InitialClusterToken: o.Token,
		RevisionBump: revisionBump, MarkCompacted: true,
	})
}

func (o RestoreOptions) peerURLs() []string {
	var out []string
	for _, p := range o.Initial {
		if p.Name == o.Name {
			out = append(out, p.URL)
		}
	}
	return out
}

// amend changes the database of a member that is not started yet.
func amend(file string, changes ...func(*bolt.Tx) error) error {
	db, err := bolt.Open(file, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, change := range changes {
			if err := change(tx); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, db.Close())
}

// withoutUsers removes the users and passwords that a snapshot of another etcd may
// contain. An embedded member is protected by its socket, or TLS, instead.
func withoutUsers(tx *bolt.Tx) error {
	auth := tx.Bucket(etcdschema.Auth.Name())
	if auth == nil || auth.Get(etcdschema.AuthEnabledKeyName) == nil {
		return nil
	}
	return auth.Put(etcdschema.AuthEnabledKeyName, []byte{0})
}

// withoutLeases makes all leases expire as soon as the store starts, so that etcd
// deletes their keys. The owners of the leases were processes of another store: the old
// leader's lease would otherwise keep a new leader from its jobs.
func withoutLeases(tx *bolt.Tx) error {
	leases := tx.Bucket(etcdschema.Lease.Name())
	if leases == nil {
		return nil
	}
	expiring := map[string][]byte{} // a bucket must not change while it is walked
	if err := leases.ForEach(func(key, value []byte) error {
		var lease leasepb.Lease
		if err := proto.Unmarshal(value, &lease); err != nil {
			return fmt.Errorf("lease %x: %w", key, err)
		}
		lease.TTL, lease.RemainingTTL = 1, 0 // the shortest
		value, err := proto.Marshal(&lease)
		expiring[string(key)] = value
		return err
	}); err != nil {
		return err
	}
	for key, value := range expiring {
		if err := leases.Put([]byte(key), value); err != nil {
			return err
		}
	}
	return nil
}

// syncDir puts the names in a directory on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil // the directory may be writable but not readable
	}
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
