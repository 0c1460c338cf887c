package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func (f *fixture) batcher() storage.Batcher {
	f.Helper()
	b, ok := f.store.(storage.Batcher)
	if !ok {
		f.Skip("the store is not a storage.Batcher")
	}
	return b
}

func (f *fixture) apply(ops ...storage.Op) (string, []storage.Result) {
	f.Helper()
	revision, results, err := f.batcher().Apply(f.Context(), ops)
	if err != nil {
		f.Fatalf("apply: %v", err)
	}
	return revision, results
}

// refuse applies ops that must be refused as a whole.
func (f *fixture) refuse(ops ...storage.Op) (err error) {
	f.Helper()
	f.unchanged(func() {
		var results []storage.Result
		_, results, err = f.batcher().Apply(f.Context(), ops)
		if err == nil {
			f.Fatalf("applied: %v", results)
		}
	})
	return err
}

// faults returns the errors of the operations that an error names, by their index.
func (f *fixture) faults(err error) map[int]error {
	f.Helper()
	all := (*multierror.Error)(nil)
	if !errors.As(err, &all) {
		f.Fatalf("error is %T %v, want a *multierror.Error", err, err)
	}
	faults := map[int]error{}
	for _, err := range all.Errors {
		fault := (*storage.OpError)(nil)
		if !errors.As(err, &fault) {
			f.Fatalf("error is %T %v, want a *storage.OpError", err, err)
		}
		faults[fault.Index] = fault.Err
	}
	return faults
}

func op(verb storage.Verb, c *config.Config) storage.Op { return storage.Op{Verb: verb, Config: c} }

func remove(c *config.Config, version string) storage.Op {
	return storage.Op{Verb: storage.Delete, Key: c.Key(), ResourceVersion: version}
}

