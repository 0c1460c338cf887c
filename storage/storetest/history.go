package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Historical is a store that RunHistory can hold to the contract.
type Historical interface {
	storage.ConfigStore
	storage.Batcher
	storage.Historian
}

// HistorySubject is a new and empty store of the kinds of schema.Pilot.
type HistorySubject struct {
	Store Historical
	// Compact makes the ledger of the store forget the versions before one.
	Compact func(t *testing.T, version string)
}

// RunHistory holds a store to the contract of storage.Historian. open returns a
// new subject at every call, whose clock is now.
func RunHistory(t *testing.T, open func(t *testing.T, now func() time.Time) HistorySubject) {
	groups := []struct {
		name  string
		tests []historyTest
	}{
		{"History", changeTests},
		{"Records", recordTests},
		{"At", atTests},
		{"Prune", pruneTests},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.tests {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					f := &past{clock: &clock{}}
					f.clock.set(time.Date(2030, 1, 1, 12, 0, 0, int(7*time.Millisecond), time.UTC))
					f.HistorySubject = open(t, f.clock.now)
					f.fixture = &fixture{T: t, store: f.Store}
					c.run(f)
				})
			}
		})
	}
}

// historyTest is one sentence of the contract.
type historyTest struct {
	name string
	run  func(*past)
}

// past is a test with a store of its own.
type past struct {
	*fixture
	HistorySubject
	clock *clock
}

type clock struct{ at atomic.Pointer[time.Time] }

func (c *clock) set(t time.Time)       { c.at.Store(&t) }
func (c *clock) now() time.Time        { return *c.at.Load() }
func (c *clock) pass(by time.Duration) { c.set(c.now().Add(by)) }

func (f *past) history(c *config.Config, limit int) []storage.Change {
	f.Helper()
	changes, err := f.Store.History(f.Context(), c.Key(), limit)
	if err != nil {
		f.Fatalf("history of %s: %v", c.Key(), err)
	}
	return changes
}

func (f *past) records(q storage.Query) []storage.Record {
	f.Helper()
	records, err := f.Store.Records(f.Context(), q)
	if err != nil {
		f.Fatalf("records of %+v: %v", q, err)
	}
	return records
}

func (f *past) prune(r storage.Retention) int {
	f.Helper()
	removed, err := f.Store.Prune(f.Context(), r)
	if err != nil {
		f.Fatalf("prune: %v", err)
	}
	return removed
}

// equal compares a result of the history with the expected one.
func (f *past) equal(what string, want, got any) {
	f.Helper()
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		f.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func outline(changes []storage.Change) (lines []string) {
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s -> %s", c.Revision, c.Key, c.Outcome, objectText(c.Before), objectText(c.After)))
	}
	return lines
}

// objectText returns an object in short: its resource version and the content of its spec.
func objectText(c *config.Config) string {
	switch {
	case c == nil:
		return "nothing"
	case c.Spec == nil:
		return c.ResourceVersion + " unknown"
	}
	entry, _ := c.Spec.(*networking.ServiceEntry)
	return fmt.Sprintf("%s %v", c.ResourceVersion, entry.GetHosts())
}

var me = storage.Origin{User: "ada", Address: "192.0.2.1:5", Tool: "portolan/1.2", Message: "more ships"}

