package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestASweepFindsWhatAScanWould: a sweep names each difference or makes the follower scan,
// and does neither without one.
func TestASweepFindsWhatAScanWould(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do     func(dir string) error
		differ []string
		other  bool
	}{
		"nothing":       {func(string) error { return nil }, nil, false},
		"a file":        {func(dir string) error { return os.WriteFile(filepath.Join(dir, "d", "a.yaml"), []byte("other"), 0o600) }, []string{"d/a.yaml"}, false},
		"a new file":    {func(dir string) error { return os.WriteFile(filepath.Join(dir, "n.yaml"), []byte("1"), 0o600) }, []string{"n.yaml"}, false},
		"a file aside":  {func(dir string) error { return os.WriteFile(filepath.Join(dir, "n.txt"), []byte("1"), 0o600) }, nil, false},
		"a hidden one":  {func(dir string) error { return os.WriteFile(filepath.Join(dir, ".n.yaml"), []byte("1"), 0o600) }, nil, false},
		"a file goes":   {func(dir string) error { return os.Remove(filepath.Join(dir, "d", "a.yaml")) }, nil, true},
		"a folder":      {func(dir string) error { return os.Mkdir(filepath.Join(dir, "n"), 0o700) }, nil, true},
		"a folder goes": {func(dir string) error { return os.RemoveAll(filepath.Join(dir, "d")) }, nil, true},
		"a folder is another": {func(dir string) error {
			return rename(filepath.Join(dir, "e"), filepath.Join(dir, "d"))
		}, nil, true},
		"what a link leads to": {func(dir string) error { return os.WriteFile(filepath.Join(dir, ".behind"), []byte("other"), 0o600) }, []string{"link.yaml"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for path, text := range map[string]string{"d/a.yaml": "1", "d/b.yaml": "1", "e/a.yaml": "1", "top.yaml": "1", ".behind": "1"} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(".behind", filepath.Join(dir, "link.yaml")); err != nil {
				t.Fatal(err)
			}
			f := readOnce(t, dir)
			if err := test.do(dir); err != nil {
				t.Fatal(err)
			}
			if !f.sweepable() {
				t.Fatal("it cannot be swept")
			}
			f.sweep(time.Now())
			got := <-f.swept
			if !slices.Equal(got.differ, test.differ) && !test.other || got.other != test.other {
				t.Errorf("the sweep found %+v", got)
			}
			f.takeSwept(got, time.Now())
			if touched := len(f.pending) > 0; touched != (len(test.differ) > 0 || name != "a folder" && test.other) {
				t.Errorf("%d files are looked at again", len(f.pending))
			}
		})
	}
}

// rename replaces a directory by another.
func rename(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// readOnce returns a follower that has read a whole directory, and gets no notifications.
func readOnce(t *testing.T, dir string) *follower[string] {
	t.Helper()
	o := Options[string]{Path: dir, Parse: func(_ string, data []byte) string { return string(data) }, Update: func(Update[string]) {}}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	o.Settle = time.Nanosecond
	f := newFollower(o)
	f.scan(time.Now())
	for end := time.Now().Add(time.Minute); !f.begun || len(f.pending) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(fmt.Sprint("it is not read: ", f.pending))
		}
		f.readDue(time.Now())
	}
	return f
}
