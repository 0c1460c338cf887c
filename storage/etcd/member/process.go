package member

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A process is one run of the child's command, seen from the parent.
type process struct {
	cmd *exec.Cmd
	// lifeline is the child's standard input. Closing it, as the end of this
	// process does, tells the child to end.
	lifeline *os.File
	// reports is the pipe on which the child reports its start; said decodes it.
	reports *os.File
	said    *json.Decoder
	words   *lastWords
	// ready is since when the process is ready; nil before.
	ready atomic.Pointer[time.Time]
	// silent is since when the process has not answered, nil while it does.
	silent atomic.Pointer[time.Time]
	// condemned is why the parent killed it, nil if it did not.
	condemned atomic.Pointer[string]

	// done is closed when the process has ended; then err and ended are set.
	done  chan struct{}
	err   error
	ended time.Time
}

// startProcess executes the command and hands it its orders.
func startProcess(opts ChildOptions, o orders) (*process, error) {
	executable, name := opts.Executable, opts.Executable
	if executable == "" {
		name = os.Args[0]
		var err error
		if executable, err = runningExecutable(); err != nil {
			return nil, fmt.Errorf("start store process: %w", err)
		}
	}
	stdin, lifeline, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start store process: %w", err)
	}
	defer stdin.Close()
	reports, reportEnd, err := os.Pipe()
	if err != nil {
		lifeline.Close()
		return nil, fmt.Errorf("start store process: %w", err)
	}
	defer reportEnd.Close()

	p := &process{lifeline: lifeline, reports: reports, said: json.NewDecoder(reports), words: &lastWords{out: opts.Stderr}, done: make(chan struct{})}
	p.cmd = exec.Command(executable, opts.Args...)
	p.cmd.Args[0] = name
	p.cmd.Env = append(os.Environ(), opts.Env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, p.words, p.words
	p.cmd.ExtraFiles = []*os.File{reportEnd} // becomes reportFD in the child
	p.cmd.WaitDelay = time.Second
	// A group of its own: a Ctrl-C in a terminal goes to the whole group.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		lifeline.Close()
		reports.Close()
		return nil, fmt.Errorf("start store process: %w", err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
		p.ended = time.Now()
	}()
	// A line this short fits the pipe's buffer. awaitReport notices a child that is gone
	// and does not read it.
	_ = json.NewEncoder(lifeline).Encode(o)
	return p, nil
}

// runningExecutable returns the path of the running binary, also if its file was
// replaced or removed since. Parent and child must have the same version.
func runningExecutable() (string, error) {
	const running = "/proc/self/exe"
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	mine, err := os.Stat(running)
	if err != nil {
		return path, nil // no /proc here
	}
	if file, err := os.Stat(path); err != nil || !os.SameFile(mine, file) {
		return running, nil
	}
	return path, nil
}

// awaitReport waits for the child's next report; nil means that the child is ready. A
// child that has failed sends no further report.
func (p *process) awaitReport(ctx context.Context) (*waiting, error) {
	stop := context.AfterFunc(ctx, func() { p.reports.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var r report
	err := p.said.Decode(&r)
	if err == nil && r.Waiting != nil {
		return r.Waiting, nil
	}
	defer p.reports.Close()
	switch {
	case err == nil && r.Ready:
		now := time.Now()
		p.ready.Store(&now)
		return nil, nil
	case err == nil:
		return nil, &childError{words: r.Error, is: kinds[r.Kind]}
	case ctx.Err() != nil:
		return nil, fmt.Errorf("start store process: %w", context.Cause(ctx))
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("start store process: read its report: %w", err)
	}
	// The child has closed its end of the pipe without a report: it is ending.
	p.stop(childStopTimeout)
	cause := p.cause()
	if trace, ok := p.words.panicked(); ok {
		cause = &panicError{value: cause, stack: trace}
	}
	return nil, fmt.Errorf("store process ended before it was ready: %w", cause)
}

// stop tells the process to end, waits for that, and kills it after the limit.
func (p *process) stop(limit time.Duration) (killed bool) {
	p.lifeline.Close()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return false
	case <-timer.C:
		// It fails only if the process has ended just now.
		_ = p.cmd.Process.Kill()
		<-p.done
		return true
	}
}

// condemn kills the process, and records why.
func (p *process) condemn(reason string) {
	p.condemned.Store(&reason)
	// It fails only if the process has ended just now.
	_ = p.cmd.Process.Kill()
}

// running says whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// readyFor returns how long an ended process was ready.
func (p *process) readyFor() time.Duration {
	if ready := p.ready.Load(); ready != nil {
		return p.ended.Sub(*ready)
	}
	return 0
}

// cause is why an ended process ended: its exit status, and its last words unless it was
// killed.
func (p *process) cause() error {
	if reason := p.condemned.Load(); reason != nil {
		return errors.New(*reason)
	}
	err := cmp.Or(p.err, errors.New("exit status 0"))
	var exit *exec.ExitError
	if errors.As(err, &exit) && !exit.Exited() {
		return err // it was killed, so its last words do not explain that
	}
	if words := p.words.String(); words != "" {
		return fmt.Errorf("%w: %s", err, words)
	}
	return err
}

// A childError is an error with the text of the child's report.
type childError struct {
	words string
	is    error
}

// Error implements error.
func (e *childError) Error() string { return e.words }

// Unwrap returns the sentinel that the child's report names, if any.
func (e *childError) Unwrap() error { return e.is }

// maxWords bounds how much of a line lastWords keeps, and maxTrace how much of the trace
// after a panic.
const (
	maxWords = 1024
	maxTrace = 16 << 10
)

// lastWords passes on what a process writes to its standard error. It keeps the line
// that best says why the process ended: the first of a Go panic, with its trace, or
// else the last line.
type lastWords struct {
	out io.Writer

	mu      sync.Mutex
	line    []byte // the line being written
	last    string
	isPanic bool
	trace   []byte
}

// Write implements io.Writer. It never fails: if nobody reads our standard error, the
// child must go on.
func (w *lastWords) Write(b []byte) (int, error) {
	_, _ = w.out.Write(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	for rest := b; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		w.line = append(w.line, line[:min(len(line), maxWords-len(w.line))]...)
		if whole {
			w.endLine()
		}
		rest = after
	}
	return len(b), nil
}

// endLine ends the current line. It is called with mu held.
func (w *lastWords) endLine() {
	line := bytes.TrimSpace(w.line)
	w.line = w.line[:0]
	switch {
	case len(line) == 0:
		return
	case w.isPanic:
		w.trace = append(append(w.trace, line[:min(len(line), maxTrace-len(w.trace))]...), '\n')
		w.trace = w.trace[:min(len(w.trace), maxTrace)]
		return
	}
	w.last = string(line)
	w.isPanic = bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: "))
}

// String returns the kept line.
func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// panicked returns the trace of the panic that ended the process, if one did.
func (w *lastWords) panicked() (trace string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.trace), w.isPanic
}
