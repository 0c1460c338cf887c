package file_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache/cachetest"
)

// chaos edits a directory at random.
type chaos struct {
	t      *testing.T
	dir    string
	random *rand.Rand
	round  int
}

func (c *chaos) folder() string { return []string{"", "a", "b", "a/e", "b/e"}[c.random.IntN(5)] }

func (c *chaos) path() string {
	return filepath.Join(c.dir, c.folder(), fmt.Sprintf("f%d.yaml", c.random.IntN(4)))
}

// text returns a file of some objects, one of them broken if wanted.
func (c *chaos) text(broken bool) string {
	c.round++
	out := []string{"# a file"}
	for range c.random.IntN(4) {
		name := fmt.Sprint("x", c.random.IntN(12))
		if broken && c.random.IntN(4) == 0 {
			out = append(out, "a: [")
		} else {
			text := entry(c.t, name, c.round)
			if c.random.IntN(4) == 0 {
				text = strings.Replace(text, "namespace: a\n", "namespace: b\n", 1)
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, "\n---\n")
}

// edit makes one change in the directory. Missing files do not matter.
func (c *chaos) edit() {
	switch c.random.IntN(8) {
	case 0, 1, 2:
		name := c.path()
		must(c.t, os.MkdirAll(filepath.Dir(name), 0o755))
		write(c.t, name, c.text(true))
	case 3:
		name := c.path()
		must(c.t, os.MkdirAll(filepath.Dir(name), 0o755))
		replace(c.t, name, c.text(true))
	case 4:
		_ = os.Remove(c.path())
	case 5:
		_ = os.Rename(c.path(), c.path())
	case 6:
		_ = os.Rename(filepath.Join(c.dir, "a"), filepath.Join(c.dir, "b"))
		_ = os.Rename(filepath.Join(c.dir, "b", "e"), filepath.Join(c.dir, "a"))
	case 7:
		_ = os.RemoveAll(filepath.Join(c.dir, []string{"a", "b", "a/e"}[c.random.IntN(3)]))
	}
}

// mend makes every file sound.
func (c *chaos) mend() {
	err := filepath.WalkDir(c.dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			write(c.t, name, c.text(false))
		}
		return err
	})
	must(c.t, err)
	write(c.t, filepath.Join(c.dir, "last.yaml"), entry(c.t, "last", c.round))
}

// TestRandomEdits: after any edits, a cache that followed them has the same as one that
// reads the directory afresh.
func TestRandomEdits(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := &chaos{t: t, dir: t.TempDir(), random: rand.New(rand.NewPCG(seed, 0))}
	s := follow(t, c.dir)
	for range 12 {
		for range c.random.IntN(30) {
			c.edit()
		}
		c.mend()
		s.awaitRound("last", fmt.Sprint(c.round))
		s.await("it has what a new one has", func() bool {
			fresh, stop := launch(t, c.dir)
			defer stop()
			fresh.await("it has synced", fresh.HasSynced)
			return cachetest.Digest(t, fresh.Cache) == cachetest.Digest(t, s.Cache) &&
				cmp.Equal(texts(fresh), texts(s)) && s.Degraded() == nil
		})
	}
}

// texts returns the problems without their times.
func texts(s *scene) (out []string) {
	for _, p := range s.Problems() {
		out = append(out, p.String())
	}
	return out
}
