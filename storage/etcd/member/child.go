package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// ChildOptions say how to start the child process. Only DataDir is required.
type ChildOptions struct {
	// DataDir is as in Options.
	DataDir string
	// Executable and Args are a command that calls RunChild; it needs no flags, but may
	// have some. An empty Executable is the running binary, even if its file has been
	// replaced meanwhile.
	Executable string
	Args       []string
	// Env is added to the environment of this process.
	Env []string
	// RuntimeDir holds the directory of the socket. If it is empty, Start takes the first
	// of these that works: UserRuntimeDir, the directory for temporary files, /tmp.
	RuntimeDir string
	// UserRuntimeDir is the runtime directory of the user; it may be empty.
	UserRuntimeDir string
	// Quota is as in Options.
	Quota int64
	// Founding is as in Options, for the first process only: a later one that finds the
	// directory empty reports that.
	Founding Founding
	// Cluster is as in Options.
	Cluster *Cluster
	// Upkeep says how Run maintains the store.
	Upkeep upkeep.Policy
	// Stderr gets what the child writes to its standard error, with its log. nil is the
	// standard error of this process.
	Stderr io.Writer
	// LogLevels say what the child logs, in words of the function that it gives to RunChild.
	LogLevels string
	// Logger gets the messages of the parent about the child; nil discards them.
	Logger *slog.Logger

	// StopTimeout is how long a child may take to end before it is killed; 0 is 5
	// seconds.
	StopTimeout time.Duration
	// A child that dies is restarted after BackoffMin; 0 is 100 ms. Each further death
	// doubles the time, up to BackoffMax; 0 is 5 s. After a child that served for
	// ResetAfter the time starts over; 0 is 1 s.
	BackoffMin, BackoffMax, ResetAfter time.Duration
	// StartTimeout is how long a child may take to be ready before it is killed; 0 is 5
	// minutes.
	StartTimeout time.Duration
	// The parent probes a running child every ProbeInterval; 0 is 1 s. While no call
	// waits for the child, it probes only at every tenth interval. A probe fails after
	// ProbeTimeout; 0 is 5 s. After ProbeMisses failures in a row, 0 is 3, the child is
	// killed and restarted.
	ProbeInterval, ProbeTimeout time.Duration
	ProbeMisses                 int
}

// A Child keeps an etcd member running in a child process, and maintains it. Call Start,
// then Run, or Close instead of Run. The other methods may be called at any time after
// Start. It is a prometheus.Collector.
type Child struct {
	opts   ChildOptions
	socket string           // set by Start, the same for all processes
	client *clientv3.Client // for probes and upkeep
	keeper *upkeep.Keeper
	roster *cluster.Roster
	peers  *peers // nil in a cluster of one
	// current is the newest process that is ready, or waits for other members; nil before
	// the first and after the end.
	current atomic.Pointer[process]
	// outage is why no process is ready, nil while one is.
	outage   atomic.Pointer[outage]
	restarts atomic.Int64

	logLevels logLevels
	calls     atomic.Int64 // of clients of Dial, under way
}

// An outage is a time in which no process is ready.
type outage struct {
	since time.Time
	cause error
	// waits says that a process runs and waits for other members.
	waits bool
}

