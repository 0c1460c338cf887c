package integration

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// process is a program that a scenario started. It does not outlive the test,
// nor the test's own process.
type process struct {
	name string
	log  string // the file with all it wrote
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // then: how
	// asked says that the test ended it.
	asked bool
}

// start runs a program; its output goes to a file that stays if the test fails.
func start(t testing.TB, name, path string, args ...string) *process {
	t.Helper()
	log, err := os.CreateTemp(logs(t), name+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{name: name, log: log.Name(), cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(p.cmd.SysProcAttr)
	started := make(chan error, 1)
	go p.run(log, started)
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(func() {
		if !p.running() && !p.asked {
			t.Errorf("%s ended by itself: %v", p.name, p.err)
		}
		p.kill()
		if t.Failed() {
			t.Logf("the last of %s:\n%s", p.log, p.tail())
		}
	})
	return p
}

// run starts the program and waits for it, on one thread: what ends with its
// parent ends with the thread that started it.
func (p *process) run(log *os.File, started chan<- error) {
	defer close(p.done)
	defer func() { _ = log.Close() }()
	runtime.LockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

// kill ends the process at once.
func (p *process) kill() {
	p.asked = true
	_ = p.cmd.Process.Kill()
	<-p.done
}

// terminate asks the process to end, and returns how it did.
func (p *process) terminate(t testing.TB) error {
	t.Helper()
	p.asked = true
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("terminate %s: %v", p.name, err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("%s does not end on SIGTERM", p.name)
	}
	return p.err
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// output is all that the process wrote.
func (p *process) output() string {
	out, _ := os.ReadFile(p.log)
	return string(out)
}

// tail is the last of what the process wrote.
func (p *process) tail() string {
	const lines = 25
	out := bytes.Split([]byte(p.output()), []byte("\n"))
	return string(bytes.Join(out[max(0, len(out)-lines-1):], []byte("\n")))
}

// directories are those of the tests that have logs.
var directories = struct {
	sync.Mutex
	of map[testing.TB]string
}{of: map[testing.TB]string{}}

// logs is the directory of a test's logs. It stays where the test fails.
func logs(t testing.TB) string {
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
		if t.Failed() {
			t.Logf("the logs of this test are kept in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

// handed counts the ports that freePort has looked at. They lie below those that
// the kernel gives to whoever connects or asks for any port, and no two calls
// return the same one.
var handed atomic.Uint32

const firstPort, ports = 20000, 12000

// freePort is a port of 127.0.0.1 that nothing listens on.
func freePort(t testing.TB) int {
	t.Helper()
	for range ports {
		// Test processes that run at the same time begin at different places.
		port := firstPort + (int(handed.Add(1))+os.Getpid()*97)%ports
		l, err := net.Listen("tcp", local(port))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// write puts a document into a file of the test.
func write(t testing.TB, name, document string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// expectEqual compares what has a text of its own.
func expectEqual(t testing.TB, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}
