package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/history"
	"github.com/portolan-mesh/portolan/storage/schema"
)

var everything = storage.Selection{}

// log has the objects of a store at each of its versions.
type log struct {
	versions []string
	objects  map[string][]*config.Config
}

// all returns all objects that the store has now.
func (f *past) all() (objects []*config.Config) {
	f.Helper()
	for _, kind := range []config.GroupVersionKind{schema.ServiceEntry, schema.Sidecar} {
		of, err := f.store.List(f.Context(), kind, "")
		if err != nil {
			f.Fatal(err)
		}
		objects = append(objects, of...)
	}
	history.Order(objects)
	return objects
}

// live applies n random batches and records the objects after each.
func (f *past) live(n int) *log {
	f.Helper()
	const seed = 4
	random := rand.New(rand.NewPCG(seed, seed))
	l := &log{objects: map[string][]*config.Config{}}
	var candidates []*config.Config
	for _, namespace := range []string{"bank", "shop"} {
		candidates = append(candidates, entry(namespace, "a"), entry(namespace, "ab"), entry(namespace, "hot"), sidecar(namespace, "s"))
	}
	for i := range n {
		there := map[config.Key]bool{}
		for _, object := range f.all() {
			there[object.Key()] = true
		}
		ops := []storage.Op{op(storage.Put, entry("shop", "hot", fmt.Sprint(i)))}
		for _, place := range random.Perm(len(candidates))[:random.IntN(3)] {
			switch c := candidates[place].Clone(); {
			case c.Name == "hot" && c.Namespace == "shop":
			case there[c.Key()] && random.IntN(2) == 0:
				ops = append(ops, remove(c, ""))
			default:
				c.Labels = map[string]string{"n": fmt.Sprint(i)}
				ops = append(ops, op(storage.Put, c))
			}
		}
		if _, _, err := f.Store.Apply(origin(f.Context(), i), ops); err != nil {
			f.Fatal(err)
		}
		version := f.version()
		l.versions = append(l.versions, version)
		l.objects[version] = f.all()
		f.clock.pass(time.Second)
	}
	return l
}

// selections returns selections of each sort for the objects of a log.
func (l *log) selections() []storage.Selection {
	selections := []storage.Selection{
		everything, {Namespace: "shop"}, {Kind: schema.Sidecar}, {Kind: schema.ServiceEntry, Namespace: "bank"},
	}
	for _, namespace := range []string{"bank", "shop"} {
		for _, name := range []string{"a", "ab", "hot"} {
			selections = append(selections, storage.Selection{Kind: schema.ServiceEntry, Namespace: namespace, Name: name})
		}
		selections = append(selections, storage.Selection{Kind: schema.Sidecar, Namespace: namespace, Name: "s"})
	}
	return selections
}

// check compares the result of At for a version with the log. It returns false if the
// history does not reach back so far.
func (f *past) check(l *log, version string, selection storage.Selection) bool {
	f.Helper()
	got, err := f.Store.At(f.Context(), version, selection)
	if errors.Is(err, storage.ErrCompacted) {
		return false
	}
	if err != nil {
		f.Fatalf("at %s, %+v: %v", version, selection, err)
	}
	var want []*config.Config
	for _, object := range l.objects[version] {
		if selection.Has(object.Key()) {
			want = append(want, object)
		}
	}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		f.Fatalf("at %s, %+v (-want +got):\n%s", version, selection, d)
	}
	return true
}

var atTests = []historyTest{
	{"tells what there was at every version", func(f *past) {
		l := f.live(30)
		for _, version := range l.versions {
			for _, of := range l.selections() {
				if !f.check(l, version, of) {
					f.Fatalf("at %s, %+v: compacted", version, of)
				}
			}
		}
	}},
	{"tells it when the ledger is compacted", func(f *past) {
		empty := f.version()
		l := f.live(30)
		f.Compact(f.T, l.versions[len(l.versions)-1])
		for _, version := range append(slices.Clone(l.versions), empty) {
			for _, of := range l.selections() {
				if !f.check(l, version, of) {
					f.Fatalf("at %s, %+v: compacted", version, of)
				}
			}
		}
	}},
	{"of what is no version is ErrInvalid", func(f *past) {
		version := f.create(entry("shop", "a"))
		for _, at := range []string{"", "0", "-1", "abc", version + "000"} {
			_, err := f.Store.At(f.Context(), at, everything)
			f.wantError(err, storage.ErrInvalid)
		}
		_, err := f.Store.At(f.Context(), version, storage.Selection{Kind: teapot})
		f.wantError(err, storage.ErrInvalid, "Teapot")
	}},
}

// expire advances the clock until all records are older than HistoryGrace.
func (f *past) expire() { f.clock.pass(storage.HistoryGrace) }

