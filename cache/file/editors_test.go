package file_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/file"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// patient makes a follower wait long, so that a test that is suspended in the middle of
// a change does not fail.
func patient(o *file.Options) {
	o.Timing.Settle, o.Timing.MaxSettle = 300*time.Millisecond, 5*time.Second
}

// TestEditors: the intermediate states of editors and tools are not seen. Each way
// changes x to a round; y stays.
func TestEditors(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(t *testing.T, s *scene, round int){
		"vim, by rename": func(t *testing.T, s *scene, round int) {
			write(t, s.path("4913"), "")
			must(t, os.Remove(s.path("4913")))
			must(t, os.Rename(s.path("x.yaml"), s.path("x.yaml~")))
			write(t, s.path("x.yaml"), entry(t, "x", round))
			must(t, os.Remove(s.path("x.yaml~")))
		},
		"vim, by overwriting": func(t *testing.T, s *scene, round int) {
			write(t, s.path(".x.yaml.swp"), "b0VIM 9.1")
			write(t, s.path("x.yaml~"), entry(t, "x", 999))
			overwrite(t, s.path("x.yaml"), entry(t, "x", round))
			must(t, os.Remove(s.path(".x.yaml.swp")))
		},
		"emacs": func(t *testing.T, s *scene, round int) {
			must(t, os.Symlink("user@host.1234:1", s.path(".#x.yaml")))
			write(t, s.path("#x.yaml#"), "half of")
			must(t, os.Rename(s.path("x.yaml"), s.path("x.yaml~")))
			write(t, s.path("x.yaml"), entry(t, "x", round))
			must(t, os.Remove(s.path("#x.yaml#")))
			must(t, os.Remove(s.path(".#x.yaml")))
		},
		"JetBrains": func(t *testing.T, s *scene, round int) {
			write(t, s.path("x.yaml___jb_tmp___"), entry(t, "x", round))
			must(t, os.Rename(s.path("x.yaml"), s.path("x.yaml___jb_old___")))
			must(t, os.Rename(s.path("x.yaml___jb_tmp___"), s.path("x.yaml")))
			must(t, os.Remove(s.path("x.yaml___jb_old___")))
		},
		"rsync": func(t *testing.T, s *scene, round int) {
			write(t, s.path(".x.yaml.Xy12zZ"), entry(t, "x", round))
			must(t, os.Rename(s.path(".x.yaml.Xy12zZ"), s.path("x.yaml")))
		},
		"vim itself": func(t *testing.T, s *scene, round int) {
			write(t, s.path(".new"), entry(t, "x", round))
			program(t, "vim", "-es", "-N", "-u", "NONE", "-c", "%d", "-c", "0r "+s.path(".new"), "-c", "wq", s.path("x.yaml"))
		},
		"vim itself, with a backup": func(t *testing.T, s *scene, round int) {
			write(t, s.path(".new"), entry(t, "x", round))
			program(t, "vim", "-es", "-N", "-u", "NONE", "-c", "set backup backupcopy=no", "-c", "%d", "-c", "0r "+s.path(".new"), "-c", "wq", s.path("x.yaml"))
		},
		"rsync itself": func(t *testing.T, s *scene, round int) {
			from := t.TempDir()
			write(t, filepath.Join(from, "x.yaml"), entry(t, "x", round))
			program(t, "rsync", "-a", from+"/x.yaml", s.path(""))
		},
		"rsync itself, in place": func(t *testing.T, s *scene, round int) {
			from := t.TempDir()
			write(t, filepath.Join(from, "x.yaml"), entry(t, "x", round))
			program(t, "rsync", "-a", "--inplace", from+"/x.yaml", s.path(""))
		},
		"cp -r": func(t *testing.T, s *scene, round int) {
			from := t.TempDir()
			write(t, filepath.Join(from, "x.yaml"), entry(t, "x", round))
			program(t, "cp", "-r", from+"/.", s.path(""))
		},
		"sed -i": func(t *testing.T, s *scene, round int) {
			write(t, s.path("sedX1y2z3"), entry(t, "x", round))
			must(t, os.Rename(s.path("sedX1y2z3"), s.path("x.yaml")))
		},
		"cp": func(t *testing.T, s *scene, round int) { overwrite(t, s.path("x.yaml"), entry(t, "x", round)) },
		"remove and write, as git does": func(t *testing.T, s *scene, round int) {
			must(t, os.Remove(s.path("x.yaml")))
			write(t, s.path("x.yaml"), entry(t, "x", round))
		},
		"rename to another name": func(t *testing.T, s *scene, round int) {
			from, to := "x.yaml", "z.yaml"
			if round%2 == 0 {
				from, to = to, from
			}
			must(t, os.Rename(s.path(from), s.path(to)))
			replace(t, s.path(to), entry(t, "x", round))
		},
		"to another directory": func(t *testing.T, s *scene, round int) {
			from, to := fmt.Sprint("d", round-1, "/x.yaml"), fmt.Sprint("d", round, "/x.yaml")
			if round == 1 {
				from = "x.yaml"
			}
			must(t, os.MkdirAll(filepath.Dir(s.path(to)), 0o755))
			write(t, s.path(to), entry(t, "x", round))
			must(t, os.Remove(s.path(from)))
			if round > 1 {
				must(t, os.Remove(filepath.Dir(s.path(from))))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "x.yaml"), entry(t, "x", 0))
			write(t, filepath.Join(dir, "y.yaml"), entry(t, "y", 0))
			s := follow(t, dir, patient)
			for round := range 2 {
				edit(t, s, round+1)
				s.awaitRound("x", strconv.Itoa(round+1))
			}
			s.neverWithout(1, "x", "y")
			s.awaitSound()
		})
	}
}