// NewChild returns a Child for a data directory. It starts nothing.
func NewChild(opts ChildOptions) (*Child, error) {
	if opts.DataDir == "" {
		return nil, errors.New("data directory: not set: name a directory this user can write")
	}
	abs, err := filepath.Abs(opts.DataDir)
	if err != nil {
		return nil, err
	}
	opts.DataDir = abs
	opts.StopTimeout = cmp.Or(opts.StopTimeout, 5*time.Second)
	opts.BackoffMin = cmp.Or(opts.BackoffMin, 100*time.Millisecond)
	opts.BackoffMax = cmp.Or(opts.BackoffMax, 5*time.Second)
	opts.ResetAfter = cmp.Or(opts.ResetAfter, time.Second)
	opts.StartTimeout = cmp.Or(opts.StartTimeout, 5*time.Minute)
	opts.ProbeInterval = cmp.Or(opts.ProbeInterval, time.Second)
	opts.ProbeTimeout = cmp.Or(opts.ProbeTimeout, 5*time.Second)
	opts.ProbeMisses = cmp.Or(opts.ProbeMisses, 3)
	if opts.Stderr == nil {
		opts.Stderr = os.Stderr
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Child{opts: opts}
	c.logLevels.text = opts.LogLevels
	return c, nil
}

// Start starts the first process, and returns its endpoint when it is ready. The
// endpoint stays the same over restarts. If the child is one of several members, Start
// returns as soon as the child waits for the others; Ready then says so. If the process
// cannot become ready, or ctx ends before, Start leaves nothing behind and returns the
// child's error, with the sentinels of the function Start. After Start has returned, the
// end of ctx has no effect.
func (c *Child) Start(ctx context.Context) (endpoint string, err error) {
	dir, err := makeSocketDir(socketBases(c.opts.RuntimeDir, c.opts.UserRuntimeDir))
	if err != nil {
		return "", err
	}
	c.socket = filepath.Join(dir, socketName)
	if err := c.prepare(); err != nil {
		removeSocketDir(dir)
		return "", err
	}
	if err := c.launchFirst(ctx); err != nil {
		c.closeClients()
		removeSocketDir(dir)
		return "", err
	}
	c.opts.Founding = FoundNever
	if c.peers != nil && c.outage.Load() == nil {
		c.peers.poll(ctx)
	}
	return c.endpoint(), nil
}

func (c *Child) endpoint() string { return "unix://" + c.socket }

// prepare makes the clients, the keeper and the roster that Run needs.
func (c *Child) prepare() (err error) {
	if c.client, err = c.dial(c.opts.Logger); err != nil {
		return err
	}
	if o := c.opts.Cluster; o != nil {
		c.roster = cluster.New(o.dialer(c.opts.Logger), append([]string{o.ClientURL}, o.Join...)...)
		c.peers = newPeers(o, c.roster, c.opts.Logger)
	} else {
		c.roster = cluster.New(func(string) (*clientv3.Client, error) { return c.dial(c.opts.Logger) }, c.endpoint())
	}
	target := upkeep.Target{Client: c.client, Endpoint: c.endpoint(), DataDir: c.opts.DataDir, Roster: c.roster}
	c.keeper, err = upkeep.New(target, c.opts.Upkeep, c.opts.Logger)
	return err
}

// Keeper returns the keeper that maintains the store while Run runs.
func (c *Child) Keeper() *upkeep.Keeper { return c.keeper }

// Roster returns the roster with which to look at the members of the store's cluster,
// and to change them.
func (c *Child) Roster() *cluster.Roster { return c.roster }

// Run restarts the child process whenever it ends or stops answering, and maintains the
// store, until ctx ends. It then stops the process, waits for it and returns nil. Call
// it once, after Start. Users of the endpoint should stop before ctx ends.
func (c *Child) Run(ctx context.Context) error {
	defer c.Close()
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { _ = c.keeper.Run(ctx) }) // always nil
	others.Go(func() { c.probe(ctx) })
	if c.peers != nil {
		others.Go(func() { c.peers.run(ctx) })
	}
	backoff := retry.NewExact(c.opts.BackoffMin, c.opts.BackoffMax)
	for {
		p := c.current.Load()
		cause := c.awaitEnd(ctx, p)
		if ctx.Err() != nil {
			return nil
		}
		if p.readyFor() >= c.opts.ResetAfter {
			backoff.Reset()
		}
		c.outage.Store(&outage{since: p.Ended(), cause: cause})
		wait := backoff.Next()
		c.opts.Logger.Error("store process ended", "pid", p.PID(), "err", cause, "restartIn", wait)
		if !c.relaunch(ctx, wait, backoff) {
			return nil
		}
	}
}

// awaitEnd waits until the process or ctx has ended, and returns why. It passes on the
// reports of a process that waits for other members.
func (c *Child) awaitEnd(ctx context.Context, p *process) error {
	for p.ready.Load() == nil && p.Running() {
		limited, cancel := context.WithTimeoutCause(ctx, waitingSilence, fmt.Errorf("it said nothing for %s", waitingSilence))
		w, err := p.awaitReport(limited)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			c.end(p)
			return c.diagnose(true, err)
		}
		c.handleReport(p, w)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.Done():
		return p.Cause()
	}
}

// diagnose adds to the error of a process that did not become ready what is wrong with
// its data.
func (c *Child) diagnose(existed bool, err error) error {
	var told *childError
	if errors.As(err, &told) { // then the process has diagnosed it
		return err
	}
	return explainClusterError(diagnose(c.opts.DataDir, existed, err), Options{Cluster: c.opts.Cluster})
}