var changeTests = []historyTest{
	{"tells who changed what, when, from where and why", func(f *past) {
		a := entry("shop", "a")
		created := f.create(a)
		before := f.get(a)
		f.clock.pass(time.Minute)
		at := f.clock.now()
		after := entry("shop", "a", "2.example")
		configured, err := f.Store.Update(storage.WithOrigin(f.Context(), me), after)
		if err != nil {
			f.Fatal(err)
		}
		want := []storage.Change{
			{
				Revision: configured, Time: at, Origin: me, Key: a.Key(),
				Outcome: storage.Configured, Before: before, After: f.get(a),
			},
			{
				Revision: created, Time: at.Add(-time.Minute), Key: a.Key(),
				Outcome: storage.Created, After: before,
			},
		}
		f.equal("history", want, f.history(a, 0))
	}},
	{"is newest first, as long as was asked for, and reaches beyond a deletion", func(f *past) {
		a := entry("shop", "a", "1")
		first := f.create(a)
		second := f.update(entry("shop", "a", "2"))
		f.create(entry("shop", "ab", "x"))
		gone := f.delete(a, "")
		f.create(entry("bank", "a", "x"))
		again := f.create(entry("shop", "a", "3"))
		last := f.update(entry("shop", "a", "4"))
		want := []string{
			last + " serviceentry/shop/a configured: " + again + " [3] -> " + last + " [4]",
			again + " serviceentry/shop/a created: nothing -> " + again + " [3]",
			gone + " serviceentry/shop/a deleted: " + second + " [2] -> nothing",
			second + " serviceentry/shop/a configured: " + first + " [1] -> " + second + " [2]",
			first + " serviceentry/shop/a created: nothing -> " + first + " [1]",
		}
		f.equal("history", want, outline(f.history(a, 0)))
		f.equal("two of it", want[:2], outline(f.history(a, 2)))
	}},
	{"has nothing of what changed nothing or was refused", func(f *past) {
		a := entry("shop", "a")
		f.create(a)
		f.update(a)
		_, err := f.Store.Create(f.Context(), a)
		f.wantError(err, storage.ErrExists)
		_, err = f.Store.Update(f.Context(), versioned(entry("shop", "a", "2"), "999"))
		f.wantError(err, storage.ErrConflict)
		if n := len(f.history(a, 0)); n != 1 {
			f.Errorf("%d changes, want 1", n)
		}
	}},
	{"survives the compaction of the ledger", func(f *past) {
		a := entry("shop", "a", "1")
		first := f.create(a)
		f.update(entry("shop", "a", "2"))
		f.delete(a, "")
		last := f.create(entry("shop", "b"))
		before := f.history(a, 0)
		f.Compact(f.T, last)
		_, err := f.store.GetResourceAtVersion(f.Context(), first, a.Key())
		f.wantError(err, storage.ErrCompacted, "serviceentry/shop/a", first)
		f.equal("history", before, f.history(a, 0))
		if len(before) != 3 {
			f.Errorf("%d changes, want 3", len(before))
		}
	}},
	{"accepts every served version of a kind, and no unknown kind", func(f *past) {
		a := entry("shop", "a")
		f.create(a)
		a.Version = "v1beta1"
		if changes := f.history(a, 0); len(changes) != 1 || changes[0].Key != entry("shop", "a").Key() {
			f.Errorf("changes are %+v", changes)
		}
		_, err := f.Store.History(f.Context(), config.Key{Kind: teapot, Namespace: "shop", Name: "a"}, 0)
		f.wantError(err, storage.ErrInvalid, "Teapot")
	}},
	{"of an object that never was is empty", func(f *past) {
		f.create(entry("shop", "a"))
		if changes := f.history(entry("shop", "b"), 0); len(changes) != 0 {
			f.Errorf("changes are %+v", changes)
		}
	}},
	{"replaces what is no text in an origin", func(f *past) {
		a := entry("shop", "a")
		ctx := storage.WithOrigin(f.Context(), storage.Origin{User: "a\xffb", Message: "ok"})
		if _, err := f.Store.Create(ctx, a); err != nil {
			f.Fatal(err)
		}
		f.equal("origin", storage.Origin{User: "a\uFFFDb", Message: "ok"}, f.history(a, 0)[0].Origin)
	}},
}

// sidecar is an object of another kind than entry.
func sidecar(namespace, name string) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.Sidecar, Namespace: namespace, Name: name},
		Spec: &networking.Sidecar{WorkloadSelector: &networking.WorkloadSelector{Labels: map[string]string{"app": name}}},
	}
}

// voyage makes four revisions: two objects in one, a change of one in another
// namespace, a batch over both, and a deletion.
func (f *past) voyage() (revisions [4]string) {
	f.Helper()
	revisions[0], _ = f.apply(op(storage.Put, entry("shop", "a", "1")), op(storage.Put, entry("shop", "b", "1")))
	revisions[1] = f.create(sidecar("bank", "s"))
	revisions[2], _ = f.apply(
		op(storage.Put, entry("shop", "b", "2")), op(storage.Put, entry("shop", "a", "1")), op(storage.Put, entry("bank", "c", "1")))
	revisions[3] = f.delete(entry("shop", "a"), "")
	return revisions
}

func revisionsOf(records []storage.Record) (revisions []string) {
	for _, r := range records {
		revisions = append(revisions, r.Revision)
	}
	return revisions
}

