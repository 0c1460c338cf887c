package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// DefaultTTL is how long after the death of a leader another takes over, and
// MinTTL the shortest that can be told from a slow moment.
const (
	DefaultTTL = 15 * time.Second
	MinTTL     = 3 * time.Second
)

// The pauses between attempts to take part, doubled from one to the other.
const (
	pauseMin = 100 * time.Millisecond
	pauseMax = 5 * time.Second
)

// Options of an election.
type Options struct {
	// Name is that of the election: the same for all who take part in it, one
	// part of a key.
	Name string
	// ID says to people who it is that takes part here.
	ID string
	// TTL is how long after the death of a leader another takes over: whole
	// seconds, at least MinTTL, and three times as long as etcd takes to elect a
	// leader of its own. 0 is DefaultTTL.
	TTL time.Duration
	// Logger is told of terms that begin and end; nil is nobody.
	Logger *slog.Logger
}

// An Election is one candidate in one election. It is a prometheus.Collector.
// Leader may be called by several goroutines, and while Run runs.
type Election struct {
	client  *clientv3.Client
	o       Options
	metrics *metrics

	running atomic.Bool
	leading atomic.Int64 // the term of this process, 0 where it has none
	terms   atomic.Int64
}

// New returns a candidate that waits for Run. It does not talk to etcd. The
// client stays the caller's to close, after Run has ended.
func New(client *clientv3.Client, o Options) (*Election, error) {
	o.TTL = cmp.Or(o.TTL, DefaultTTL)
	switch {
	case client == nil:
		return nil, errors.New("election: there is no client")
	case o.Name == "" || strings.Contains(o.Name, "/"):
		return nil, fmt.Errorf("election: the name %q is not one part of a key", o.Name)
	case o.ID == "":
		return nil, fmt.Errorf("election %s: Options.ID is empty", o.Name)
	case o.TTL < MinTTL || o.TTL%time.Second != 0:
		return nil, fmt.Errorf("election %s: a TTL of %s: it has to be whole seconds, at least %s", o.Name, o.TTL, MinTTL)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("election", o.Name)
	return &Election{client: client, o: o, metrics: newMetrics(o.Name)}, nil
}

// A Job is what the leader does. Its context ends when leadership is lost or may
// be, with ErrNotLeader as the cause, or when that of Run does; it then returns
// as soon as it can: no other attempt to lead begins before. What it writes
// through its Leader is safe in any case.
type Job func(ctx context.Context, leader *Leader) error

// Run takes part until ctx ends, then resigns, so that another takes over at
// once, and returns nil. It runs the job once in each term; a job that returns
// ends the term, and Run takes part again. What goes wrong is told to the log
// and tried again, with pauses that grow up to 5 seconds. It is called once at a
// time.
func (e *Election) Run(ctx context.Context, job Job) error {
	if !e.running.CompareAndSwap(false, true) {
		return fmt.Errorf("election %s: it runs already", e.o.Name)
	}
	defer e.running.Store(false)
	var failed string
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		begun := time.Now()
		err := e.takePart(ctx, job)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(begun) > pauseMax {
			pause, failed = pauseMin, ""
		}
		if err != nil {
			level := slog.LevelDebug
			if err.Error() != failed {
				level, failed = slog.LevelWarn, err.Error()
			}
			e.o.Logger.Log(ctx, level, "no part is taken in the election; it will be tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// takePart campaigns once, and leads for one term if that is won. The error is
// why there was none, or of the job.
func (e *Election) takePart(ctx context.Context, job Job) error {
	t, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer t.close(ctx)
	if err := t.campaign(ctx); err != nil {
		return err
	}
	return t.lead(ctx, job)
}
