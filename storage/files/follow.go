package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Follow reads what is at a path, and follows it until ctx ends; then it returns nil. An
// error is about the options: if the path cannot be read, Follow waits for it.
func Follow[T any](ctx context.Context, o Options[T]) error {
	if err := o.complete(); err != nil {
		return err
	}
	return newFollower(o).run(ctx)
}

// newFollower requires complete options.
func newFollower[T any](o Options[T]) *follower[T] {
	f := &follower[T]{
		o: o, root: o.Path, rescan: o.Rescan, start: time.Now(),
		dirs: map[string]directory{}, files: map[string]*file{}, pending: map[string]touch{},
		faults: map[string]Fault{}, blind: map[string]Fault{}, swept: make(chan swept, 1),
	}
	if o.Single {
		f.root, f.single = filepath.Split(o.Path)
		f.root = filepath.Clean(f.root)
	}
	return f
}

// follower is the state of Follow. One goroutine uses it.
type follower[T any] struct {
	o      Options[T]
	root   string // absolute
	single string // the name of the one file
	notify *fsnotify.Watcher
	rescan time.Duration
	gates  map[string]bool // absolute paths; a change of one may bring another root
	above  []identity      // the directories above the root

	dirs    map[string]directory
	files   map[string]*file
	pending map[string]touch
	faults  map[string]Fault // of files, and of directories that are not watched
	blind   map[string]Fault // directories that cannot be read
	held    []string         // gone files, kept since none would be left
	over    bool             // there are too many files
	away    error            // why the root cannot be read

	begun     bool
	start     time.Time
	scanAt    time.Time
	lastTouch time.Time // the last touch of a path that is or was pending
	oldest    time.Time // the first touch of a pending path
	waitUntil time.Time // pending paths wait until then, since one is absent
	lastFire  time.Time
	degraded  error
	since     time.Time
	count     int  // number of files whose content counts
	changed   bool // faults or degraded have changed
	changes   []Change[T]

	beside   sync.WaitGroup // waits for sweeps
	ended    atomic.Bool
	sweeping bool
	swept    chan swept
}

type file struct {
	read  bool // its content counts
	print fingerprint
	link  bool
}

// touch says when something happened to a path, first and last.
type touch struct{ first, last time.Time }

// pollPause is how often Follow scans a tree if the system sends no notifications for it.
const pollPause = 2 * time.Second

func (f *follower[T]) run(ctx context.Context) error {
	heard := newNotices()
	notify, err := fsnotify.NewWatcher()
	if err == nil {
		f.notify = notify
		var collecting sync.WaitGroup
		collecting.Go(func() { heard.collect(notify) })
		defer collecting.Wait()
		defer func() { _ = notify.Close() }()
	} else {
		f.rescan = min(f.rescan, pollPause)
		f.fault(top, fmt.Errorf("changes are found every %s only, since the system sends no notifications: %w", f.rescan, err), time.Now())
	}
	defer f.beside.Wait()
	defer f.ended.Store(true)
	f.scan(time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		f.deliver()
		timer.Reset(time.Until(f.due()))
		select {
		case <-ctx.Done():
			return nil
		case <-heard.wake:
			f.handleNotices(heard)
		case found := <-f.swept:
			f.takeSwept(found, time.Now())
		case <-timer.C:
			f.tick(time.Now())
		}
	}
}

func (f *follower[T]) handleNotices(heard *notices) {
	names, lost := heard.take()
	now := time.Now()
	for _, name := range names {
		f.notified(name, now)
	}
	if lost {
		f.scan(now)
	}
}

// due returns when the follower acts even if no notification comes.
func (f *follower[T]) due() time.Time {
	due := f.scanAt
	if at, waits := f.fireAt(); waits && at.Before(due) {
		due = at
	}
	return due
}

// fireAt returns when the pending paths are read.
func (f *follower[T]) fireAt() (at time.Time, waits bool) {
	if len(f.pending) == 0 {
		return time.Time{}, !f.begun && f.away == nil && f.blind[top].Err == nil
	}
	first := f.lastFire
	if f.oldest.After(first) {
		first = f.oldest
	}
	quiet, bound := f.lastTouch.Add(f.o.Settle), first.Add(f.o.MaxSettle)
	if f.waitUntil.After(quiet) {
		quiet = f.waitUntil
	}
	if bound.Before(quiet) {
		return bound, true
	}
	return quiet, true
}

