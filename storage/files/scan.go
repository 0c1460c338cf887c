package files

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// directory is a watched directory.
type directory struct {
	identity
	link bool // a symbolic link leads to it
}

// absolute returns the absolute path of a path in the tree.
func (f *follower[T]) absolute(rel string) string {
	if rel == top {
		return f.root
	}
	return f.root + string(filepath.Separator) + filepath.FromSlash(rel)
}

// top is the root itself, as a path in the tree.
const top = "."

// isWithin says whether a path is a directory or in it.
func isWithin(rel, dir string) bool {
	return dir == top || rel == dir || strings.HasPrefix(rel, dir) && rel[len(dir)] == '/'
}

// wanted says whether a file is read, by its name.
func (f *follower[T]) wanted(name string) bool {
	if f.single != "" {
		return name == f.single
	}
	return Wanted(name)
}

// scan looks at the whole tree, and touches all that differs from what is known.
func (f *follower[T]) scan(now time.Time) {
	f.scanAt = now.Add(f.rescan)
	f.over = false
	if err := f.watchRoot(); err != nil {
		f.scanAt = now.Add(min(f.rescan, rootPause))
		f.rootLost(err, now)
		return
	}
	if f.away != nil {
		f.away, f.start = nil, now
	}
	f.walk(top, f.ancestors(top), now)
	if f.blind[top].Err != nil {
		f.scanAt = now.Add(min(f.rescan, rootPause))
	}
}

// rootPause is how often Follow tries a root that it cannot read.
const rootPause = time.Second

// watchRoot finds the root. It watches the directories in which another root may take its
// place: its parent, and the parents of symbolic links that lead to it.
func (f *follower[T]) watchRoot() error {
	f.gates = map[string]bool{f.root: true}
	for at := f.root; ; at = filepath.Dir(at) {
		above := filepath.Dir(at)
		if above == at {
			break
		}
		if at == f.root || isLink(at) {
			f.gates[at] = true
			if f.notify != nil {
				_ = f.notify.Add(above) // scans at Rescan need no notification
			}
		}
	}
	s, err := stat(f.root)
	switch {
	case err != nil:
		return err
	case !s.isDir():
		return errors.New("is no directory")
	}
	resolved, err := filepath.EvalSymlinks(f.root)
	if err != nil {
		return withoutPath(err)
	}
	f.above = nil
	for at := filepath.Dir(resolved); at != resolved; resolved, at = at, filepath.Dir(at) {
		if s, err := stat(at); err == nil {
			f.above = append(f.above, s.identity)
		}
	}
	return nil
}

// walk watches a directory and those below it, and touches the files there that differ from
// what is known. trail has the directories above it.
func (f *follower[T]) walk(dir string, trail []identity, now time.Time) {
	_, known := f.dirs[dir]
	seen := map[string]bool{}
	f.visit(dir, trail, now, seen)
	if !known {
		return
	}
	for rel := range f.files {
		if _, waits := f.pending[rel]; !waits && isWithin(rel, dir) && !seen[rel] && !f.inUnreadableDirectory(rel) {
			f.touch(rel, now)
		}
	}
	for rel := range f.dirs {
		if isWithin(rel, dir) && !seen[rel] && !f.inUnreadableDirectory(rel) {
			f.forgetDirectory(rel)
		}
	}
}

// inUnreadableDirectory says whether a path is in a directory that cannot be read.
func (f *follower[T]) inUnreadableDirectory(rel string) bool {
	for dir := range f.blind {
		if isWithin(rel, dir) {
			return true
		}
	}
	return false
}

