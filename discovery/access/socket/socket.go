// Package socket listens and dials on unix sockets that only their own user can open,
// even if the path is longer than a socket's may be.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// maxPath is the longest path of a socket.
const maxPath = 107

// Listener listens on a socket. Close removes it.
type Listener struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

// Listen listens on a path, with mode 0600 from the first moment on. It replaces a
// socket that a killed process left behind, but neither a socket on which somebody
// listens nor a file of another kind.
func Listen(path string) (*Listener, error) {
	if err := checkVacant(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	// Make it where nobody else can enter, and then give it its name.
	private, err := os.MkdirTemp(filepath.Dir(path), ".socket-*")
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	defer func() { _ = os.RemoveAll(private) }()
	l, err := listen(filepath.Join(private, "s"))
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	out := &Listener{UnixListener: l, path: path}
	err = errors.Join(os.Chmod(filepath.Join(private, "s"), 0o600), os.Rename(filepath.Join(private, "s"), path))
	if err == nil {
		out.file, err = os.Lstat(path)
	}
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, errors.Join(err, l.Close()))
	}
	return out, nil
}

// Close implements net.Listener. It leaves a socket that another process has put in its
// place.
func (l *Listener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.file) {
		_ = os.Remove(l.path) // a stale one does no harm
	}
	return l.UnixListener.Close()
}

// checkVacant returns why a path is not free for a socket.
func checkVacant(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("a file that is not a socket has this name: remove it, or choose another path")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if c, err := Dial(ctx, path); err == nil {
		_ = c.Close()
		return errors.New("another process listens on it: end that one, or choose another path")
	}
	return nil
}

func listen(path string) (l *net.UnixListener, err error) {
	err = short(path, func(path string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		return err
	})
	return l, err
}

// Dial connects to the socket at a path.
func Dial(ctx context.Context, path string) (c net.Conn, err error) {
	err = short(path, func(path string) (err error) {
		c, err = (&net.Dialer{}).DialContext(ctx, "unix", path)
		return err
	})
	return c, err
}

// Client returns a client that connects to the socket at a path, whatever the URL says,
// and keeps no connections.
func Client(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return Dial(ctx, path) },
	}}
}

// If the path is too long, short goes through the descriptor of its directory, which
// works on Linux only.
func short(path string, do func(path string) error) error {
	if len(path) <= maxPath {
		return do(path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return do(filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), filepath.Base(path)))
}