// handleReport handles a report: the process is ready (nil), or waits for other members. It
// makes the process current.
func (c *Child) handleReport(p *process, w *waiting) {
	if w == nil {
		c.adopt(p)
		c.outage.Store(nil)
		c.opts.Logger.Info("store process is ready", "pid", p.PID(), "socket", c.socket)
		return
	}
	now := &outage{since: time.Now(), cause: errors.New(w.For), waits: true}
	last := c.outage.Load()
	if last == nil || !last.waits || last.cause.Error() != w.For {
		c.opts.Logger.Info("store process is not ready yet", "pid", p.PID(), "because", w.For)
	} else {
		now.since = last.since
	}
	c.outage.Store(now)
	c.adopt(p)
	c.roster.Learn(w.Others...)
}

// retold is how often the log repeats that a store process cannot be started, while the
// reason stays the same.
const retold = time.Minute

// relaunch waits, and starts processes until one is ready. It returns false if ctx ends.
func (c *Child) relaunch(ctx context.Context, wait time.Duration, backoff *retry.Backoff) bool {
	begun := c.outage.Load().since
	var last string
	var logged time.Time
	for {
		if retry.Sleep(ctx, wait) != nil {
			return false
		}
		c.restarts.Add(1)
		err := c.launch(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		c.outage.Store(&outage{since: begun, cause: err})
		level := slog.LevelDebug
		if err.Error() != last || time.Since(logged) >= retold {
			level, last, logged = slog.LevelError, err.Error(), time.Now()
		}
		wait = backoff.Next()
		c.opts.Logger.Log(ctx, level, "store process cannot be started, and is tried again", "err", err, "restartIn", wait)
	}
}

// Close ends the child process and removes its socket. Use it for a Child that was
// started and never run; after Run it does nothing.
func (c *Child) Close() error {
	p := c.current.Swap(nil)
	if p == nil {
		return nil
	}
	c.closeClients()
	c.end(p)
	removeSocketDir(filepath.Dir(c.socket))
	return nil
}

// closeClients closes the clients of the keeper and the roster.
func (c *Child) closeClients() {
	_ = c.client.Close() // the error is the end of its own context
	_ = c.roster.Close() // always nil
}

// launch starts a process and makes it current when it is ready, or waits for other
// members.
func (c *Child) launch(ctx context.Context) error {
	existed := hasData(c.opts.DataDir)
	p, err := startProcess(c.opts, orders{
		DataDir: c.opts.DataDir, Socket: c.socket, Quota: c.opts.Quota, Founding: c.opts.Founding, Cluster: c.opts.Cluster, Parent: self(),
		laterOrders: laterOrders{LogLevels: c.logLevels.present()},
	})
	if err != nil {
		return err
	}
	slow := time.AfterFunc(10*time.Second, func() {
		c.opts.Logger.Warn("store process is not ready yet: is another etcd using the data directory?", "pid", p.PID(), "dir", c.opts.DataDir)
	})
	limited, cancel := context.WithTimeoutCause(ctx, c.opts.StartTimeout, fmt.Errorf("it was not ready within %s", c.opts.StartTimeout))
	w, err := p.awaitReport(limited)
	cancel()
	slow.Stop()
	if err != nil {
		c.end(p)
		return c.diagnose(existed, err)
	}
	c.handleReport(p, w)
	return nil
}

// firstTries is how often the first process is started if somebody kills it, or if etcd
// panics without a hint at damaged data.
const firstTries = 3

// launchFirst launches the first process, and returns its error. If somebody killed the
// process it tries again, as that says nothing about the store.
func (c *Child) launchFirst(ctx context.Context) (err error) {
	for range firstTries {
		var exit *exec.ExitError
		var unexplained *unexplainedError
		switch err = c.launch(ctx); {
		case errors.As(err, &unexplained):
			c.opts.Logger.Warn("store process ended before it was ready, it is started again", "err", unexplained)
		case err != nil && errors.As(err, &exit) && !exit.Exited():
			c.opts.Logger.Warn("store process was killed before it was ready", "err", err)
		default:
			return err
		}
	}
	return err
}

// end stops a process, and kills it if it takes too long.
func (c *Child) end(p *process) {
	if killed := p.Stop(c.opts.StopTimeout); killed {
		c.opts.Logger.Warn("store process did not stop in time and was killed; nothing acknowledged is lost", "pid", p.PID())
	}
}