func (f *follower[T]) visit(dir string, trail []identity, now time.Time, seen map[string]bool) {
	seen[dir] = true
	full := f.absolute(dir)
	s, err := stat(full)
	if err == nil && slices.Contains(trail, s.identity) {
		f.fault(dir, errors.New("is a symbolic link to a directory above it: it is not followed"), now)
		return
	}
	if err == nil {
		f.watch(dir, s.identity, now)
	}
	var entries []os.DirEntry
	if err == nil {
		entries, err = os.ReadDir(full)
	}
	if missing(err) {
		return // its removal brings a notification
	}
	if f.setDirectoryFault(dir, err, now); err != nil {
		return
	}
	trail = append(slices.Clip(trail), s.identity)
	for _, entry := range entries {
		if hidden(entry.Name()) && entry.Name() != f.single {
			continue
		}
		rel := path.Join(dir, entry.Name())
		isDir := entry.IsDir()
		if entry.Type()&os.ModeSymlink != 0 {
			target, err := stat(f.absolute(rel))
			isDir = err == nil && target.isDir()
		}
		if isDir && f.single == "" {
			f.visit(rel, trail, now, seen)
		}
		if f.wanted(entry.Name()) && (!isDir || f.files[rel] != nil) {
			seen[rel] = true
			f.compare(rel, now)
		}
	}
}

// compare touches a file that differs from what is known.
func (f *follower[T]) compare(rel string, now time.Time) {
	s, err := stat(f.absolute(rel))
	known := f.files[rel]
	switch {
	case known != nil && known.read && err == nil && s.fingerprint == known.print && f.faults[rel].Err == nil:
	case err != nil:
		f.touch(rel, now)
	default:
		f.touch(rel, s.touched(now, f.o.Settle))
	}
}

// watch makes the system notify of changes in a directory.
func (f *follower[T]) watch(dir string, is identity, now time.Time) {
	full := f.absolute(dir)
	old, known := f.dirs[dir]
	f.dirs[dir] = directory{is, isLink(full)}
	if f.notify == nil {
		return
	}
	if known && old.identity != is {
		_ = f.notify.Remove(full) // of the directory that was there before
	}
	switch err := f.notify.Add(full); {
	case err == nil:
		f.mend(dir)
	case !missing(err):
		f.fault(dir, fmt.Errorf("changes in it are seen every %s only, since the system does not notify of it: %w (where there is no space left, raise fs.inotify.max_user_watches)", f.rescan, err), now)
	}
}

func (f *follower[T]) forgetDirectory(dir string) {
	delete(f.dirs, dir)
	if f.notify != nil {
		_ = f.notify.Remove(f.absolute(dir)) // the system may have done so itself
	}
	f.mend(dir)
	f.setDirectoryFault(dir, nil, time.Time{})
}

// directoryGone touches all files in a directory that is gone.
func (f *follower[T]) directoryGone(dir string, now time.Time) {
	for rel := range f.files {
		if isWithin(rel, dir) {
			f.touch(rel, now)
		}
	}
	for rel := range f.dirs {
		if isWithin(rel, dir) {
			f.forgetDirectory(rel)
		}
	}
}

// ancestors returns the directories above one.
func (f *follower[T]) ancestors(dir string) []identity {
	out := f.above
	for dir != top {
		dir = path.Dir(dir)
		out = append(slices.Clip(out), f.dirs[dir].identity)
	}
	return out
}

// notified handles a notification of the system for a path.
func (f *follower[T]) notified(name string, now time.Time) {
	if f.gates[name] {
		f.scan(now)
		return
	}
	rel, inside := strings.CutPrefix(filepath.ToSlash(name), filepath.ToSlash(f.root)+"/")
	if !inside {
		return
	}
	base := path.Base(rel)
	switch {
	case f.wanted(base): // it may be a directory all the same
	case hidden(base):
		if isLink(name) {
			f.linked(now)
		}
		return
	case f.single != "":
		return
	}
	s, err := stat(name)
	switch isDir := err == nil && s.isDir(); {
	case isDir && f.single == "":
		f.walk(rel, f.ancestors(rel), now)
	case f.isDirectory(rel):
		f.directoryGone(rel, now)
	}
	if f.wanted(base) && (err != nil || !s.isDir() || f.files[rel] != nil) {
		f.touch(rel, now)
	}
}

func (f *follower[T]) isDirectory(rel string) bool {
	_, ok := f.dirs[rel]
	return ok
}