// program skips the test if the program is not installed.
func program(t *testing.T, name string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	c := exec.CommandContext(t.Context(), path, args...)
	c.Env = append(os.Environ(), "TERM=dumb", "HOME="+t.TempDir())
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// overwrite writes a file in two halves, in place.
func overwrite(t testing.TB, name, text string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	must(t, err)
	for _, half := range []string{text[:len(text)/2], text[len(text)/2:]} {
		_, err := f.WriteString(half)
		must(t, err)
	}
	must(t, f.Close())
}

// TestConfigMap: the kubelet swaps a symbolic link, and all files behind it change.
func TestConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	volume := func(round int) {
		t.Helper()
		version := fmt.Sprintf("..2026_%d", round)
		must(t, os.MkdirAll(filepath.Join(dir, version, "deep"), 0o755))
		write(t, filepath.Join(dir, version, "x.yaml"), entry(t, "x", round))
		write(t, filepath.Join(dir, version, "deep", "y.yaml"), entry(t, "y", round))
		must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		if round > 0 {
			must(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", round-1))))
		}
	}
	volume(0)
	must(t, os.Symlink("..data/x.yaml", filepath.Join(dir, "x.yaml")))
	must(t, os.Symlink("..data/deep", filepath.Join(dir, "deep")))
	s := follow(t, dir)
	for round := range 5 {
		volume(round + 1)
		s.awaitRound("x", strconv.Itoa(round+1))
		s.awaitRound("y", strconv.Itoa(round+1))
	}
	s.neverWithout(1, "x", "y")
	for _, snapshot := range s.snapshots() {
		x, y := snapshot.Get(cachetest.Key("a", "x")), snapshot.Get(cachetest.Key("a", "y"))
		if cachetest.Round(x) != cachetest.Round(y) {
			t.Errorf("snapshot %s has x of round %s and y of %s", snapshot.Version(), cachetest.Round(x), cachetest.Round(y))
		}
	}
}

// TestSwappedRoot: the directory, or a parent of it, is a symbolic link that is swapped.
func TestSwappedRoot(t *testing.T) {
	t.Parallel()
	for _, below := range []string{"", "config"} {
		t.Run("below "+below, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			release := func(round int) {
				t.Helper()
				dir := filepath.Join(top, strconv.Itoa(round))
				must(t, os.MkdirAll(filepath.Join(dir, below), 0o755))
				write(t, filepath.Join(dir, below, "x.yaml"), entry(t, "x", round))
				must(t, os.Symlink(strconv.Itoa(round), filepath.Join(top, "next")))
				must(t, os.Rename(filepath.Join(top, "next"), filepath.Join(top, "current")))
			}
			release(0)
			s := follow(t, filepath.Join(top, "current", below))
			for round := range 5 {
				release(round + 1)
				s.awaitRound("x", strconv.Itoa(round+1))
			}
			s.neverWithout(1, "x")
		})
	}
}

