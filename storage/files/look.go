package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// identity tells a file or directory from others of the machine.
type identity struct{ device, inode uint64 }

// fingerprint tells one content of a file from others, as far as the file system does.
type fingerprint struct {
	identity
	size              int64
	modified, changed int64 // in nanoseconds
}

// stated is the result of stat for a path.
type stated struct {
	fingerprint
	mode uint32
}

func (s *stated) isDir() bool  { return s.mode&unix.S_IFMT == unix.S_IFDIR }
func (s *stated) isFile() bool { return s.mode&unix.S_IFMT == unix.S_IFREG }

// touched is when the file was last changed. It is zero if the file counts as at rest: that
// is at least settle ago, or in the future.
func (s *stated) touched(now time.Time, settle time.Duration) time.Time {
	last := time.Unix(0, max(s.modified, s.changed))
	if age := now.Sub(last); age < 0 || age >= settle {
		return time.Time{}
	}
	return last
}

func stat(path string) (stated, error) {
	var s unix.Stat_t
	if err := retryInterrupted(func() error { return unix.Stat(path, &s) }); err != nil {
		return stated{}, err
	}
	return statedOf(&s), nil
}

func statedOf(s *unix.Stat_t) stated {
	return stated{
		fingerprint: fingerprint{
			identity: identity{uint64(s.Dev), s.Ino}, size: s.Size,
			modified: s.Mtim.Nano(), changed: s.Ctim.Nano(),
		},
		mode: uint32(s.Mode),
	}
}

func retryInterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// isLink says whether a path itself is a symbolic link.
func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }

// An outcome is the kind of result of reading a file.
type outcome int

const (
	unchanged outcome = iota
	wasRead
	isGone
	atFault // it cannot be read
	inWork  // somebody is writing it
)

// finding is the result of reading a file.
type finding[T any] struct {
	path    string
	outcome outcome
	print   fingerprint
	link    bool
	value   T
	err     error
	touched time.Time // if outcome is inWork
}

// parallel is how many files one goroutine looks at, at least.
const parallel = 16

// lookAll looks at files, on all cores if there are many. The findings are in the order of
// the paths.
func (f *follower[T]) lookAll(paths []string, now time.Time) []finding[T] {
	out := make([]finding[T], len(paths))
	each := max(parallel, (len(paths)+4*runtime.GOMAXPROCS(0)-1)/(4*runtime.GOMAXPROCS(0)))
	if len(paths) <= parallel {
		each = len(paths)
	}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for from := 0; from < len(paths); from += each {
		group.Go(func() error {
			for i := from; i < min(from+each, len(paths)); i++ {
				out[i] = f.look(paths[i], now)
			}
			return nil
		})
	}
	_ = group.Wait() // none fails
	return out
}

// look stats a file, and reads it if it differs from what is known. It does not change f.
func (f *follower[T]) look(path string, now time.Time) finding[T] {
	known, full := f.files[path], f.absolute(path)
	out := finding[T]{path: path, outcome: atFault}
	s, err := stat(full)
	switch {
	case missing(err) && isLink(full):
		out.err = errors.New("is a symbolic link to nothing")
		return out
	case missing(err), err == nil && s.isDir() && !known.read:
		out.outcome = isGone
		return out
	case err != nil:
		out.err = err
		return out
	case s.isDir():
		out.err = errors.New("is a directory now")
		return out
	case !s.isFile():
		out.err = errors.New("is no regular file")
		return out
	case known.read && s.fingerprint == known.print:
		out.outcome, out.print, out.link = unchanged, known.print, known.link
		return out
	}
	if touched := s.touched(now, f.o.Settle); !touched.IsZero() {
		out.outcome, out.touched = inWork, touched
		return out
	}
	switch {
	case s.size > f.o.MaxSize:
		out.err = fmt.Errorf("has %d bytes, and %d are the most: divide it", s.size, f.o.MaxSize)
		return out
	case s.size == 0 && known.read && known.print.size > 0:
		out.err = errors.New("has become empty: to take its content away, delete it, or leave a comment in it")
		return out
	}
	data, same, err := readWhole(full, &s)
	switch {
	case err != nil:
		out.err = err
	case !same:
		out.outcome, out.touched = inWork, now
	default:
		out.outcome, out.print, out.link, out.value = wasRead, s.fingerprint, isLink(full), f.o.Parse(path, data)
	}
	return out
}

// readWhole reads a file, and says whether it is the same before and after.
func readWhole(path string, before *stated) (data []byte, same bool, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		if missing(err) {
			return nil, false, nil
		}
		return nil, false, withoutPath(err)
	}
	defer func() { _ = file.Close() }()
	data = make([]byte, 0, before.size+1)
	buffer := io.LimitReader(file, before.size+1)
	for {
		if len(data) == cap(data) {
			data = slices.Grow(data, 512)
		}
		n, err := buffer.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, withoutPath(err)
		}
	}
	after, err := stat(path)
	return data, err == nil && after == *before && int64(len(data)) == before.size, nil
}

// withoutPath returns an error without the path, as the message around it names the path.
func withoutPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
