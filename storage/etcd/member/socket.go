package member

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// maxSocketPath is the longest path that a unix socket can have.
const maxSocketPath = 107

// A socket lies alone in a directory of this user, whose name begins with
// socketDirPrefix.
const (
	socketDirPrefix = "portolan-"
	socketName      = "etcd.sock"
	httpSocketName  = "http.sock"
)

// httpSocket returns the path of the HTTP socket beside a socket.
func httpSocket(socket string) string {
	return filepath.Join(filepath.Dir(socket), httpSocketName)
}

// plainPath matches the paths that a unix:// endpoint can hold unescaped.
var plainPath = regexp.MustCompile(`^/[A-Za-z0-9/._+-]*$`)

// makeSocketDir makes a private directory for a socket in the first of the
// given directories that can hold one.
func makeSocketDir(bases []string) (string, error) {
	var errs []error
	for _, base := range bases {
		// MkdirTemp appends up to ten digits to the prefix.
		longest := len(filepath.Join(base, socketDirPrefix+"0123456789", socketName))
		if !plainPath.MatchString(base) || longest > maxSocketPath {
			errs = append(errs, fmt.Errorf("%q is too long or has special characters", base))
			continue
		}
		dir, err := os.MkdirTemp(base, socketDirPrefix)
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no directory for the store's socket: set TMPDIR to a short, writable one: %w", errors.Join(errs...))
}

// socketBases returns the directories that may hold the socket's directory: the requested
// one, or else the user's runtime directory, if any, and the directories for temporary
// files.
func socketBases(asked, user string) []string {
	if asked != "" {
		return []string{asked}
	}
	var bases []string
	if user != "" {
		bases = append(bases, filepath.Clean(user))
	}
	return append(bases, filepath.Clean(os.TempDir()), "/tmp")
}

// removeSocketDir removes a directory that makeSocketDir made, if it still looks like
// one. It removes the sockets and the directory, nothing else.
func removeSocketDir(dir string) {
	if !filepath.IsAbs(dir) || !strings.HasPrefix(filepath.Base(dir), socketDirPrefix) || privateDir(dir) != nil {
		return
	}
	// Whatever remains is empty, private and of no use to anyone.
	_ = os.Remove(filepath.Join(dir, socketName))
	_ = os.Remove(filepath.Join(dir, httpSocketName))
	_ = os.Remove(dir)
}

// prepareSocket makes sure that a socket can be made at a path: its directory
// is private, and nothing answers there. etcd itself removes a stale one.
func prepareSocket(path string) error {
	if path == "" {
		return nil
	}
	if !filepath.IsAbs(path) || len(path) > maxSocketPath {
		return fmt.Errorf("socket %s: %d bytes: choose an absolute path of at most %d", path, len(path), maxSocketPath)
	}
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	if err := privateDir(dir); err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("socket %s: a file that is not a socket has this name: remove it or choose another path", path)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return fmt.Errorf("socket %s: another process listens on it: stop it or choose another path", path)
	}
	return nil
}

// privateDir returns why a path is not a directory that only this user can
// enter.
func privateDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return fmt.Errorf("directory %s is open to other users (mode %04o): give it mode 0700", dir, perm)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("directory %s belongs to user %d: choose one of your own", dir, stat.Uid)
	}
	return nil
}