// TestGitCheckout switches between two branches of 2,000 files, all of which differ.
func TestGitCheckout(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	const count = 2000
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"}, args...)...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	fill := func(round int) {
		for i := range count {
			name := filepath.Join(dir, fmt.Sprint("d", i%20), fmt.Sprint("x", i, ".yaml"))
			must(t, os.MkdirAll(filepath.Dir(name), 0o755))
			write(t, name, entry(t, fmt.Sprint("x", i), round))
		}
	}
	git("init", "-q", "-b", "one")
	fill(1)
	git("add", ".")
	git("commit", "-q", "-m", "one")
	git("checkout", "-q", "-b", "two")
	fill(2)
	git("commit", "-q", "-a", "-m", "two")
	s := follow(t, dir, patient)
	for _, branch := range []string{"one", "two", "one"} {
		from := s.Snapshot().Revision()
		git("checkout", "-q", branch)
		round := map[string]string{"one": "1", "two": "2"}[branch]
		s.await("all are of "+branch, func() bool {
			for object := range s.Snapshot().List(schema.ServiceEntry, "") {
				if cachetest.Round(object) != round {
					return false
				}
			}
			return true
		})
		for _, snapshot := range s.snapshots()[from-1:] {
			if n := snapshot.Configs().Len(); n != count {
				t.Errorf("snapshot %s has %d objects", snapshot.Version(), n)
			}
		}
		t.Logf("%s: %d snapshots", branch, s.Snapshot().Revision()-from)
		if n := s.Snapshot().Revision() - from; n > 20 {
			t.Errorf("a checkout made %d snapshots", n)
		}
	}
}

// TestSlowCopy: directories that fill file by file are followed.
func TestSlowCopy(t *testing.T) {
	t.Parallel()
	s := follow(t, t.TempDir())
	for i := range 10 {
		name := fmt.Sprint("x", i)
		must(t, os.MkdirAll(s.path(fmt.Sprintf("a/b%d/c", i%3)), 0o755))
		overwrite(t, s.path(fmt.Sprintf("a/b%d/c/%s.yaml", i%3, name)), entry(t, name, 1))
		if i%2 == 0 {
			s.awaitRound(name, "1")
		}
	}
	s.awaitRound("x9", "1")
	s.awaitSound()
	count := 0
	for _, snapshot := range s.snapshots() {
		if n := snapshot.Configs().Len(); n < count {
			t.Errorf("snapshot %s has lost objects", snapshot.Version())
		} else {
			count = n
		}
	}
}

// TestRootAway: the directory is removed and comes back.
func TestRootAway(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mesh")
	s, _ := launch(t, dir)
	s.await("it says that there is no directory", func() bool { return s.Degraded() != nil })
	if s.HasSynced() || s.Ready() == nil {
		t.Error("it has synced without a directory")
	}
	must(t, os.Mkdir(dir, 0o755))
	s.await("it has synced", s.HasSynced)
	s.awaitSound()
	s.put("deep/x.yaml", entry(t, "x", 1))
	s.put("y.yaml", entry(t, "y", 1))
	s.awaitRound("x", "1")
	s.awaitRound("y", "1")
	from := s.Snapshot().Revision()
	for round := 2; round < 5; round++ {
		must(t, os.RemoveAll(dir))
		s.await("it says that the directory is gone", func() bool {
			err := s.Degraded()
			return err != nil && strings.Contains(err.Error(), "its last content is kept")
		})
		if s.Status().Since.IsZero() {
			t.Error("nobody knows since when")
		}
		s.put("y.yaml", entry(t, "y", round))
		s.put("deep/x.yaml", entry(t, "x", round))
		s.awaitRound("x", strconv.Itoa(round))
		s.awaitRound("y", strconv.Itoa(round))
		s.awaitSound()
	}
	s.neverWithout(from, "x", "y")
	if n := s.log.count("cannot be followed"); n != 4 {
		t.Errorf("it was logged %d times that the directory is away", n)
	}
}

