package aggregate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/file"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// testSource is a read-only source whose snapshots a test publishes.
type testSource struct{ *cache.Feed }

func (testSource) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// large is an aggregate of three sources that share n objects. The first shadows a tenth
// of the middle one, and that a tenth of the last.
type large struct {
	parts    [3]testSource
	names    [3][]string // names of objects that count, by source
	round    int
	updates  chan struct{} // one for each update
	snapshot [3]*cache.Snapshot
}

func newLarge(t testing.TB, n int) *large {
	t.Helper()
	l := &large{updates: make(chan struct{}, 1)}
	worker := cache.NewWorker()
	o := aggregate.Options{Worker: worker, FirstSync: time.Hour}
	for i, name := range []string{"first", "store", "last"} {
		l.parts[i] = testSource{cache.NewFeed(cache.FeedOptions{Worker: cache.NewWorker(), Schemas: schema.Pilot()})}
		o.Sources = append(o.Sources, aggregate.Source{Name: name, Cache: l.parts[i]})
		content := cache.Content{}
		for k := range n / 3 {
			object := l.object(fmt.Sprintf("%s-%06d", name, k))
			if k%10 == 0 {
				object = l.object(fmt.Sprintf("shared-%06d", k))
			} else {
				l.names[i] = append(l.names[i], object.Name)
			}
			content.Configs = content.Configs.Set(object.Key().Path(), object)
		}
		l.snapshot[i] = (*cache.Snapshot)(nil).Next(1, content)
		l.parts[i].Publish(l.snapshot[i])
	}
	o.Store = l.parts[1]
	all, err := aggregate.MakeCache(o)
	if err != nil {
		t.Fatal(err)
	}
	r := cachetest.NewRig(t, cachetest.Subject{Cache: all, Worker: worker})
	r.Handler(schema.ServiceEntry, func(_, _ *config.Config, event cache.Event) {
		if event == cache.EventUpdate {
			l.updates <- struct{}{}
		}
	})
	r.Start()
	return l
}

func (l *large) object(name string) *config.Config {
	l.round++
	object := cachetest.ServiceEntry("a", name, l.round)
	object.ResourceVersion = fmt.Sprint(l.round)
	return object
}

// change changes an object of a source, and waits until the handler has got it.
func (l *large) change(i int) {
	object := l.object(l.names[i][l.round*7919%len(l.names[i])])
	content := cache.Content{Configs: l.snapshot[i].Configs().Set(object.Key().Path(), object)}
	l.snapshot[i] = l.snapshot[i].Next(l.snapshot[i].Revision()+1, content)
	l.parts[i].Publish(l.snapshot[i])
	<-l.updates
}

// TestOneChangeOfASourceCostsTheSameAmongManyObjects: from the snapshot of any source to
// the handler, a change allocates at most twice as often among 50,000 objects in three
// sources as among 5,000. Not parallel: it counts the allocations of the process.
func TestOneChangeOfASourceCostsTheSameAmongManyObjects(t *testing.T) {
	var allocations [2][3]float64
	for size, n := range []int{5_000, 50_000} {
		l := newLarge(t, n)
		for i := range l.parts {
			allocations[size][i] = testing.AllocsPerRun(200, func() { l.change(i) })
		}
	}
	for i, name := range []string{"the first source", "the store", "the last source"} {
		few, many := allocations[0][i], allocations[1][i]
		t.Logf("%s: %.0f allocations among 5,000 objects, %.0f among 50,000", name, few, many)
		if many > 2*few {
			t.Errorf("%s: a change allocates %.0f times among 5,000 objects and %.0f times among 50,000", name, few, many)
		}
	}
}

// BenchmarkThreeSources measures an aggregate of an etcd and two directories, which
// share 50,000 objects, a hundred to a file: the start, the memory of an object once it
// runs, and one change in each source, from the write to the handler. The change in a
// file includes the time for which the file must be at rest.
func BenchmarkThreeSources(b *testing.B) {
	const objects, perFile = 50_000, 100
	client := etcdtest.Start(b)
	store, err := etcd.New(client, etcd.Options{Schemas: schema.Pilot(), MaxTxnOps: etcdtest.MaxTxnOps, MaxRequestBytes: etcdtest.MaxRequestBytes})
	if err != nil {
		b.Fatal(err)
	}
	filled := cachetest.NewRig(b, cachetest.Subject{Store: store})
	filled.Fill(objects / 3)
	dirs := []string{b.TempDir(), b.TempDir()}
	for i, dir := range dirs {
		for k := range objects / 3 / perFile {
			writeEntries(b, dir, i, k, perFile, 0)
		}
	}
	open := func(b *testing.B) (r *cachetest.Rig, updates chan struct{}) {
		worker := cache.NewWorker()
		own := mirror.New(client, mirror.Options{Worker: worker, Schemas: schema.Pilot(), Store: store})
		o := aggregate.Options{Worker: worker, Store: own, FirstSync: time.Hour, Sources: []aggregate.Source{{Name: "etcd", Cache: own}}}
		for _, dir := range dirs {
			o.Sources = append(o.Sources, aggregate.Source{Name: dir, Cache: file.New(file.Options{Dir: dir, Worker: cache.NewWorker(), Schemas: schema.Pilot()})})
		}
		all, err := aggregate.MakeCache(o)
		if err != nil {
			b.Fatal(err)
		}
		updates = make(chan struct{}, 1)
		r = cachetest.NewRig(b, cachetest.Subject{Cache: all, Store: store, Worker: worker})
		r.Handler(schema.ServiceEntry, func(_, _ *config.Config, event cache.Event) {
			if event == cache.EventUpdate {
				updates <- struct{}{}
			}
		})
		return r, updates
	}
	b.Run("start", func(b *testing.B) {
		for b.Loop() {
			r, _ := open(b)
			stop := r.Start()
			b.StopTimer()
			stop()
			b.StartTimer()
		}
	})
	before := inUse()
	r, updates := open(b)
	r.Start()
	each := float64(inUse()-before) / objects
	b.Run("change in etcd", func(b *testing.B) {
		for i := 1; b.Loop(); i++ {
			r.Put("n000", "object-000000", i)
			<-updates
		}
		b.ReportMetric(each, "B/object")
	})
	b.Run("change in a file", func(b *testing.B) {
		for i := 1; b.Loop(); i++ {
			writeEntries(b, dirs[1], 1, 0, perFile, i)
			<-updates
		}
	})
}

// inUse returns the memory in use after garbage collection.
func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// writeEntries writes file k of a directory. Its first object is of the given round.
func writeEntries(t testing.TB, dir string, of, k, count, round int) {
	t.Helper()
	var text []byte
	for i := range count {
		object := cachetest.ServiceEntry(fmt.Sprint("dir", of), fmt.Sprintf("object-%d-%d", k, i), 0)
		if i == 0 {
			object = cachetest.ServiceEntry(object.Namespace, object.Name, round)
		}
		one, err := config.ToYAML(object)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, one...), "\n---\n"...)
	}
	name := filepath.Join(dir, fmt.Sprint(k, ".yaml"))
	hidden := filepath.Join(dir, ".tmp")
	if err := os.WriteFile(hidden, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(hidden, name); err != nil {
		t.Fatal(err)
	}
}
