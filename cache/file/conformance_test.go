package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/file"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/files"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick is the timing of tests.
var quick = files.Timing{Settle: 10 * time.Millisecond, MaxSettle: 100 * time.Millisecond, Hold: time.Minute, Rescan: time.Minute}

func TestConformance(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, func(t testing.TB) cachetest.Subject {
		dir := t.TempDir()
		worker := cache.NewWorker()
		c := file.New(file.Options{Dir: dir, Worker: worker, Schemas: schema.Pilot(), Timing: quick})
		store := &written{Store: memory.New(schema.Pilot(), memory.Options{}), t: t, dir: dir}
		return cachetest.Subject{Cache: c, Store: store, Worker: worker, ReadOnly: true, Settled: func(ctx context.Context, version string) (*cache.Snapshot, error) {
			return store.shown(ctx, c, version)
		}}
	})
}

// written is a store whose objects stand in files, one for each namespace.
type written struct {
	*memory.Store
	t   testing.TB
	dir string

	mu      sync.Mutex // guards digests, and keeps the files in the order of the versions
	digests map[string]string
}

// Apply writes the files of what it changes.
func (w *written) Apply(ctx context.Context, ops []storage.Op) (string, []storage.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	version, results, err := w.Store.Apply(ctx, ops)
	if err != nil {
		return version, results, err
	}
	namespaces := map[string]bool{}
	for _, op := range ops {
		namespaces[op.Target().Namespace] = true
	}
	for namespace := range namespaces {
		w.write(ctx, namespace)
	}
	if w.digests == nil {
		w.digests = map[string]string{}
	}
	all, err := w.List(ctx, schema.ServiceEntry, "")
	if err != nil {
		return "", nil, err
	}
	w.digests[version] = digest(all)
	return version, results, nil
}

func (w *written) write(ctx context.Context, namespace string) {
	objects, err := w.List(ctx, schema.ServiceEntry, namespace)
	if err != nil {
		w.t.Error(err)
	}
	text := "# the namespace " + namespace + "\n"
	for _, object := range objects {
		text += "---\n" + yamlOf(w.t, object)
	}
	replace(w.t, filepath.Join(w.dir, namespace+".yaml"), text)
}

// yamlOf writes what a user would.
func yamlOf(t testing.TB, object *config.Config) string {
	t.Helper()
	c := *object
	c.ResourceVersion, c.UID, c.Generation, c.CreationTimestamp = "", "", 0, time.Time{}
	text, err := config.ToYAML(&c)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// replace writes a file as rsync does.
func replace(t testing.TB, name, text string) {
	t.Helper()
	temporary := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".tmp")
	write(t, temporary, text)
	if err := os.Rename(temporary, name); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// List returns the objects as the cache has them.
func (w *written) List(ctx context.Context, kind config.GroupVersionKind, namespace string) ([]*config.Config, error) {
	objects, err := w.Store.List(ctx, kind, namespace)
	for i, object := range objects {
		objects[i] = object.Clone()
		objects[i].CreationTimestamp = time.Time{}
		if err := file.Stamp(objects[i], ""); err != nil {
			return nil, err
		}
	}
	return objects, err
}

func digest(objects []*config.Config) string {
	var b strings.Builder
	for _, object := range objects {
		fmt.Fprintln(&b, object.Key(), object.ResourceVersion)
	}
	return b.String()
}

// shown waits for a version, or a later one.
func (w *written) shown(ctx context.Context, c *file.Cache, version string) (*cache.Snapshot, error) {
	from, err := strconv.Atoi(version)
	if err != nil {
		return nil, err
	}
	for {
		snapshot := c.Snapshot()
		objects, err := c.List(ctx, schema.ServiceEntry, "")
		if err == nil && c.Snapshot() == snapshot && snapshot != nil && w.has(digest(objects), from) {
			return snapshot, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// has says whether a version from one on has a content.
func (w *written) has(content string, from int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for version, digest := range w.digests {
		if n, _ := strconv.Atoi(version); n >= from && digest == content {
			return true
		}
	}
	return false
}
