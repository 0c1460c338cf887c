package clitest

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// OpenTerminal opens a pseudo terminal. shown closes it, and returns what was written to it, with
// newlines as they were written.
func OpenTerminal(t testing.TB) (terminal *os.File, shown func() string) {
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
	terminal = os.NewFile(fd, "terminal")
	var text bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&text, control) // ends with an error when the terminal is closed
	}()
	shown = func() string {
		_ = terminal.Close()
		<-read
		_ = control.Close()
		return strings.ReplaceAll(text.String(), "\r\n", "\n")
	}
	t.Cleanup(func() { _ = shown() })
	return terminal, shown
}