func (f *follower[T]) tick(now time.Time) {
	switch {
	case now.Before(f.scanAt):
	case f.sweepable():
		f.sweep(now)
	default:
		f.scan(now)
	}
	if at, waits := f.fireAt(); waits && !now.Before(at) {
		f.readDue(now)
	}
}

// touch notes that a file changed at a time; zero means long ago.
func (f *follower[T]) touch(rel string, at time.Time) {
	if f.files[rel] == nil {
		if len(f.files) >= f.o.MaxFiles {
			f.over = true
			return
		}
		f.files[rel] = &file{}
	}
	t, waits := f.pending[rel]
	if !waits {
		t.first = time.Now()
	}
	if len(f.pending) == 0 {
		f.oldest = t.first
	}
	if at.After(t.last) {
		t.last = at
	}
	if f.pending[rel] = t; at.After(f.lastTouch) {
		f.lastTouch = at
	}
}

// absent is how many times Options.Settle all paths wait while one is missing: a program
// that removes a file may write it again.
const absent = 5

// readDue reads the paths that are at rest.
func (f *follower[T]) readDue(now time.Time) {
	s, err := stat(f.root)
	if err != nil || !s.isDir() || s.identity != f.dirs[top].identity {
		f.lastFire = now
		f.scan(now)
		return
	}
	paths := f.atRest(now)
	quiet := now.Sub(f.lastTouch) >= absent*f.o.Settle
	if long := f.lastTouch.Add(absent * f.o.Settle); !quiet && f.waitUntil.Before(long) && slices.ContainsFunc(paths, f.isAbsent) {
		f.waitUntil = long
		return
	}
	f.lastFire = now
	for _, rel := range f.held {
		if _, waits := f.pending[rel]; !waits {
			paths = append(paths, rel)
		}
	}
	f.held = nil
	slices.Sort(paths)
	findings := f.lookAll(paths, now)
	f.deferLinked(findings)
	var gone []string
	for i := range findings {
		if f.handleFinding(&findings[i], quiet, now) {
			gone = append(gone, findings[i].path)
		}
	}
	f.dropDeleted(gone)
	f.oldest = time.Time{}
	for _, t := range f.pending {
		if f.oldest.IsZero() || t.first.Before(f.oldest) {
			f.oldest = t.first
		}
	}
	if !f.begun && (len(f.pending) == 0 || now.Sub(f.start) >= f.o.MaxSettle) {
		f.begun, f.changed = true, true
	}
}

// atRest returns the pending paths that have not changed for Options.Settle.
func (f *follower[T]) atRest(now time.Time) (paths []string) {
	for rel, t := range f.pending {
		switch {
		case now.Sub(t.last) >= f.o.Settle:
			paths = append(paths, rel)
		case now.Sub(t.first) >= f.o.Hold:
			f.fault(rel, errInWork, now)
		}
	}
	return paths
}

// isAbsent says whether a file that was read before is missing now.
func (f *follower[T]) isAbsent(rel string) bool {
	if !f.files[rel].read {
		return false
	}
	_, err := stat(f.absolute(rel))
	return missing(err)
}

var errInWork = errors.New("is being written to all the time, and is not read before it is at rest")

// handleFinding handles what reading a path found, and says whether the file is gone.
func (f *follower[T]) handleFinding(found *finding[T], quiet bool, now time.Time) (gone bool) {
	t, waits := f.pending[found.path]
	if !waits {
		t.first = now
	}
	known := f.files[found.path]
	switch found.outcome {
	case inWork:
		t.last = found.touched
		f.pending[found.path] = t
		if found.touched.After(f.lastTouch) {
			f.lastTouch = found.touched
		}
		if now.Sub(t.first) >= f.o.Hold {
			f.fault(found.path, errInWork, now)
		}
		return false
	case isGone:
		if waits && !quiet && now.Sub(t.first) < f.o.Hold {
			return false
		}
	}
	delete(f.pending, found.path)
	switch found.outcome {
	case isGone:
		return true
	case atFault:
		f.fault(found.path, found.err, now)
		return false
	case wasRead:
		if !known.read {
			f.count++
		}
		known.read, known.print, known.link = true, found.print, found.link
		f.changes = append(f.changes, Change[T]{Path: found.path, Value: found.value})
	}
	f.mend(found.path)
	return false
}

