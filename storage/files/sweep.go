package files

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// sweep compares a whole tree with what is known, beside the follower: with many files it
// takes longer than a change may wait. It works on a copy of the follower's state.
type sweep struct {
	root   string
	above  []identity
	files  map[string]fingerprint // of files that were read, and have no fault
	dirs   map[string]identity
	faults map[string]bool
	notify *fsnotify.Watcher
	ended  *atomic.Bool // nobody waits for the result

	seen map[string]bool
	swept
}

// swept is the result of a sweep.
type swept struct {
	// differ are files that differ from what was known.
	differ []string
	// other says that something else differs, for which the follower has to scan.
	other bool
}

// sweepable says whether a sweep can read a tree beside the follower: the follower has read
// all of it, and no directory has a fault.
func (f *follower[T]) sweepable() bool {
	if f.single != "" || !f.begun || f.away != nil || f.over || len(f.blind) > 0 || len(f.held) > 0 {
		return false
	}
	for rel := range f.faults {
		if _, isDir := f.dirs[rel]; isDir || rel == top {
			return false
		}
	}
	return true
}

// sweep starts a sweep. Its result comes from f.swept.
func (f *follower[T]) sweep(now time.Time) {
	f.scanAt = now.Add(f.rescan)
	if f.sweeping {
		return // the last one is not over yet
	}
	s := &sweep{
		root: f.root, above: slices.Clone(f.above), files: make(map[string]fingerprint, len(f.files)), dirs: make(map[string]identity, len(f.dirs)),
		faults: map[string]bool{}, notify: f.notify, ended: &f.ended, seen: make(map[string]bool, len(f.files)),
	}
	for rel, file := range f.files {
		if _, waits := f.pending[rel]; waits {
			s.seen[rel] = true // readDue reads it anyway
		} else if file.read && f.faults[rel].Err == nil {
			s.files[rel] = file.print
		}
	}
	for rel, dir := range f.dirs {
		s.dirs[rel] = dir.identity
	}
	for rel := range f.faults {
		s.faults[rel] = true
	}
	f.sweeping = true
	f.beside.Go(func() {
		s.visit(top, s.above)
		s.missed()
		f.swept <- s.swept
	})
}

// takeSwept handles the result of a sweep.
func (f *follower[T]) takeSwept(found swept, now time.Time) {
	f.sweeping = false
	if found.other {
		f.scan(now)
		return
	}
	for _, rel := range found.differ {
		f.compare(rel, now)
	}
}

// visit compares a directory and what is in it. trail has the directories above it.
func (s *sweep) visit(dir string, trail []identity) {
	full := filepath.Join(s.root, filepath.FromSlash(dir))
	at, err := stat(full)
	if err == nil && slices.Contains(trail, at.identity) {
		s.other = s.other || !s.faults[dir] // a link to a directory above it
		return
	}
	was, known := s.dirs[dir]
	if err != nil || !known || was != at.identity {
		s.other = true
		return
	}
	s.seen[dir] = true
	if s.notify != nil && s.notify.Add(full) != nil {
		s.other = true
		return
	}
	entries, err := os.ReadDir(full)
	if err != nil {
		s.other = true
		return
	}
	trail = append(slices.Clip(trail), at.identity)
	for _, entry := range entries {
		if s.other || s.ended.Load() {
			return
		}
		if hidden(entry.Name()) {
			continue
		}
		rel := path.Join(dir, entry.Name())
		isDir := entry.IsDir()
		if entry.Type()&os.ModeSymlink != 0 {
			target, err := stat(filepath.Join(s.root, filepath.FromSlash(rel)))
			isDir = err == nil && target.isDir()
		}
		if isDir {
			s.visit(rel, trail)
		}
		print, read := s.files[rel]
		if !Wanted(entry.Name()) || isDir && !read || s.seen[rel] && !isDir {
			continue
		}
		s.seen[rel] = true
		if now, err := stat(filepath.Join(s.root, filepath.FromSlash(rel))); !read || err != nil || now.fingerprint != print {
			s.differ = append(s.differ, rel)
		}
	}
}

// missed looks for files and directories that were not seen.
func (s *sweep) missed() {
	for rel := range s.files {
		s.other = s.other || !s.seen[rel]
	}
	for rel := range s.dirs {
		s.other = s.other || !s.seen[rel]
	}
}
