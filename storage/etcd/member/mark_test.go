package member_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/schema"

	"github.com/portolan-mesh/portolan/storage/logtest"
)

// usedDir returns a data directory with a store in which key has a value; beside is the
// mark beside it.
func usedDir(t *testing.T) (dir, beside string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	keep(t, member.Options{DataDir: dir, Logger: logger(t)}, "key")
	return dir, dir + ".portolan"
}

// keep starts a member, writes a key, and stops it.
func keep(t *testing.T, opts member.Options, key string) {
	t.Helper()
	m, err := member.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	put(t, m.Client(), key, "value")
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnEmptiedDirectoryIsRefused: whatever is left of it, the start fails and makes
// nothing.
func TestAnEmptiedDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	for name, empty := range map[string]func(t *testing.T, dir string) (says []string){
		"the volume is not mounted": func(t *testing.T, dir string) []string {
			remove(t, dir)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			return []string{dir + ".portolan"}
		},
		"the directory is gone": func(t *testing.T, dir string) []string {
			remove(t, dir)
			return []string{dir + ".portolan"}
		},
		"etcd's directory is gone": func(t *testing.T, dir string) []string {
			remove(t, filepath.Join(dir, "etcd"))
			return []string{filepath.Join(dir, "portolan.store") + " and " + dir + ".portolan"}
		},
		"it was copied without etcd's directory": func(t *testing.T, dir string) []string {
			remove(t, filepath.Join(dir, "etcd"), dir+".portolan")
			return []string{filepath.Join(dir, "portolan.store")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := usedDir(t)
			says := append(empty(t, dir), "mount its volume", "store restore FILE --data-dir "+dir, "remove "+dir)
			before, _ := os.ReadDir(dir)
			var err error
			for _, founding := range []member.Founding{member.FoundAsked, member.FoundNever, member.FoundFresh} { // a mark outranks all
				_, err = member.Start(t.Context(), member.Options{DataDir: dir, Founding: founding, Logger: logger(t)})
				if !errors.Is(err, member.ErrEmptied) {
					t.Fatalf("founding %d: %v, want ErrEmptied", founding, err)
				}
			}
			for _, words := range says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q does not say %q", err, words)
				}
			}
			if after, _ := os.ReadDir(dir); len(after) != len(before) {
				t.Errorf("%v was made of %v", after, before)
			}
			// Without the marks a new store begins, and is protected like any other.
			remove(t, filepath.Join(dir, "portolan.store"), dir+".portolan")
			keep(t, member.Options{DataDir: dir, Founding: member.FoundAsked, Logger: logger(t)}, "other")
			remove(t, filepath.Join(dir, "etcd"))
			if _, err := member.Start(t.Context(), member.Options{DataDir: dir, Logger: logger(t)}); !errors.Is(err, member.ErrEmptied) {
				t.Errorf("the new one, emptied: %v, want ErrEmptied", err)
			}
		})
	}
}

// TestNoStoreBeginsUnasked: a member that is to begin no store makes nothing in an empty
// directory and says what to do. Once it was asked to, it starts like any other.
func TestNoStoreBeginsUnasked(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	opts := member.Options{DataDir: dir, Founding: member.FoundNever, Logger: logger(t)}
	_, err := member.Start(t.Context(), opts)
	if !errors.Is(err, member.ErrNoStore) {
		t.Fatalf("%v, want ErrNoStore", err)
	}
	for _, words := range []string{dir + " is empty", "store restore FILE --data-dir " + dir, "--join", "--new-store"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%q does not say %q", err, words)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was made: %v", err)
	}
	opts.Founding = member.FoundAsked
	keep(t, opts, "key")
	opts.Founding = member.FoundNever
	keep(t, opts, "key")
}