// TestEmptied: a directory that loses all its files keeps its objects, until it has a
// file again.
func TestEmptied(t *testing.T) {
	t.Parallel()
	s := follow(t, t.TempDir())
	s.put("x.yaml", entry(t, "x", 1))
	s.put("y.yaml", entry(t, "y", 1))
	s.awaitRound("y", "1")
	s.awaitRound("x", "1")
	must(t, os.Remove(s.path("x.yaml")))
	s.awaitRound("x", "-")
	must(t, os.Remove(s.path("y.yaml")))
	s.await("it says so", func() bool { return s.Degraded() != nil })
	s.neverWithout(s.Snapshot().Revision(), "y")
	s.put("none.yaml", "# nothing is wanted\n")
	s.awaitRound("y", "-")
	s.awaitSound()
}

// TestUnreadable: a file that can no longer be read keeps its objects.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]struct {
		do   func(t *testing.T, name string)
		word string
	}{
		"a directory in its place": {func(t *testing.T, name string) { must(t, os.Remove(name)); must(t, os.Mkdir(name, 0o755)) }, "is a directory now"},
		"a pipe in its place":      {func(t *testing.T, name string) { must(t, os.Remove(name)); must(t, unix.Mkfifo(name, 0o644)) }, "no regular file"},
		"a link to nothing": {func(t *testing.T, name string) {
			must(t, os.Remove(name))
			must(t, os.Symlink("nowhere", name))
		}, "symbolic link to nothing"},
		"a loop of links": {func(t *testing.T, name string) {
			must(t, os.Remove(name))
			must(t, os.Symlink(filepath.Base(name), name))
		}, "too many levels"},
		"empty":     {func(t *testing.T, name string) { write(t, name, "") }, "has become empty"},
		"too large": {func(t *testing.T, name string) { must(t, os.Truncate(name, 1<<20)) }, "are the most"},
		"cut off, as by a full disk": {func(t *testing.T, name string) {
			text := entry(t, "x", 2) + "#" + strings.Repeat("-", 8192)
			write(t, name, text[:8192])
		}, "middle of a line"},
		"not allowed": {func(t *testing.T, name string) {
			if os.Geteuid() == 0 {
				t.Skip("root may read everything")
			}
			must(t, os.Chmod(name, 0))
		}, "permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := follow(t, t.TempDir(), func(o *file.Options) { o.MaxSize = 1 << 16 })
			s.put("x.yaml", entry(t, "x", 1))
			s.put("y.yaml", entry(t, "y", 1))
			s.awaitRound("x", "1")
			s.awaitRound("y", "1")
			from := s.Snapshot().Revision()
			spoil.do(t, s.path("x.yaml"))
			p := s.awaitProblem("x.yaml", spoil.word)
			if !p.Serving || p.Since.IsZero() {
				t.Errorf("the problem is %+v", p)
			}
			s.put("y.yaml", entry(t, "y", 2))
			s.awaitRound("y", "2")
			s.neverWithout(from, "x")
			must(t, os.RemoveAll(s.path("x.yaml")))
			s.put("x.yaml", entry(t, "x", 3))
			s.awaitRound("x", "3")
			s.awaitSound()
			if n := s.log.count(spoil.word); n != 1 {
				t.Errorf("it was logged %d times", n)
			}
		})
	}
}

// TestFullDisk writes more than fits on the disk.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no small disk to fill: mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := follow(t, dir)
	names := []string{"x0", "x1", "x2"}
	s.put("x.yaml", entries(t, 1, names...))
	s.awaitRound("x0", "1")
	from := s.Snapshot().Revision()
	long := entries(t, 2, names...)
	for i := 3; len(long) < 200_000; i++ {
		long += "---\n" + entry(t, fmt.Sprint("x", i), 2)
	}
	if err := os.WriteFile(s.path("x.yaml"), []byte(long), 0o644); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	s.awaitProblem("x.yaml")
	if err := os.WriteFile(s.path("x.yaml"), []byte(""), 0o644); err != nil {
		t.Fatal(err)
	}
	s.awaitProblem("x.yaml", "has become empty")
	s.neverWithout(from, names...)
	write(t, s.path("x.yaml"), entries(t, 3, names...))
	s.awaitRound("x2", "3")
	s.awaitSound()
}
