package member

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// ChildOptions say how to start the child process. The zero value of each
// field but DataDir is of use.
type ChildOptions struct {
	// DataDir is as in Options.
	DataDir string
	// Executable and Args are a command that calls RunChild; it needs no
	// flags, but may have some. An empty Executable is the running one, even
	// if its file has been replaced meanwhile.
	Executable string
	Args       []string
	// Env is added to the environment of this process.
	Env []string
	// RuntimeDir is where the directory of the socket is made. Empty means the
	// first of XDG_RUNTIME_DIR, the directory for temporary files and /tmp
	// that will do.
	RuntimeDir string
	// Stderr takes what the child writes to its standard error, its log among
	// it. Nil means that of this process.
	Stderr io.Writer
	// Logger takes what the parent has to say of the child. Nil discards it.
	Logger *slog.Logger

	// StopTimeout is how long a child may take to end before it is killed;
	// zero means 5 seconds.
	StopTimeout time.Duration
	// A child that dies is started again after BackoffMin, zero means 100 ms,
	// which doubles with each further death up to BackoffMax, zero means 5 s,
	// and starts over after a child that served for ResetAfter, zero means 1 s.
	BackoffMin, BackoffMax, ResetAfter time.Duration
}

// A Child keeps an etcd member running in a child process. Call Start, then
// Run, or Close instead of Run. Healthy may be called at any time.
type Child struct {
	opts   ChildOptions
	socket string // set by Start, the same for all processes
	// current is the process that was last ready; nil before the first and
	// after the end.
	current atomic.Pointer[process]
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
	if opts.Stderr == nil {
		opts.Stderr = os.Stderr
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Child{opts: opts}, nil
}

// Start starts the first process and returns, when it is ready, the endpoint
// for Dial; the endpoint stays the same over restarts. If the process cannot
// become ready, or ctx ends before it is, Start leaves nothing behind and
// returns why, in the child's own words; ErrInUse if the data directory is
// another server's. The end of ctx does not matter after that.
func (c *Child) Start(ctx context.Context) (endpoint string, err error) {
	dir, err := makeSocketDir(socketBases(c.opts.RuntimeDir))
	if err != nil {
		return "", err
	}
	c.socket = filepath.Join(dir, socketName)
	if err := c.launch(ctx); err != nil {
		removeSocketDir(dir)
		return "", err
	}
	return "unix://" + c.socket, nil
}

// Healthy tells whether there is a process that is ready.
func (c *Child) Healthy() bool {
	p := c.current.Load()
	return p != nil && p.running()
}

// Run starts the child process again whenever it ends, until ctx ends; then it
// stops the process, waits for it and returns nil. It is called once, after
// Start. Whoever uses the endpoint should be done with it when ctx ends.
func (c *Child) Run(ctx context.Context) error {
	defer c.Close()
	backoff := c.opts.BackoffMin
	for {
		p := c.current.Load()
		select {
		case <-ctx.Done():
			return nil
		case <-p.done:
		}
		if p.served() >= c.opts.ResetAfter {
			backoff = c.opts.BackoffMin
		}
		cause := p.cause()
		for {
			c.opts.Logger.Error("store process ended", "pid", p.pid(), "err", cause, "restartIn", backoff)
			if !sleep(ctx, backoff) {
				return nil
			}
			backoff = min(2*backoff, c.opts.BackoffMax)
			if cause = c.launch(ctx); cause == nil {
				break
			}
			if ctx.Err() != nil {
				return nil
			}
		}
	}
}

// Close ends the child process and removes its socket. It is for a Child that
// was started and never run; after Run it does nothing.
func (c *Child) Close() error {
	p := c.current.Swap(nil)
	if p == nil {
		return nil
	}
	c.end(p)
	removeSocketDir(filepath.Dir(c.socket))
	return nil
}

// launch starts a process and makes it current when it is ready.
func (c *Child) launch(ctx context.Context) error {
	p, err := startProcess(c.opts, orders{DataDir: c.opts.DataDir, Socket: c.socket, Parent: self()})
	if err != nil {
		return err
	}
	slow := time.AfterFunc(10*time.Second, func() {
		c.opts.Logger.Warn("store process is not ready yet: is another etcd using the data directory?", "pid", p.pid(), "dir", c.opts.DataDir)
	})
	err = p.awaitReady(ctx)
	slow.Stop()
	if err != nil {
		c.end(p)
		return err
	}
	c.current.Store(p)
	c.opts.Logger.Info("store process is ready", "pid", p.pid(), "socket", c.socket)
	return nil
}

// end stops a process, by force if it takes too long.
func (c *Child) end(p *process) {
	if killed := p.stop(c.opts.StopTimeout); killed {
		c.opts.Logger.Warn("store process did not stop in time and was killed; nothing acknowledged is lost", "pid", p.pid())
	}
}

// sleep waits, and returns false if ctx ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
