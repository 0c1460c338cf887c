package storetest

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema/schematest"
)

// RunKinds holds a store to the contract for objects of the core group whose spec is no
// protobuf message, under spec and at the top level. open returns an empty store of the
// kinds of schematest.Kinds, a new one at every call.
func RunKinds(t *testing.T, open func(t *testing.T) storage.ConfigStore) {
	for _, c := range kindTests {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(&fixture{T: t, store: open(t)})
		})
	}
}

// full is a Note with all fields set.
func full() *config.Config {
	priority, due := int32(7), metav1.NewTime(time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC))
	c := schematest.NewNote("shop", "a", "<Tea> & cake", "boil \"water\"", "wait\u2028long")
	spec := c.Spec.(*schematest.NoteSpec)
	spec.Tags = map[string]string{"b": "2", "a": "1"}
	spec.Priority, spec.Due, spec.Seal, spec.Weight = &priority, &due, []byte{0, 255}, 12.5
	return c
}

// fullBox is a Box with all fields set.
func fullBox() *config.Config {
	yes := true
	c := schematest.NewBox("shop", "a", map[string]string{"b": "<2>", "a": "1"})
	spec := c.Spec.(*schematest.BoxSpec)
	spec.Data, spec.Parts, spec.Immutable = map[string][]byte{"key": {0, 255}}, []schematest.Line{{Text: "x", Done: true}}, &yes
	return c
}