var pruneTests = []historyTest{
	{"removes what has enough newer, and no more", func(f *past) {
		f.create(entry("shop", "a", "0"))
		f.create(entry("shop", "cold", "0"))
		for i := range 6 {
			f.update(entry("shop", "a", fmt.Sprint(i+1)))
		}
		whole := f.history(entry("shop", "a"), 0)
		f.expire()
		if n := f.prune(storage.Retention{Keep: 3}); n != 4 {
			f.Errorf("removed %d records, want 4", n)
		}
		f.equal("history", whole[:3], f.history(entry("shop", "a"), 0))
		f.equal("history of another", 1, len(f.history(entry("shop", "cold"), 0)))
		f.unchanged(func() {
			if n := f.prune(storage.Retention{Keep: 3}); n != 0 {
				f.Errorf("then %d more", n)
			}
		})
	}},
	{"leaves a record that one of its objects needs", func(f *past) {
		f.apply(op(storage.Put, entry("shop", "a", "0")), op(storage.Put, entry("shop", "cold", "0")))
		for i := range 3 {
			f.update(entry("shop", "a", fmt.Sprint(i+1)))
		}
		f.expire()
		if n := f.prune(storage.Retention{Keep: 1}); n != 2 {
			f.Errorf("removed %d records, want 2", n)
		}
		if n := len(f.history(entry("shop", "cold"), 0)); n != 1 {
			f.Errorf("the other object has %d changes", n)
		}
		// The spec of a in the first batch was in the next record, and is gone with it.
		changes := f.history(entry("shop", "a"), 0)
		if len(changes) != 2 || changes[1].After == nil || changes[1].After.Spec != nil {
			f.Errorf("changes are %q", outline(changes))
		}
	}},
	{"leaves young records", func(f *past) {
		f.create(entry("shop", "a", "0"))
		f.update(entry("shop", "a", "1"))
		f.clock.pass(storage.HistoryGrace - time.Second)
		if n := f.prune(storage.Retention{Keep: 1}); n != 0 {
			f.Errorf("removed %d records, want none", n)
		}
	}},
	{"leaves what is told true: right or ErrCompacted", func(f *past) {
		l := f.live(40)
		newest := l.versions[len(l.versions)-1]
		f.expire()
		f.Compact(f.T, newest)
		f.prune(storage.Retention{Keep: 4, Deleted: storage.HistoryGrace + 10*time.Second})
		told := map[storage.Selection]int{}
		for _, version := range l.versions {
			for _, of := range l.selections() {
				if f.check(l, version, of) {
					told[of]++
				}
			}
		}
		hot := storage.Selection{Kind: schema.ServiceEntry, Namespace: "shop", Name: "hot"}
		if told[everything] < 5 || told[everything] > 20 || told[hot] < told[everything] {
			f.Errorf("all is told of %d versions of 40, want 5 or somewhat more; what changed in every one of %d, want no fewer",
				told[everything], told[hot])
		}
		if bank := (storage.Selection{Kind: schema.ServiceEntry, Namespace: "bank"}); told[bank] <= told[everything] {
			f.Errorf("a namespace where less changed is told of %d versions", told[bank])
		}
	}},
	{"makes what it removed ErrCompacted", func(f *past) {
		empty := f.version()
		first := f.create(entry("shop", "a", "0"))
		for i := range 3 {
			f.update(entry("shop", "a", fmt.Sprint(i+1)))
		}
		f.Compact(f.T, f.version())
		f.expire()
		f.prune(storage.Retention{Keep: 1})
		for _, version := range []string{empty, first} {
			_, err := f.Store.At(f.Context(), version, storage.Selection{Namespace: "shop"})
			f.wantError(err, storage.ErrCompacted, version)
		}
		if objects, err := f.Store.At(f.Context(), first, storage.Selection{Namespace: "bank"}); err != nil || len(objects) != 0 {
			f.Errorf("of another namespace: %v, %v", objects, err)
		}
	}},
	{"keeps the history of what is gone for as long as it is told", func(f *past) {
		f.create(entry("shop", "a"))
		f.create(entry("shop", "b"))
		f.delete(entry("shop", "a"), "")
		f.clock.pass(time.Hour)
		for _, tt := range []struct {
			deleted time.Duration
			want    int
		}{{0, 0}, {time.Hour + time.Second, 0}, {time.Hour, 2}} {
			if n := f.prune(storage.Retention{Keep: 5, Deleted: tt.deleted}); n != tt.want {
				f.Errorf("with %v: removed %d records, want %d", tt.deleted, n, tt.want)
			}
		}
		if a, b := f.history(entry("shop", "a"), 0), f.history(entry("shop", "b"), 0); len(a) != 0 || len(b) != 1 {
			f.Errorf("%d changes of the deleted object, %d of the other", len(a), len(b))
		}
	}},
	{"may be run by several at once, beside writers", func(f *past) {
		const n = 20
		for i := range n {
			f.apply(op(storage.Put, entry("shop", "a", fmt.Sprint(i))), op(storage.Put, sidecar(fmt.Sprint("ns", i%3), "s")))
		}
		f.expire()
		removed := make([]int, writers)
		var mu sync.Mutex
		f.together(func(i int) error {
			if i == 0 {
				_, err := f.Store.Update(f.Context(), entry("shop", "a", "new"))
				return err
			}
			n, err := f.Store.Prune(f.Context(), storage.Retention{Keep: 2})
			mu.Lock()
			defer mu.Unlock()
			removed[i] = n
			return err
		})
		f.expire()
		removed[0] = f.prune(storage.Retention{Keep: 2})
		left := len(f.records(storage.Query{}))
		total := 0
		for _, n := range removed {
			total += n
		}
		if total+left != n+1 || left != 2+3 {
			f.Errorf("removed %v, left %d of %d", removed, left, n+1)
		}
	}},
	{"of a retention that nobody can mean is ErrInvalid", func(f *past) {
		f.create(entry("shop", "a"))
		for _, r := range []storage.Retention{{}, {Keep: -1}, {Keep: 1, Deleted: -time.Second}} {
			_, err := f.Store.Prune(f.Context(), r)
			f.wantError(err, storage.ErrInvalid)
		}
	}},
}
