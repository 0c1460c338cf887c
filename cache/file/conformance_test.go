package file_test

import (
	"context"
	"os"
	"path/filepath"
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

var quick = files.Timing{Settle: 10 * time.Millisecond, MaxSettle: 100 * time.Millisecond, Hold: time.Minute, Rescan: time.Minute}

func TestConformance(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, func(t testing.TB) cachetest.Subject {
		dir := t.TempDir()
		worker := cache.NewWorker()
		c := file.New(file.Options{Dir: dir, Worker: worker, Schemas: schema.Pilot(), Timing: quick})
		store := &written{Store: memory.New(schema.Pilot(), memory.Options{}), t: t, dir: dir}
		return cachetest.Subject{Cache: c, Store: store, Worker: worker, ReadOnly: true, Settled: func(ctx context.Context, version string) (*cache.Snapshot, error) {
			return store.contents.Shown(ctx, c, version)
		}}
	})
}

// written is a store that writes its objects to files, one for each namespace.
type written struct {
	*memory.Store
	t   testing.TB
	dir string

	mu       sync.Mutex // keeps the files in the order of the versions
	contents cachetest.Contents
}

// Apply writes the files of the namespaces that it changes.
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
	all, err := w.List(ctx, schema.ServiceEntry, "")
	if err != nil {
		return "", nil, err
	}
	w.contents.Note(version, all)
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

// yamlOf returns the YAML that a user would write for an object.
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

// List returns the objects as the cache shows them.
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