// dropDeleted drops deleted files, unless none would be left.
func (f *follower[T]) dropDeleted(gone []string) {
	leaving := 0
	for _, rel := range gone {
		if f.files[rel].read {
			leaving++
		}
	}
	if leaving > 0 && leaving == f.count {
		f.held = gone
		return
	}
	for _, rel := range gone {
		if f.files[rel].read {
			f.count--
			f.changes = append(f.changes, Change[T]{Path: rel, Gone: true})
		}
		delete(f.files, rel)
		f.mend(rel)
	}
}

// rootLost notes that the root cannot be read.
func (f *follower[T]) rootLost(err error, now time.Time) {
	f.away = err
	clear(f.pending)
	maps.DeleteFunc(f.files, func(_ string, file *file) bool { return !file.read })
	f.lastTouch = now
}

// setDirectoryFault notes that a directory can be read, or why it cannot.
func (f *follower[T]) setDirectoryFault(dir string, err error, now time.Time) {
	old, was := f.blind[dir]
	switch {
	case err == nil && was:
		delete(f.blind, dir)
		f.changed = true
	case err != nil && (!was || old.Err.Error() != withoutPath(err).Error()):
		if !was {
			old.Since = now
		}
		f.blind[dir] = Fault{Path: dir, Err: withoutPath(err), Since: old.Since, Held: true}
		f.changed = true
	}
}

// fault notes why a path cannot be read.
func (f *follower[T]) fault(rel string, err error, now time.Time) {
	old, was := f.faults[rel]
	if was && old.Err.Error() == err.Error() {
		return
	}
	if !was {
		old.Since = now
	}
	known := f.files[rel]
	f.faults[rel] = Fault{Path: rel, Err: err, Since: old.Since, Held: known != nil && known.read}
	f.changed = true
}

// mend notes that a path can be read, or is gone.
func (f *follower[T]) mend(rel string) {
	if _, was := f.faults[rel]; was {
		delete(f.faults, rel)
		f.changed = true
	}
}

// degradation says why the known content may be stale; nil if it is not.
func (f *follower[T]) degradation() error {
	what := f.root
	if f.single != "" {
		what = f.o.Path
	}
	kept := "its last content is kept"
	if !f.begun {
		kept = "nothing is known of it"
	}
	switch {
	case f.away != nil:
		return fmt.Errorf("%s cannot be read, %s: %w", f.root, kept, f.away)
	case len(f.held) > 0 && f.single != "":
		return fmt.Errorf("%s is gone, %s", what, kept)
	case len(f.held) > 0:
		return fmt.Errorf("%s has lost all its files, %s: to take it away, leave a file with a comment", what, kept)
	case f.single != "" && f.begun && f.count == 0 && f.faults[f.single].Err == nil:
		return fmt.Errorf("%s is not there", what)
	case f.over:
		return fmt.Errorf("%s has more than %d files, and the rest is not read", what, f.o.MaxFiles)
	case len(f.blind) > 0:
		first := slices.Min(slices.Collect(maps.Keys(f.blind)))
		return fmt.Errorf("%s cannot be read, its last content is kept: %w", f.absolute(first), f.blind[first].Err)
	case f.single != "" && f.faults[f.single].Err != nil:
		return fmt.Errorf("%s cannot be read, its last content is kept: %w", what, f.faults[f.single].Err)
	}
	return nil
}

// deliver hands over what has changed since the last update.
func (f *follower[T]) deliver() {
	if why := f.degradation(); (why == nil) != (f.degraded == nil) || why != nil && why.Error() != f.degraded.Error() {
		if f.degraded == nil {
			f.since = time.Now()
		}
		f.degraded, f.changed = why, true
	}
	if !f.changed && len(f.changes) == 0 || !f.begun && f.degraded == nil {
		return
	}
	u := Update[T]{Degraded: f.degraded, Begun: f.begun, Files: f.count}
	if f.degraded != nil {
		u.Since = f.since
	}
	if f.begun {
		u.Changes, f.changes = f.changes, nil
	}
	for _, of := range []map[string]Fault{f.faults, f.blind} {
		u.Faults = slices.AppendSeq(u.Faults, maps.Values(of))
	}
	slices.SortFunc(u.Faults, func(a, b Fault) int { return cmp.Compare(a.Path, b.Path) })
	f.changed = false
	f.o.Update(u)
}