var recordTests = []historyTest{
	{"are one for each batch, without what it left unchanged", func(f *past) {
		r := f.voyage()
		records := f.records(storage.Query{})
		f.equal("revisions", []string{r[3], r[2], r[1], r[0]}, revisionsOf(records))
		want := []string{
			r[2] + " serviceentry/shop/b configured: " + r[0] + " [1] -> " + r[2] + " [2]",
			r[2] + " serviceentry/bank/c created: nothing -> " + r[2] + " [1]",
		}
		f.equal("changes of the batch", want, outline(records[1].Changes))
		if !records[1].Time.Equal(f.clock.now()) {
			f.Errorf("time is %v, want %v", records[1].Time, f.clock.now())
		}
	}},
	{"of nothing are none", func(f *past) {
		a := f.create(entry("shop", "a"))
		f.apply(op(storage.Put, entry("shop", "a")))
		f.apply()
		f.refuse(op(storage.Put, entry("shop", "b")), remove(entry("shop", "c"), ""))
		f.equal("revisions", []string{a}, revisionsOf(f.records(storage.Query{})))
	}},
	{"can be of a namespace, a kind, both, or one object", func(f *past) {
		r := f.voyage()
		older := schema.ServiceEntry
		older.Version = "v1alpha3"
		for _, tt := range []struct {
			selection storage.Selection
			want      []string
		}{
			{storage.Selection{Namespace: "shop"}, []string{r[3], r[2], r[0]}},
			{storage.Selection{Namespace: "bank"}, []string{r[2], r[1]}},
			{storage.Selection{Namespace: "ban"}, nil},
			{storage.Selection{Kind: schema.Sidecar}, []string{r[1]}},
			{storage.Selection{Kind: older, Namespace: "bank"}, []string{r[2]}},
			{storage.Selection{Kind: schema.ServiceEntry, Namespace: "shop", Name: "b"}, []string{r[2], r[0]}},
		} {
			records := f.records(storage.Query{Selection: tt.selection})
			f.equal(fmt.Sprintf("revisions of %+v", tt.selection), tt.want, revisionsOf(records))
			for _, record := range records {
				for _, c := range record.Changes {
					if !tt.selection.Has(c.Key) {
						f.Errorf("%+v has %s", tt.selection, c.Key)
					}
				}
			}
		}
	}},
	{"can be those between two revisions, and the newest of them", func(f *past) {
		r := f.voyage()
		for _, tt := range []struct {
			query storage.Query
			want  []string
		}{
			{storage.Query{After: r[0], Until: r[2]}, []string{r[2], r[1]}},
			{storage.Query{After: r[2]}, []string{r[3]}},
			{storage.Query{Until: r[1]}, []string{r[1], r[0]}},
			{storage.Query{Until: r[2], Limit: 2}, []string{r[2], r[1]}},
			{storage.Query{After: r[3]}, nil},
		} {
			f.equal(fmt.Sprintf("revisions of %+v", tt.query), tt.want, revisionsOf(f.records(tt.query)))
		}
		// A record has the result of a change even if the query omits the change that
		// followed.
		records := f.records(storage.Query{Until: r[0]})
		f.equal("first", r[0]+" serviceentry/shop/b created: nothing -> "+r[0]+" [1]", outline(records[0].Changes)[1])
	}},
	{"of what cannot be are ErrInvalid", func(f *past) {
		for _, q := range []storage.Query{
			{After: "x"}, {Until: "-1"},
			{Selection: storage.Selection{Kind: teapot}},
			{Selection: storage.Selection{Name: "a"}},
			{Selection: storage.Selection{Kind: schema.Sidecar, Name: "a"}},
			{Selection: storage.Selection{Namespace: "a/b"}},
		} {
			_, err := f.Store.Records(f.Context(), q)
			f.wantError(err, storage.ErrInvalid)
		}
	}},
	{"survive the compaction of the ledger", func(f *past) {
		r := f.voyage()
		before := f.records(storage.Query{})
		f.Compact(f.T, r[3])
		f.equal("records", before, f.records(storage.Query{}))
	}},
}

// origin returns a context with an Origin of its own for each n.
func origin(ctx context.Context, n int) context.Context {
	return storage.WithOrigin(ctx, storage.Origin{User: fmt.Sprintf("user%d", n)})
}
