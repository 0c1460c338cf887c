package processtest

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Options say what to run.
type Options struct {
	// Name is the name of the log file.
	Name string
	// Path is the program, and Args are its arguments.
	Path string
	Args []string
	// Env is added to the environment.
	Env []string
}

// Process is a program that a test started. It ends at the latest with the test, or with the
// test's own process.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // then: how
	// asked means that the test ended it.
	asked atomic.Bool
}

// Start runs a program. Its output goes to a file, which is kept if the test fails. If the
// program ends by itself, the test fails.
func Start(t testing.TB, o Options) *Process {
	t.Helper()
	log, err := os.CreateTemp(Logs(t), o.Name+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{name: o.Name, log: log.Name(), cmd: exec.Command(o.Path, o.Args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if len(o.Env) > 0 {
		p.cmd.Env = append(os.Environ(), o.Env...)
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(p.cmd.SysProcAttr)
	started := make(chan error, 1)
	go p.run(log, started)
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", o.Name, err)
	}
	t.Cleanup(func() {
		if !p.Running() && !p.asked.Load() {
			t.Errorf("%s ended by itself: %v", p.name, p.err)
		}
		p.Kill()
		if t.Failed() {
			t.Logf("the last of %s:\n%s", p.log, p.Tail())
		}
	})
	return p
}

// run starts the program and waits for it, on one thread: dieWithParent ends a process with the
// thread that started it.
func (p *Process) run(log *os.File, started chan<- error) {
	defer close(p.done)
	defer func() { _ = log.Close() }()
	runtime.LockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

// Kill ends the process at once, as kill -9 does, even if it is paused.
func (p *Process) Kill() {
	p.asked.Store(true)
	_ = p.cmd.Process.Kill()
	<-p.done
}

// MayEnd says that the process may end by itself from here on, since somebody else asks it to.
func (p *Process) MayEnd() { p.asked.Store(true) }

// Terminate asks the process to end, and returns its exit error. If it takes longer than
// within, the test fails.
func (p *Process) Terminate(t testing.TB, within time.Duration) error {
	t.Helper()
	p.asked.Store(true)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("terminate %s: %v", p.name, err)
	}
	select {
	case <-p.done:
	case <-time.After(within):
		t.Fatalf("%s does not end on SIGTERM", p.name)
	}
	return p.err
}

// Pause stops the process, and Resume continues it.
func (p *Process) Pause() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume continues the process after Pause.
func (p *Process) Resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err returns the exit error of the process once it has ended.
func (p *Process) Err() error {
	if p.Running() {
		return nil
	}
	return p.err
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output returns all that the process printed.
func (p *Process) Output() string {
	out, _ := os.ReadFile(p.log)
	return string(out)
}

// Tail returns the end of what the process printed.
func (p *Process) Tail() string {
	const lines = 25
	out := bytes.Split([]byte(p.Output()), []byte("\n"))
	return string(bytes.Join(out[max(0, len(out)-lines-1):], []byte("\n")))
}

// directories are the log directories of tests.
var directories = struct {
	sync.Mutex
	of map[testing.TB]string
}{of: map[testing.TB]string{}}

// Logs returns the directory of a test's logs. It is kept if the test fails.
func Logs(t testing.TB) string {
	t.Helper()
	directories.Lock()
	defer directories.Unlock()
	if dir, ok := directories.of[t]; ok {
		return dir
	}
	dir, err := os.MkdirTemp("", "portolan-logs-")
	if err != nil {
		t.Fatal(err)
	}
	directories.of[t] = dir
	t.Cleanup(func() {
		directories.Lock()
		delete(directories.of, t)
		directories.Unlock()
		if t.Failed() {
			t.Logf("the logs of this test are kept in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}