var kindTests = []test{
	{"a spec at the top level comes back as it was, and counts as a spec", func(f *fixture) {
		version := f.create(fullBox())
		if d := cmp.Diff(fullBox().Spec, f.get(fullBox()).Spec); d != "" {
			f.Errorf("spec (-want +got):\n%s", d)
		}
		if got := f.update(fullBox()); got != version {
			f.Errorf("the same again returned %q, want %q", got, version)
		}
		next := fullBox()
		next.Spec.(*schematest.BoxSpec).Data["key"] = []byte("other")
		f.update(next)
		f.wantContent(next)
		if got := f.get(next).Generation; got != 2 {
			f.Errorf("the generation is %d", got)
		}
		historian, ok := f.store.(storage.Historian)
		if !ok {
			return
		}
		changes, err := historian.History(f.Context(), next.Key(), 0)
		if err != nil || len(changes) != 2 || !config.SameSpec(changes[0].Before.Spec, fullBox().Spec) || !config.SameSpec(changes[0].After.Spec, next.Spec) {
			f.Errorf("%+v, %v", changes, err)
		}
	}},
	{"a fault of a spec at the top level is told by its path in the document", func(f *fixture) {
		with := func(change func(*schematest.BoxSpec)) *config.Config {
			c := fullBox()
			change(c.Spec.(*schematest.BoxSpec))
			return c
		}
		for want, c := range map[string]*config.Config{
			": type: is not text in UTF-8":          with(func(s *schematest.BoxSpec) { s.Type = "\xff" }),
			": words[c]: is not text in UTF-8":      with(func(s *schematest.BoxSpec) { s.Words["c"] = "\xff" }),
			": parts[0].text: is not text in UTF-8": with(func(s *schematest.BoxSpec) { s.Parts[0].Text = "\xff" }),
		} {
			f.unchanged(func() {
				_, err := f.store.Create(f.Context(), c)
				f.wantError(err, storage.ErrInvalid, want)
			})
		}
	}},
	{"a spec that is no message comes back as it was", func(f *fixture) {
		want := full()
		version := f.create(want)
		got := f.get(want)
		if d := cmp.Diff(want.Spec, got.Spec); d != "" {
			f.Errorf("spec (-want +got):\n%s", d)
		}
		if got.ResourceVersion != version || got.Generation != 1 || got.GroupVersionKind != schematest.Note {
			f.Errorf("%+v", got.Meta)
		}
		if got.Spec == want.Spec {
			f.Error("the store keeps the spec it was given")
		}
	}},
	{"lists are of one kind", func(f *fixture) {
		f.create(entry("shop", "a"))
		f.create(schematest.NewNote("shop", "b", "x"))
		f.create(schematest.NewNote("bank", "a", "x"))
		if got, want := f.list(schematest.Note, ""), []string{"bank/a", "shop/b"}; !slices.Equal(got, want) {
			f.Errorf("all are %q, want %q", got, want)
		}
		if got, want := f.list(schematest.Note, "shop"), []string{"shop/b"}; !slices.Equal(got, want) {
			f.Errorf("those of shop are %q, want %q", got, want)
		}
	}},
	{"a spec that says the same changes nothing", func(f *fixture) {
		version := f.create(full())
		same := full()
		same.Spec.(*schematest.NoteSpec).Tags = map[string]string{"a": "1", "b": "2"}
		f.unchanged(func() {
			if got := f.update(same); got != version {
				f.Errorf("returned %q, want %q", got, version)
			}
		})
		empty := schematest.NewNote("shop", "b", "x")
		version = f.create(empty)
		empty.Spec.(*schematest.NoteSpec).Lines = []schematest.Line{} // means the same as nil
		if got := f.update(empty); got != version {
			f.Errorf("returned %q, want %q", got, version)
		}
	}},
	{"the generation counts the changes of the spec", func(f *fixture) {
		f.create(full())
		for i, change := range []func(*config.Config){
			func(c *config.Config) { c.Labels = map[string]string{"tier": "gold"} },
			func(c *config.Config) { c.Spec.(*schematest.NoteSpec).Lines[1].Done = true },
			func(c *config.Config) { c.Spec.(*schematest.NoteSpec).Priority = nil },
		} {
			next := f.get(full()).Clone()
			change(next)
			f.update(next)
			f.wantContent(next)
			if got := f.get(next).Generation; got != int64(i+1) {
				f.Errorf("after change %d the generation is %d", i+1, got)
			}
		}
	}},
	{"neither an argument nor an object handed out changes", func(f *fixture) {
		f.create(full())
		held, next := f.get(full()), full()
		before, given := held.Clone(), next.Clone()
		next.Spec.(*schematest.NoteSpec).Title, given.Spec.(*schematest.NoteSpec).Title = "b", "b"
		f.update(next)
		next.Spec.(*schematest.NoteSpec).Lines[0].Text = "changed"
		next.Spec.(*schematest.NoteSpec).Tags["a"] = "changed"
		*next.Spec.(*schematest.NoteSpec).Priority = 99
		f.wantContent(given)
		if d := cmp.Diff(before, held, protocmp.Transform()); d != "" {
			f.Errorf("object handed out (-before +after):\n%s", d)
		}
	}},
	{"what could not be given back is ErrInvalid", func(f *fixture) {
		with := func(change func(*config.Config, *schematest.NoteSpec)) *config.Config {
			c := full()
			change(c, c.Spec.(*schematest.NoteSpec))
			return c
		}
		for want, c := range map[string]*config.Config{
			"the spec is missing":            with(func(c *config.Config, _ *schematest.NoteSpec) { c.Spec = nil }),
			"a *schematest.NoteSpec belongs": with(func(c *config.Config, _ *schematest.NoteSpec) { c.Spec = entry("shop", "a").Spec }),
			"a istio.networking.v1alpha3.ServiceEntry belo": with(func(c *config.Config, _ *schematest.NoteSpec) {
				c.GroupVersionKind = entry("shop", "a").GroupVersionKind
			}),
			"spec.lines[1].text: is not text in UTF-8": with(func(_ *config.Config, s *schematest.NoteSpec) { s.Lines[1].Text = "\xff" }),
			"spec.tags[c]: is not text in UTF-8":       with(func(_ *config.Config, s *schematest.NoteSpec) { s.Tags = map[string]string{"c": "\xff"} }),
			"unsupported value: NaN":                   with(func(_ *config.Config, s *schematest.NoteSpec) { s.Weight = math.NaN() }),
		} {
			f.unchanged(func() {
				_, err := f.store.Create(f.Context(), c)
				f.wantError(err, storage.ErrInvalid, want)
			})
		}
	}},
	{"a batch of several kinds is one revision", func(f *fixture) {
		batcher, ok := f.store.(storage.Batcher)
		if !ok {
			f.Skip("the store is no storage.Batcher")
		}
		f.create(full())
		next := full()
		next.Spec.(*schematest.NoteSpec).Title = "b"
		revision, results, err := batcher.Apply(f.Context(), []storage.Op{
			{Verb: storage.Put, Config: next}, {Verb: storage.Put, Config: entry("shop", "a")},
			{Verb: storage.Create, Config: schematest.NewNote("shop", "b", "x")},
		})
		if err != nil {
			f.Fatal(err)
		}
		for i, want := range []storage.Outcome{storage.Configured, storage.Created, storage.Created} {
			if results[i].Outcome != want || results[i].ResourceVersion != revision {
				f.Errorf("%+v, want %s at %s", results[i], want, revision)
			}
		}
		f.wantContent(next)
	}},
	{"history tells what it was", func(f *fixture) {
		historian, ok := f.store.(storage.Historian)
		if !ok {
			f.Skip("the store is no storage.Historian")
		}
		first := f.create(full())
		next := full()
		next.Spec.(*schematest.NoteSpec).Title = "b"
		f.update(next)
		f.delete(next, "")
		changes, err := historian.History(f.Context(), next.Key(), 0)
		if err != nil || len(changes) != 3 {
			f.Fatalf("%d changes, %v", len(changes), err)
		}
		if !config.SameSpec(changes[0].Before.Spec, next.Spec) || !config.SameSpec(changes[1].Before.Spec, full().Spec) || !config.SameSpec(changes[1].After.Spec, next.Spec) {
			f.Errorf("%+v", changes)
		}
		then, err := historian.At(f.Context(), first, storage.Selection{Kind: schematest.Note})
		if err != nil || len(then) != 1 || !config.SameContent(then[0], full()) {
			f.Errorf("at %s: %+v, %v", first, then, err)
		}
	}},
}