var applyTests = []test{
	{"is one revision, and reports each operation in order", func(f *fixture) {
		changed := f.create(entry("shop", "changed"))
		same := f.create(entry("shop", "same"))
		f.create(entry("shop", "gone"))
		revision, results := f.apply(
			op(storage.Put, entry("shop", "same")),
			op(storage.Create, entry("shop", "new")),
			op(storage.Update, versioned(entry("shop", "changed", "2.example"), changed)),
			remove(entry("shop", "gone"), ""),
			op(storage.Put, entry("bank", "new")),
		)
		want := []storage.Result{
			{Key: entry("shop", "same").Key(), Outcome: storage.Unchanged, ResourceVersion: same},
			{Key: entry("shop", "new").Key(), Outcome: storage.Created, ResourceVersion: revision},
			{Key: entry("shop", "changed").Key(), Outcome: storage.Configured, ResourceVersion: revision},
			{Key: entry("shop", "gone").Key(), Outcome: storage.Deleted, ResourceVersion: revision},
			{Key: entry("bank", "new").Key(), Outcome: storage.Created, ResourceVersion: revision},
		}
		if d := cmp.Diff(want, results); d != "" {
			f.Errorf("results (-want +got):\n%s", d)
		}
		if got := f.version(); got != revision {
			f.Errorf("the store is at %s, the batch was %s", got, revision)
		}
		f.wantContent(entry("shop", "changed", "2.example"))
		f.wantAbsent(entry("shop", "gone"))
		for _, c := range []*config.Config{entry("shop", "new"), entry("bank", "new"), entry("shop", "changed")} {
			if got := f.get(c).ResourceVersion; got != revision {
				f.Errorf("%s has version %s, the batch was %s", c.Key(), got, revision)
			}
		}
		if got := f.get(entry("shop", "same")).ResourceVersion; got != same {
			f.Errorf("the unchanged object went from %s to %s", same, got)
		}
	}},
	{"with a stale third operation does nothing", func(f *fixture) {
		stale := f.create(entry("shop", "c"))
		now := f.update(entry("shop", "c", "2.example"))
		err := f.refuse(
			op(storage.Put, entry("shop", "a")),
			op(storage.Put, entry("shop", "b")),
			op(storage.Put, versioned(entry("shop", "c", "3.example"), stale)),
			op(storage.Put, entry("shop", "d")),
		)
		f.wantConflict(err, entry("shop", "c").Key(), stale, now)
		if d := cmp.Diff([]string{"shop/c"}, f.list(schema.ServiceEntry, "")); d != "" {
			f.Errorf("objects (-want +got):\n%s", d)
		}
		f.wantContent(entry("shop", "c", "2.example"))
	}},
	{"names every operation that is at fault, by its place", func(f *fixture) {
		version := f.create(entry("shop", "there"))
		teapots := entry("shop", "pot")
		teapots.Kind = "Teapot"
		faults := f.faults(f.refuse(
			op(storage.Put, entry("shop", "good")),
			op(storage.Create, entry("shop", "there")),
			op(storage.Update, entry("shop", "missing")),
			op(storage.Put, teapots),
			remove(entry("bank", "missing"), ""),
			op(storage.Put, versioned(entry("bank", "a"), version)),
			storage.Op{Verb: storage.Put},
			op(storage.Verb(99), entry("bank", "verb")),
		))
		want := map[int]error{
			1: storage.ErrExists, 2: storage.ErrNotFound, 3: storage.ErrInvalid, 4: storage.ErrNotFound,
			5: storage.ErrConflict, 6: storage.ErrInvalid, 7: storage.ErrInvalid,
		}
		for i, class := range want {
			if !errors.Is(faults[i], class) {
				f.Errorf("operation %d: %v, want %v", i, faults[i], class)
			}
			delete(faults, i)
		}
		if len(faults) > 0 {
			f.Errorf("faults of sound operations: %v", faults)
		}
	}},
	{"with two operations on one key is ErrInvalid", func(f *fixture) {
		again := entry("shop", "a", "2.example")
		again.Version = "v1beta1"
		faults := f.faults(f.refuse(
			op(storage.Put, entry("shop", "a")),
			op(storage.Put, entry("shop", "b")),
			op(storage.Put, again),
		))
		if len(faults) != 1 || !errors.Is(faults[2], storage.ErrInvalid) || !strings.Contains(faults[2].Error(), "1 and 3") {
			f.Errorf("faults are %v", faults)
		}
	}},
	{"that changes nothing writes nothing and returns the revision that it read", func(f *fixture) {
		a, b := f.create(entry("shop", "a")), f.create(entry("shop", "b"))
		f.create(entry("shop", "c"))
		f.unchanged(func() {
			before := f.version()
			revision, results := f.apply(
				op(storage.Put, entry("shop", "a")),
				op(storage.Update, versioned(entry("shop", "b"), b)),
			)
			want := []storage.Result{
				{Key: entry("shop", "a").Key(), Outcome: storage.Unchanged, ResourceVersion: a},
				{Key: entry("shop", "b").Key(), Outcome: storage.Unchanged, ResourceVersion: b},
			}
			if d := cmp.Diff(want, results); d != "" || revision != before {
				f.Errorf("revision %s, want %s; results (-want +got):\n%s", revision, before, d)
			}
		})
	}},
	{"of no operations does nothing", func(f *fixture) {
		f.create(entry("shop", "a"))
		f.unchanged(func() {
			if revision, results := f.apply(); revision != f.version() || len(results) != 0 {
				f.Errorf("revision %s, results %v", revision, results)
			}
		})
	}},
	{"puts what is missing and what is there", func(f *fixture) {
		_, results := f.apply(op(storage.Put, entry("shop", "a")))
		if results[0].Outcome != storage.Created {
			f.Errorf("first: %s", results[0].Outcome)
		}
		first := f.get(entry("shop", "a"))
		_, results = f.apply(op(storage.Put, entry("shop", "a", "2.example")))
		if results[0].Outcome != storage.Configured {
			f.Errorf("second: %s", results[0].Outcome)
		}
		second := f.get(entry("shop", "a"))
		if second.UID != first.UID || second.Generation != 2 || !second.CreationTimestamp.Equal(first.CreationTimestamp) {
			f.Errorf("%+v became %+v", first.Meta, second.Meta)
		}
	}},
	{"of a conditional put on what is gone is a conflict", func(f *fixture) {
		version := f.create(entry("shop", "a"))
		f.delete(entry("shop", "a"), "")
		err := f.refuse(op(storage.Put, versioned(entry("shop", "a"), version)))
		f.wantConflict(err, entry("shop", "a").Key(), version, "")
	}},
	{"restores an object that is gone as old as it was", func(f *fixture) {
		then := time.Date(2001, 2, 3, 4, 5, 6, 789, time.FixedZone("", 3600))
		gone := entry("shop", "a")
		gone.CreationTimestamp, gone.UID, gone.Generation = then, "mine", 99
		_, results := f.apply(op(storage.Restore, gone))
		got := f.get(gone)
		if want := then.UTC().Truncate(time.Second); got.CreationTimestamp != want || results[0].Outcome != storage.Created {
			f.Errorf("%s as of %v, want created as of %v", results[0].Outcome, got.CreationTimestamp, want)
		}
		if got.UID == "mine" || got.Generation != 1 {
			f.Errorf("uid %s, generation %d, want a new object", got.UID, got.Generation)
		}
		f.wantContent(gone)
	}},
	{"restores nothing as of the future, or as of no time", func(f *fixture) {
		began := time.Now()
		early, never := entry("shop", "early"), entry("shop", "never")
		early.CreationTimestamp = began.Add(time.Hour)
		f.apply(op(storage.Restore, early), op(storage.Restore, never))
		for _, c := range []*config.Config{early, never} {
			if err := around(f.get(c).CreationTimestamp, began); err != nil {
				f.Errorf("%s: creation time %v", c.Key(), err)
			}
		}
	}},
	{"restores an object that exists as a put does", func(f *fixture) {
		version := f.create(entry("shop", "a"))
		first := f.get(entry("shop", "a"))
		then := versioned(entry("shop", "a", "2.example"), version)
		then.CreationTimestamp = time.Unix(5, 0)
		_, results := f.apply(op(storage.Restore, then))
		got := f.get(then)
		if got.CreationTimestamp != first.CreationTimestamp || got.UID != first.UID || results[0].Outcome != storage.Configured {
			f.Errorf("%s: %+v became %+v", results[0].Outcome, first.Meta, got.Meta)
		}
		then.ResourceVersion = got.ResourceVersion
		if _, results = f.apply(op(storage.Restore, then)); results[0].Outcome != storage.Unchanged {
			f.Errorf("of what it is: %s", results[0].Outcome)
		}
	}},
	{"puts and restores as Absent only what does not exist", func(f *fixture) {
		for _, verb := range []storage.Verb{storage.Put, storage.Restore} {
			c := versioned(entry("shop", verb.String()), storage.Absent)
			revision, _ := f.apply(op(verb, c))
			f.wantConflict(f.refuse(op(verb, c)), c.Key(), storage.Absent, revision)
		}
	}},
	{"of a conditional delete compares", func(f *fixture) {
		stale := f.create(entry("shop", "a"))
		now := f.update(entry("shop", "a", "2.example"))
		f.wantConflict(f.refuse(remove(entry("shop", "a"), stale)), entry("shop", "a").Key(), stale, now)
		f.apply(remove(entry("shop", "a"), now))
		f.wantAbsent(entry("shop", "a"))
	}},
	{"gives all objects that it makes one creation time", func(f *fixture) {
		var ops []storage.Op
		for i := range 50 {
			ops = append(ops, op(storage.Put, entry("shop", fmt.Sprintf("e%02d", i))))
		}
		f.apply(ops...)
		objects, err := f.store.List(f.Context(), schema.ServiceEntry, "")
		if err != nil || len(objects) != len(ops) {
			f.Fatalf("%d objects, %v", len(objects), err)
		}
		for _, o := range objects {
			if !o.CreationTimestamp.Equal(objects[0].CreationTimestamp) {
				f.Errorf("%s is of %v, %s of %v", o.Key(), o.CreationTimestamp, objects[0].Key(), objects[0].CreationTimestamp)
			}
		}
	}},
	{"neither keeps nor changes its argument", func(f *fixture) {
		c := entry("shop", "a")
		before := c.Clone()
		f.apply(op(storage.Put, c))
		if d := cmp.Diff(before, c, protocmp.Transform()); d != "" {
			f.Errorf("argument (-before +after):\n%s", d)
		}
		c.Labels["app"] = "changed"
		f.wantContent(before)
	}},
}
