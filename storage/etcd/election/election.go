package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/retry"
)

// DefaultTTL is how long after the death of a leader another takes over. A shorter time
// than MinTTL would take a slow moment for a death.
const (
	DefaultTTL = 15 * time.Second
	MinTTL     = 3 * time.Second
)

// The pauses between attempts to take part start at pauseMin, double each time, and end
// at pauseMax.
const (
	pauseMin = 100 * time.Millisecond
	pauseMax = 5 * time.Second
)

// Options of an election.
type Options struct {
	// Name names the election, the same for all candidates; it is one part of a key.
	Name string
	// ID tells people which candidate this is.
	ID string
	// TTL is how long after the death of a leader another takes over. It is in whole
	// seconds, at least MinTTL, and three times as long as etcd takes to elect a leader
	// of its own. 0 is DefaultTTL.
	TTL time.Duration
	// Logger gets the beginning and end of terms; nil discards them.
	Logger *slog.Logger
}

// An Election is one candidate in one election. It is a prometheus.Collector. Leader may
// be called by several goroutines, also while Run runs.
type Election struct {
	client  *clientv3.Client
	o       Options
	metrics *metrics

	running atomic.Bool
	leading atomic.Int64 // the term of this process, 0 where it has none
	terms   atomic.Int64
}

// New returns a candidate that waits for Run. It does not talk to etcd. The caller
// closes the client, after Run has ended.
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

// A Job is the work of the leader. Its context ends when leadership is or may be lost,
// with ErrNotLeader as the cause, or when Run's context does. The job must then return
// soon: the process does not campaign again before it has. Writes through its Leader are
// safe in any case.
type Job func(ctx context.Context, leader *Leader) error

// Run takes part until ctx ends, then resigns, so that another takes over at once, and
// returns nil. It runs the job once in each term; when the job returns, the term ends
// and Run takes part again. Run logs errors and retries, with pauses that grow up to 5
// seconds. It must not be called twice at the same time.
func (e *Election) Run(ctx context.Context, job Job) error {
	if !e.running.CompareAndSwap(false, true) {
		return fmt.Errorf("election %s: it runs already", e.o.Name)
	}
	defer e.running.Store(false)
	var failed string
	backoff := retry.New(pauseMin, pauseMax)
	for {
		begun := time.Now()
		err := e.campaignOnce(ctx, job)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(begun) > pauseMax {
			failed = ""
			backoff.Reset()
		}
		if err != nil {
			level := slog.LevelDebug
			if err.Error() != failed {
				level, failed = slog.LevelWarn, err.Error()
			}
			e.o.Logger.Log(ctx, level, "no part is taken in the election; it will be tried again", "err", err)
		}
		if backoff.Wait(ctx) != nil {
			return nil
		}
	}
}

// campaignOnce campaigns once, and leads for one term if it wins. The error is why there was
// no term, or the error of the job.
func (e *Election) campaignOnce(ctx context.Context, job Job) error {
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
