package clitest

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Terminal is a pseudo terminal.
type Terminal struct {
	*os.File // what programs write to
	control  *os.File
	ended    chan struct{} // closed when all was read
	more     chan struct{} // holds a token after something was read

	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// OpenTerminal opens a pseudo terminal, which ends with the test.
func OpenTerminal(t testing.TB) *Terminal {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	fd, _, failed := unix.Syscall(unix.SYS_IOCTL, control.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if failed != 0 {
		t.Fatal(failed)
	}
	out := &Terminal{File: os.NewFile(fd, "terminal"), control: control, ended: make(chan struct{}), more: make(chan struct{}, 1)}
	go out.read()
	t.Cleanup(func() { _ = out.Shown() })
	return out
}

func (t *Terminal) read() {
	defer close(t.ended)
	piece := make([]byte, 4096)
	for {
		n, err := t.control.Read(piece)
		if err != nil { // the terminal is closed
			return
		}
		t.mu.Lock()
		t.text.Write(piece[:n])
		t.mu.Unlock()
		select {
		case t.more <- struct{}{}:
		default:
		}
	}
}

func (t *Terminal) sofar() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ReplaceAll(t.text.String(), "\r\n", "\n")
}

// Await waits until the terminal has shown some words, and says whether it did in time. One goroutine
// may wait.
func (t *Terminal) Await(words string) bool {
	for limit := time.After(20 * time.Second); !strings.Contains(t.sofar(), words); {
		select {
		case <-t.more:
		case <-limit:
			return false
		}
	}
	return true
}

// Shown closes the terminal, and returns what was written to it.
func (t *Terminal) Shown() string {
	_ = t.Close()
	<-t.ended
	_ = t.control.Close()
	return t.sofar()
}
