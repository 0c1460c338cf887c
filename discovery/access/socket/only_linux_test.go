package socket_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/access/socket"
)

// as connects to a socket as another user, and returns what it reads.
func as(user int, path string) (string, error) {
	type result struct {
		text string
		err  error
	}
	out := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread has another user, and ends with the goroutine
		out <- func() result {
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(user), uintptr(user), uintptr(user)); errno != 0 {
				return result{err: errno}
			}
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
			if err != nil {
				return result{err: err}
			}
			defer func() { _ = syscall.Close(fd) }()
			if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
				return result{err: err}
			}
			buffer := make([]byte, 16)
			n, err := syscall.Read(fd, buffer)
			return result{string(buffer[:max(n, 0)]), err}
		}()
	}()
	r := <-out
	return r.text, r.err
}

// TestOnlySomeUsers: the mode of a socket refuses other users, and so does its listener where the
// mode does not.
func TestOnlySomeUsers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become other users")
	}
	dir, err := os.MkdirTemp("/tmp", "only-") // which others may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const nobody, friend = 65534, 65533
	path := filepath.Join(dir, "s")
	l, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for only := socket.Only(l, friend); ; {
			c, err := only.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			_, _ = c.Write([]byte("hello"))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	if _, err := as(nobody, path); !errors.Is(err, syscall.EACCES) {
		t.Errorf("another user opens a socket of mode 0600: %v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	for user, want := range map[int]string{0: "hello", friend: "hello", nobody: ""} {
		if got, err := as(user, path); got != want || want != "" && err != nil {
			t.Errorf("user %d reads %q, %v, want %q", user, got, err, want)
		}
	}
}
