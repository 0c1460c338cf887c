package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// ErrDamaged is the error of data that etcd cannot read.
var ErrDamaged = errors.New("the data is damaged")

// A panicError is a panic of etcd while it starts.
type panicError struct {
	value error
	stack string
}

// Error implements error.
func (e *panicError) Error() string { return e.value.Error() }

// Unwrap returns the value of the panic.
func (e *panicError) Unwrap() error { return e.value }

// startRecovering calls embed.StartEtcd, and returns an error if that panics on
// unexpected data, or faults on a database that ends too early.
func startRecovering(cfg *embed.Config) (etcd *embed.Etcd, err error) {
	debug.SetPanicOnFault(true)
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: fmt.Errorf("panic: %v", v), stack: string(debug.Stack())}
		}
	}()
	return embed.StartEtcd(cfg)
}

// A damageSign says which part of the data is damaged.
type damageSign struct {
	what, path string
	texts      []string // of etcd's errors
	places     []string // in the trace of a panic
}

func damageSigns(dataDir string) []damageSign {
	return []damageSign{
		{
			"database", dbFile(dataDir),
			[]string{"failed to open database", "invalid database"},
			[]string{"v3 backend", "go.etcd.io/bbolt", "storage/backend.", "storage/mvcc."},
		},
		// If the log lacks its first record, the start itself panics.
		{
			"log", walDir(dataDir),
			[]string{"walpb", "wal: ", "crc mismatch", "Was the raft log corrupted, truncated, or lost?", "cannot parse invalid wire-format"},
			[]string{"storage/wal.", "etcdserver.bootstrap("},
		},
	}
}

// diagnose returns an error that names what is damaged and what to do, if damage to
// earlier data is why etcd did not start. It recognises damage by etcd's error text, and
// by where in etcd a panic was.
func diagnose(dataDir string, existed bool, err error) error {
	if err == nil || !existed || errors.Is(err, ErrDamaged) {
		return err
	}
	text := err.Error()
	var panicked *panicError
	if errors.As(err, &panicked) {
		text += panicked.stack
	}
	for _, d := range damageSigns(dataDir) {
		for _, sign := range append(d.texts, d.places...) {
			if strings.Contains(text, sign) {
				return damageError(dataDir, d.what, d.path, err)
			}
		}
	}
	if panicked != nil && !lacksSpace(err) {
		return damageError(dataDir, "data", etcdDir(dataDir), &unexplainedError{err})
	}
	return err
}

// An unexplainedError is a panic that shows no relation to the data. It counts as damage
// if it comes again.
type unexplainedError struct{ error }

// Unwrap returns the panic.
func (e *unexplainedError) Unwrap() error { return e.error }

// explainClusterError rewrites an error of etcd about its cluster in our words.
func explainClusterError(err error, opts Options) error {
	switch {
	case err == nil || opts.Cluster == nil:
		return err
	case errors.Is(err, ErrDamaged):
		return opts.Cluster.replaceable(err)
	case strings.Contains(err.Error(), "has already been bootstrapped"):
		return opts.Cluster.alreadyUsedError(fmt.Sprintf("the others know a member %s at %s that has run", opts.Cluster.Name, opts.Cluster.PeerURL))
	}
	return err
}

// damageError returns the error of a damaged part of a data directory.
func damageError(dataDir, what, path string, cause error) error {
	return fmt.Errorf("%w: etcd cannot use its %s, %s: %w: move %s away, and make it anew of the latest snapshot: "+
		"portolan store restore FILE --data-dir %[5]s (a member of several that still serve is replaced instead: portolan store member remove, and add)",
		ErrDamaged, what, path, cause, dataDir)
}

// behindAfter is how long a log may take to catch up with its database once the member
// leads its cluster. Catching up takes one write to the disk.
const behindAfter = 5 * time.Second

// awaitReady returns nil when etcd serves, or the reason why it never will. If a log
// has lost its end and is behind the database, etcd waits silently: it skips all
// commits until their numbers reach those that the database has seen. TestDamage shows it.
//
// One of several members gets from the others what its log lacks, and waits for them.
func awaitReady(ctx context.Context, etcd *embed.Etcd, opts Options) error {
	campaign(ctx, etcd)
	tick := time.NewTicker(startPoll)
	defer tick.Stop()
	var leads time.Time
	reported := time.Now()
	for {
		select {
		case <-etcd.Server.ReadyNotify():
			return nil
		case err := <-etcd.Err():
			if gone := removedElsewhere(ctx, etcd, opts); gone != nil {
				return gone
			}
			return fmt.Errorf("it failed before it was ready: %w", err)
		case <-etcd.Server.StopNotify():
			if err := removedElsewhere(ctx, etcd, opts); err != nil {
				return err
			}
			return errors.New("it stopped before it was ready")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		campaign(ctx, etcd)
		if opts.Cluster != nil {
			if time.Since(reported) >= waitingInterval {
				opts.waiting(waiting{For: waitingFor(ctx, etcd, opts.Cluster), Others: clientURLs(etcd)})
				reported = time.Now()
			}
			continue
		}
		if etcd.Server.Leader() == 0 {
			continue
		}
		if leads.IsZero() {
			leads = time.Now()
		}
		if time.Since(leads) < behindAfter {
			continue
		}
		applied, _ := schema.ReadConsistentIndex(etcd.Server.Backend().ReadTx())
		if committed := etcd.Server.CommittedIndex(); committed < applied {
			return damageError(opts.DataDir, "log", walDir(opts.DataDir), fmt.Errorf("it ends at entry %d and the database has entry %d", committed, applied))
		}
	}
}

// hasData says whether a data directory has been used.
func hasData(dataDir string) bool {
	_, err := os.Stat(etcdDir(dataDir) + "/member")
	return err == nil
}

// lacksSpace says whether an error, or the last words of a process, are about a full
// file system.
func lacksSpace(err error) bool {
	return errors.Is(err, ErrNoSpace) || errors.Is(err, syscall.ENOSPC) ||
		strings.Contains(err.Error(), syscall.ENOSPC.Error()) || strings.Contains(err.Error(), ErrNoSpace.Error())
}