// TestADirectoryWithAStoreStarts: a store of an older version without marks, a moved
// one, a copied one, and one whose member was asked to begin one.
func TestADirectoryWithAStoreStarts(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, dir, beside string) (opts member.Options){
		"of an older version": func(t *testing.T, dir, beside string) member.Options {
			remove(t, beside, filepath.Join(dir, "portolan.store"))
			return member.Options{DataDir: dir}
		},
		"moved": func(t *testing.T, dir, _ string) member.Options {
			if err := os.Rename(dir, dir+"2"); err != nil {
				t.Fatal(err)
			}
			return member.Options{DataDir: dir + "2"}
		},
		"copied": func(t *testing.T, dir, _ string) member.Options {
			if err := os.CopyFS(dir+"2", os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			return member.Options{DataDir: dir + "2"}
		},
		"as new": func(_ *testing.T, dir, _ string) member.Options {
			return member.Options{DataDir: dir, Founding: member.FoundAsked}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, beside := usedDir(t)
			opts := prepare(t, dir, beside)
			opts.Logger = logger(t)
			m := startMember(t, opts)
			if got := get(t, m.Client(), "key"); got != "value" {
				t.Errorf("key is %q", got)
			}
			for _, mark := range []string{opts.DataDir + ".portolan", filepath.Join(opts.DataDir, "portolan.store")} {
				if _, err := os.Stat(mark); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestAMarkThatCannotBeMade: the server goes on, and the log says who can make the mark.
func TestAMarkThatCannotBeMade(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, strings.Repeat("d", 250)) // too long a name for a mark beside it
	var said logtest.Log
	m := startMember(t, member.Options{DataDir: dir, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	put(t, m.Client(), "key", "value")
	if said.Count("let a user who can do so make this file") != 1 {
		t.Error("it was not said that there is no mark")
	}
}

// TestASnapshotIsRestoredIntoAnEmptiedDirectory: as the error advises.
func TestASnapshotIsRestoredIntoAnEmptiedDirectory(t *testing.T) {
	t.Parallel()
	dir, _ := usedDir(t)
	remove(t, filepath.Join(dir, "etcd"))
	file, _ := saved(t)
	if _, err := member.Restore(t.Context(), member.RestoreOptions{File: file, DataDir: dir, Schemas: schema.Pilot()}); err != nil {
		t.Fatal(err)
	}
	m := startMember(t, member.Options{DataDir: dir, Logger: logger(t)})
	if got := get(t, m.Client(), "key"); got != "value4" {
		t.Errorf("key is %q", got)
	}
}

// TestALogThatIsGoneIsDamage: what is left is not a store, and no new store may begin in
// it.
func TestALogThatIsGoneIsDamage(t *testing.T) {
	t.Parallel()
	dir, _ := usedDir(t)
	remove(t, filepath.Join(dir, "etcd", "member", "wal"))
	for _, founding := range []member.Founding{member.FoundFresh, member.FoundNever, member.FoundAsked} {
		if _, err := member.Start(t.Context(), member.Options{DataDir: dir, Founding: founding, Logger: logger(t)}); !errors.Is(err, member.ErrDamaged) {
			t.Errorf("founding %d: %v, want ErrDamaged", founding, err)
		}
	}
}

// TestAChildDoesNotBeginANewStore: neither the first process, nor a later one after
// one was asked for.
func TestAChildDoesNotBeginANewStore(t *testing.T) {
	t.Parallel()
	dir, beside := usedDir(t)
	remove(t, filepath.Join(dir, "etcd"))
	opts := childOptions(t, dir)
	child, err := member.NewChild(opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child.Start(t.Context()); !errors.Is(err, member.ErrEmptied) {
		t.Fatalf("%v, want ErrEmptied", err)
	}
	remove(t, filepath.Join(dir, "portolan.store"), beside)
	opts.Founding = member.FoundAsked
	child, endpoint := startChild(t, opts)
	put(t, clientOf(t, endpoint), "key", "value")
	remove(t, filepath.Join(dir, "etcd"))
	kill(t, readLock(t, dir).PID, syscall.SIGKILL)
	eventually(t, "the child says why it does not start again", func() bool {
		err := child.Ready()
		return err != nil && strings.Contains(err.Error(), member.ErrEmptied.Error())
	})
}
