// Package childprocess runs a program as a child of this one, and says why it ended.
package childprocess

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// Command says what to run, and how to end it.
type Command struct {
	// Path is the program. If it is empty, it is the running binary, also if its file was
	// replaced or removed since: parent and child have the same version.
	Path string
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// Output gets what the child writes to its standard output and its standard error, in whole
	// lines.
	Output io.Writer
	// Stdin is the child's standard input, nil for none. ExtraFiles are its files from 3 on.
	Stdin      *os.File
	ExtraFiles []*os.File
	// End asks the child to end; nil sends SIGTERM.
	End func()
}

// Process is one run of a command.
type Process struct {
	cmd   *exec.Cmd
	words *lastWords
	ask   func()
	// condemned is why the parent killed it, nil if it did not.
	condemned atomic.Pointer[string]

	// done is closed when the process has ended; then err and ended are set.
	done  chan struct{}
	err   error
	ended time.Time
}

// Start starts a process. It is in a process group of its own, since a Ctrl-C in a terminal goes
// to the whole group.
func Start(c Command) (*Process, error) {
	path, name := c.Path, c.Path
	if path == "" {
		name = os.Args[0]
		var err error
		if path, err = runningExecutable(); err != nil {
			return nil, err
		}
	}
	p := &Process{words: &lastWords{out: c.Output}, ask: c.End, done: make(chan struct{})}
	p.cmd = exec.Command(path, c.Args...)
	p.cmd.Args[0] = name
	p.cmd.Env = append(os.Environ(), c.Env...)
	if p.cmd.Stdout, p.cmd.Stderr = p.words, p.words; c.Stdin != nil {
		p.cmd.Stdin = c.Stdin
	}
	p.cmd.ExtraFiles = c.ExtraFiles
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if p.ask == nil {
		p.ask = func() { _ = p.cmd.Process.Signal(syscall.SIGTERM) } // it fails only if the process has just ended
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
		p.words.flush()
		p.ended = time.Now()
	}()
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

// Stop asks the process to end, waits for that, and kills it after the limit.
func (p *Process) Stop(limit time.Duration) (killed bool) {
	p.ask()
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

// Condemn kills the process, and records why.
func (p *Process) Condemn(reason string) {
	p.condemned.Store(&reason)
	// It fails only if the process has ended just now.
	_ = p.cmd.Process.Kill()
}

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running says whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended returns when an ended process ended.
func (p *Process) Ended() time.Time { return p.ended }

// Cause returns why an ended process ended: its exit status, and its last words unless it was
// killed.
func (p *Process) Cause() error {
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

// Panicked returns the trace of the panic of Go that ended the process, if one did.
func (p *Process) Panicked() (trace string, ok bool) { return p.words.panicked() }
