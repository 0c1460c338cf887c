package files_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/storage/files"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quick = files.Timing{Settle: 10 * time.Millisecond, MaxSettle: 100 * time.Millisecond, Hold: time.Minute, Rescan: time.Minute}

// scene has the updates of Follow for a directory.
type scene struct {
	t   testing.TB
	dir string

	mu      sync.Mutex // guards the fields below
	content map[string]string
	last    files.Update[string]
	updates int
	parsed  map[string]int
}

func follow(t testing.TB, dir string, change ...func(*files.Options[string])) *scene {
	t.Helper()
	s := &scene{t: t, dir: dir, content: map[string]string{}, parsed: map[string]int{}}
	o := files.Options[string]{Path: dir, Parse: s.parse, Update: s.update, Timing: quick}
	for _, change := range change {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := files.Follow(ctx, o); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

func (s *scene) parse(path string, data []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parsed[path]++
	return string(data)
}

func (s *scene) update(u files.Update[string]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates++
	for _, c := range u.Changes {
		if c.Gone {
			delete(s.content, c.Path)
		} else {
			s.content[c.Path] = c.Value
		}
	}
	s.last = u
}

// holds returns the files with their contents, in one line.
func (s *scene) holds() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.content)) {
		out = append(out, name+"="+s.content[name])
	}
	return strings.Join(out, " ")
}

func (s *scene) await(want string) {
	s.t.Helper()
	s.eventually(want, func() bool { return s.holds() == want })
}

func (s *scene) eventually(what string, holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%q does not come true: %s; %+v", what, s.holds(), s.state())
		}
	}
}

func (s *scene) state() files.Update[string] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// awaitFault waits for a fault of a path, or for its end if words is empty.
func (s *scene) awaitFault(path, words string) files.Fault {
	s.t.Helper()
	var found files.Fault
	s.eventually("the fault "+words+" of "+path, func() bool {
		all := s.state().Faults
		i := slices.IndexFunc(all, func(f files.Fault) bool { return f.Path == path && strings.Contains(f.Err.Error(), words) })
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	})
	return found
}

func (s *scene) path(name string) string { return filepath.Join(s.dir, name) }

func (s *scene) write(name, text string) {
	s.t.Helper()
	must(s.t, os.MkdirAll(filepath.Dir(s.path(name)), 0o755))
	must(s.t, os.WriteFile(s.path(name), []byte(text), 0o644))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFollowReadsWhatIsThere(t *testing.T) {
	t.Parallel()
	s := &scene{t: t, dir: t.TempDir()}
	for name := range map[string]bool{"a.yaml": true, "b.yml": true, "c/d/e.json": true, ".git/f.yaml": true, "g.txt": true, "h.yaml~": true, ".i.yaml": true, "#j.yaml": true, "~k.yaml": true} {
		s.write(name, filepath.Base(name))
	}
	follow(t, s.dir).await("a.yaml=a.yaml b.yml=b.yml c/d/e.json=e.json")
}

func TestFollowReadsWhatChangesAlone(t *testing.T) {
	t.Parallel()
	s := follow(t, t.TempDir())
	for i := range 200 {
		s.write(fmt.Sprintf("d%d/x%d.yaml", i%7, i), "1")
	}
	s.eventually("all are there", func() bool { return strings.Count(s.holds(), "=1") == 200 })
	s.mu.Lock()
	clear(s.parsed)
	updates := s.updates
	s.mu.Unlock()
	must(t, os.WriteFile(s.path("d3/x3.yaml.new"), []byte("2"), 0o644))
	must(t, os.Rename(s.path("d3/x3.yaml.new"), s.path("d3/x3.yaml")))
	s.eventually("it has changed", func() bool { return strings.Count(s.holds(), "=2") == 1 })
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parsed) != 1 || s.parsed["d3/x3.yaml"] != 1 || s.updates != updates+1 {
		t.Errorf("%v were read, in %d updates", s.parsed, s.updates-updates)
	}
}

func TestFollowMovesOfDirectories(t *testing.T) {
	t.Parallel()
	s := follow(t, t.TempDir())
	s.write("a/b/x.yaml", "1")
	s.write("y.yaml", "1")
	s.await("a/b/x.yaml=1 y.yaml=1")
	must(t, os.Rename(s.path("a"), s.path("c")))
	s.await("c/b/x.yaml=1 y.yaml=1")
	s.write("c/b/x.yaml", "2")
	s.await("c/b/x.yaml=2 y.yaml=1")
	must(t, os.Rename(s.path("c/b"), filepath.Join(t.TempDir(), "b")))
	s.await("y.yaml=1")
	s.write("c/b/x.yaml", "3") // another directory at the same place
	s.await("c/b/x.yaml=3 y.yaml=1")
	s.write("c/b/x.yaml", "4")
	s.await("c/b/x.yaml=4 y.yaml=1")
	must(t, os.RemoveAll(s.path("c")))
	s.await("y.yaml=1")
}

func TestFollowLinks(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "x.yaml"), []byte("1"), 0o644))
	s := &scene{t: t, dir: t.TempDir()}
	must(t, os.Symlink(filepath.Join(outside, "x.yaml"), s.path("x.yaml")))
	must(t, os.Symlink(outside, s.path("out")))
	must(t, os.Symlink("..", s.path("up")))
	must(t, os.Symlink(".", s.path("self")))
	must(t, os.Symlink("nowhere", s.path("none.yaml")))
	// The system does not notify of changes behind a link to a file.
	f := follow(t, s.dir, func(o *files.Options[string]) { o.Rescan = 30 * time.Millisecond })
	f.await("out/x.yaml=1 x.yaml=1")
	f.awaitFault("none.yaml", "link to nothing")
	f.awaitFault("self", "directory above it")
	must(t, os.WriteFile(filepath.Join(outside, "x.yaml"), []byte("2"), 0o644))
	f.await("out/x.yaml=2 x.yaml=2")
}

func TestFollowASingleFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, ".targets")
	s := follow(t, name, func(o *files.Options[string]) { o.Single = true })
	must(t, os.WriteFile(filepath.Join(dir, "other.yaml"), []byte("1"), 0o644))
	must(t, os.WriteFile(name, []byte("1"), 0o644))
	s.await(".targets=1")
	for i := 2; i < 6; i++ {
		must(t, os.Rename(name, name+"~"))
		must(t, os.WriteFile(name, []byte(fmt.Sprint(i)), 0o644))
		s.await(fmt.Sprint(".targets=", i))
	}
	must(t, os.Remove(name))
	s.eventually("it says so", func() bool { return s.state().Degraded != nil })
	s.await(".targets=5")
	must(t, os.Mkdir(name, 0o755))
	s.awaitFault(".targets", "is a directory now")
	s.eventually("it says so", func() bool { return s.state().Degraded != nil })
	must(t, os.Remove(name))
	must(t, os.WriteFile(name, []byte("7"), 0o644))
	s.await(".targets=7")
	s.eventually("all is well", func() bool { return s.state().Degraded == nil && len(s.state().Faults) == 0 })
}

func TestFollowTooMany(t *testing.T) {
	t.Parallel()
	s := &scene{t: t, dir: t.TempDir()}
	for i := range 5 {
		s.write(fmt.Sprint("x", i, ".yaml"), "1")
	}
	f := follow(t, s.dir, func(o *files.Options[string]) { o.MaxFiles, o.Rescan = 3, 30*time.Millisecond })
	f.await("x0.yaml=1 x1.yaml=1 x2.yaml=1")
	f.eventually("it says so", func() bool {
		err := f.state().Degraded
		return err != nil && strings.Contains(err.Error(), "more than 3 files")
	})
	must(t, os.Remove(s.path("x0.yaml")))
	must(t, os.Remove(s.path("x4.yaml")))
	f.await("x1.yaml=1 x2.yaml=1 x3.yaml=1")
	f.eventually("all is well", func() bool { return f.state().Degraded == nil })
}

// TestFollowAFileInWork: a file that is written to all the time is not read.
func TestFollowAFileInWork(t *testing.T) {
	t.Parallel()
	s := follow(t, t.TempDir(), func(o *files.Options[string]) {
		o.Settle, o.MaxSettle, o.Hold = time.Second, 10*time.Millisecond, 20*time.Millisecond
	})
	s.write("x.yaml", "1")
	s.write("y.yaml", "1")
	s.await("x.yaml=1 y.yaml=1")
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		f, err := os.OpenFile(s.path("x.yaml"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = f.Close() }()
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if _, err := f.WriteString("2"); err != nil {
				t.Error(err)
			}
		}
	})
	s.awaitFault("x.yaml", "is being written to all the time")
	s.write("y.yaml", "2") // is read without delay
	s.eventually("y is read", func() bool { return strings.Contains(s.holds(), "y.yaml=2") })
	cancel()
	writing.Wait()
	s.eventually("it is read", func() bool { return strings.HasPrefix(s.holds(), "x.yaml=12") && len(s.state().Faults) == 0 })
}

func TestFollowNeedsAPath(t *testing.T) {
	t.Parallel()
	if err := files.Follow(t.Context(), files.Options[string]{}); err == nil {
		t.Error("an empty path was taken")
	}
}

// TestFollowFilesBehindOneLink: a swapped link changes all files behind it at one time, also
// where nothing notifies of the swap, and only one of them seems to have changed.
func TestFollowFilesBehindOneLink(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	link := func(target, name string) {
		must(t, os.Symlink(target, name+".new"))
		must(t, os.Rename(name+".new", name))
	}
	volume := func(round string) {
		dir := filepath.Join(outside, "v"+round)
		must(t, os.MkdirAll(filepath.Join(dir, "deep"), 0o755))
		for _, name := range []string{"x.yaml", "deep/y.yaml"} {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(round), 0o644))
		}
		link(dir, filepath.Join(outside, "data"))
	}
	volume("0")
	dir := t.TempDir()
	link(filepath.Join(outside, "data", "deep"), filepath.Join(dir, "deep"))
	touch := func() { link(filepath.Join(outside, "data", "x.yaml"), filepath.Join(dir, "x.yaml")) }
	touch()
	s := follow(t, dir)
	s.await("deep/y.yaml=0 x.yaml=0")
	for _, round := range []string{"1", "2", "3"} {
		volume(round)
		touch() // the only one of which the system notifies
		s.eventually("all are of round "+round, func() bool {
			now := s.holds()
			if strings.Count(now, now[len(now)-1:]) != 2 {
				t.Fatalf("%s were read of two rounds", now)
			}
			return now == "deep/y.yaml="+round+" x.yaml="+round
		})
	}
	must(t, os.RemoveAll(filepath.Join(outside, "v3", "deep")))
	must(t, os.WriteFile(filepath.Join(outside, "v3", "x.yaml"), []byte("4"), 0o644))
	touch()
	s.await("x.yaml=4") // what is gone makes nobody wait for ever
}
