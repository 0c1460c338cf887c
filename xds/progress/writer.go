package progress

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pulse"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
)

const (
	// maxWrites bounds the statuses that one look writes.
	maxWrites = 4 * etcd.SideBatch
	// settleTime is how long a change may take before its progress is written. Most changes
	// take less: their only status says that they have arrived.
	settleTime = 3 * time.Second
	// repeatInterval is how often the progress of a slow change is written again.
	repeatInterval = 5 * time.Second
	// forgetAfter is how long a proxy is known after it left.
	forgetAfter = 24 * time.Hour
	// leaveTime is how long no proxy must have used an object before this is written:
	// proxies that restart, or move to another server, change no status.
	leaveTime = time.Minute
	// calmTime is how long verdicts that change again and again may stay unwritten.
	calmTime = 30 * time.Second
)

// Sink stores the statuses of objects. An *etcd.Store implements it.
type Sink interface {
	// WriteStatuses stores and deletes statuses. After an error some of them may be stored.
	WriteStatuses(context.Context, []status.Write) error
}

// Board has what servers leave for each other. An *etcd.Store implements it.
type Board interface {
	// WriteSide makes at most etcd.SideBatch changes at once. It returns false, and changes
	// nothing, where a condition does not hold.
	WriteSide(context.Context, []etcd.SideWrite) (bool, error)
}

// Writer writes the statuses of objects. It runs on one server at a time.
type Writer struct {
	Statuses *statuses.Cache
	// Verdicts returns the present verdicts, nil before the first were derived.
	Verdicts func() *index.Index
	Logger   *slog.Logger
}

// Run writes statuses to a sink, and which proxies have gone to a board, until ctx ends, or until
// another server leads: then both return storage.ErrReadOnly.
func (w *Writer) Run(ctx context.Context, to Sink, board Board) error {
	t := newStatusQueue()
	for {
		if err := w.writeDue(ctx, to, board, t); err != nil {
			if ctx.Err() != nil || errors.Is(err, storage.ErrReadOnly) {
				return nil
			}
			w.Logger.Warn("statuses of objects were not written, it will be tried again", "err", err)
		}
		if retry.Sleep(ctx, pulse.Until(interval)) != nil {
			return nil
		}
	}
}

// writeDue writes the statuses that are due now.
func (w *Writer) writeDue(ctx context.Context, to Sink, board Board, t *statusQueue) error {
	facts, _ := w.Statuses.Reports()
	snapshot, verdicts := w.Statuses.Snapshot(), w.Verdicts()
	if facts == nil || snapshot == nil || verdicts == nil {
		return nil
	}
	now := time.Now()
	t.follow(inputsOf(snapshot, facts, verdicts), now)
	if err := to.WriteStatuses(ctx, t.due(now)); err != nil {
		return err
	}
	if writes := expireProxies(facts, now); len(writes) > 0 {
		if _, err := board.WriteSide(ctx, writes); err != nil {
			return err
		}
	}
	return nil
}

// expireProxies returns the writes that forget proxies which left long ago, and those that
// mark the proxies of a stopped server as gone.
func expireProxies(facts *statuses.Reports, now time.Time) []etcd.SideWrite {
	var writes []etcd.SideWrite
	live := map[string]bool{"": true} // by server; a proxy without one needs none
	for replica := range facts.Replicas.Values() {
		live[replica.ID] = true
	}
	for p := range facts.Proxies.Values() {
		if len(writes) == etcd.SideBatch {
			break // the rest at the next look
		}
		var value []byte
		switch {
		case !live[p.Replica]:
			var err error
			if value, err = etcd.EncodeProxy(parted(p, now, false)); err != nil {
				continue // a node id that cannot be encoded was never stored
			}
		case p.Replica != "" || now.Sub(p.Seen) <= forgetAfter:
			continue
		}
		writes = append(writes, etcd.SideWrite{Key: etcd.ProxyKey(p.Node), Value: value, Revision: p.Revision})
	}
	return writes
}
