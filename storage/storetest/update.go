package storetest

import (
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

var updateTests = []test{
	{"replaces spec, labels and annotations", func(f *fixture) {
		f.create(entry("shop", "a"))
		want := entry("shop", "a", "new.example")
		want.Labels, want.Annotations = map[string]string{"tier": "gold"}, nil
		version := f.update(want)
		f.wantContent(want)
		if got := f.get(want).ResourceVersion; got != version || got != f.store.Version() {
			f.Errorf("returned %q, the object has %q, the store is at %q", version, got, f.store.Version())
		}
	}},
	{"of an object that does not exist is ErrNotFound", func(f *fixture) {
		f.unchanged(func() {
			_, err := f.store.Update(f.Context(), entry("shop", "a"))
			f.wantError(err, storage.ErrNotFound, "serviceentry/shop/a")
			_, err = f.store.Update(f.Context(), versioned(entry("shop", "a"), "1"))
			f.wantError(err, storage.ErrNotFound, "serviceentry/shop/a")
		})
		f.wantAbsent(entry("shop", "a"))
	}},
	{"with the stored version goes through", func(f *fixture) {
		version := f.create(entry("shop", "a"))
		version = f.update(versioned(entry("shop", "a", "2.example"), version))
		f.update(versioned(entry("shop", "a", "3.example"), version))
		f.wantContent(entry("shop", "a", "3.example"))
	}},
	{"with another version is a conflict that names both and changes nothing", func(f *fixture) {
		c := entry("shop", "a")
		stale := f.create(c)
		second := f.update(entry("shop", "a", "2.example"))
		f.unchanged(func() {
			_, err := f.store.Update(f.Context(), versioned(entry("shop", "a", "3.example"), stale))
			f.wantConflict(err, c.Key(), stale, second)
			_, err = f.store.Update(f.Context(), versioned(entry("shop", "a", "3.example"), "no version at all"))
			f.wantConflict(err, c.Key(), "no version at all", second)
		})
		f.wantContent(entry("shop", "a", "2.example"))
	}},
	{"with another version is a conflict although nothing would change", func(f *fixture) {
		c := entry("shop", "a")
		stale := f.create(c)
		second := f.update(entry("shop", "a", "2.example"))
		_, err := f.store.Update(f.Context(), versioned(entry("shop", "a", "2.example"), stale))
		f.wantConflict(err, c.Key(), stale, second)
	}},
	{"without a version lets the last write win", func(f *fixture) {
		f.create(entry("shop", "a"))
		f.update(entry("shop", "a", "2.example"))
		f.update(entry("shop", "a", "3.example"))
		f.wantContent(entry("shop", "a", "3.example"))
	}},
	{"that changes nothing writes nothing and returns the version there is", func(f *fixture) {
		version := f.create(entry("shop", "a"))
		f.create(entry("shop", "b"))
		f.unchanged(func() {
			if got := f.update(entry("shop", "a")); got != version {
				f.Errorf("returned %q, want %q", got, version)
			}
			if got := f.update(versioned(entry("shop", "a"), version)); got != version {
				f.Errorf("with the version: returned %q, want %q", got, version)
			}
			older := entry("shop", "a")
			older.Version = "v1beta1"
			if got := f.update(older); got != version {
				f.Errorf("as v1beta1: returned %q, want %q", got, version)
			}
		})
	}},
	{"keeps creation time and uid", func(f *fixture) {
		f.create(entry("shop", "a"))
		first := f.get(entry("shop", "a"))
		next := entry("shop", "a", "2.example")
		next.CreationTimestamp, next.UID, next.Generation = time.Unix(5, 5), "mine", 99
		f.update(next)
		got := f.get(next)
		if !got.CreationTimestamp.Equal(first.CreationTimestamp) {
			f.Errorf("creation time went from %v to %v", first.CreationTimestamp, got.CreationTimestamp)
		}
		if got.UID != first.UID {
			f.Errorf("uid went from %s to %s", first.UID, got.UID)
		}
	}},
	{"counts the generation by changes of the spec", func(f *fixture) {
		c := entry("shop", "a")
		f.create(c)
		wantGeneration := func(want int64, after string) {
			f.Helper()
			if got := f.get(c).Generation; got != want {
				f.Errorf("after %s the generation is %d, want %d", after, got, want)
			}
		}
		f.update(entry("shop", "a", "2.example"))
		wantGeneration(2, "a change of the spec")
		relabelled := entry("shop", "a", "2.example")
		relabelled.Labels["tier"] = "gold"
		f.update(relabelled)
		wantGeneration(2, "a change of labels")
		f.update(relabelled)
		wantGeneration(2, "no change")
		f.update(entry("shop", "a", "3.example"))
		wantGeneration(3, "another change of the spec")
	}},
	{"keeps a spec as the user wrote it, and what differs in that alone is no new generation", func(f *fixture) {
		const text = `{"hosts":["a.example"],"location":"MESH_EXTERNAL","resolution":"STATIC"}`
		written := func(text string) *config.Config {
			c := entry("shop", "a")
			c.SetWritten(text)
			return c
		}
		check := func(want string, generation int64) {
			f.Helper()
			if got := f.get(entry("shop", "a")); got.AsWritten() != want || got.Generation != generation {
				f.Errorf("%q of generation %d, want %q of %d", got.AsWritten(), got.Generation, want, generation)
			}
		}
		first := f.create(written(text))
		check(text, 1)
		if again := f.update(written(text)); again != first {
			f.Errorf("the same text gave version %s after %s", again, first)
		}
		if canonical := f.update(entry("shop", "a")); canonical == first {
			f.Error("another text changed nothing")
		}
		check("", 1)
		f.update(written(text))
		check(text, 1)
		other := written(text)
		other.Spec = entry("shop", "a", "b.example").Spec // of which the text is not
		f.update(other)
		check("", 2)
	}},
	{"neither keeps nor changes its argument", func(f *fixture) {
		f.create(entry("shop", "a"))
		c := entry("shop", "a", "2.example")
		before := c.Clone()
		f.update(c)
		if d := cmp.Diff(before, c, protocmp.Transform()); d != "" {
			f.Errorf("argument (-before +after):\n%s", d)
		}
		c.Annotations["team"] = "red"
		c.Spec.(*networking.ServiceEntry).Hosts[0] = "changed.example"
		f.wantContent(before)
	}},
	{"leaves objects handed out before as they were", func(f *fixture) {
		f.create(entry("shop", "a"))
		held := f.get(entry("shop", "a"))
		before := held.Clone()
		f.update(entry("shop", "a", "2.example"))
		f.delete(entry("shop", "a"), "")
		if d := cmp.Diff(before, held, protocmp.Transform()); d != "" {
			f.Errorf("object (-before +after):\n%s", d)
		}
	}},
}

var deleteTests = []test{
	{"removes an object and returns the revision at which it went", func(f *fixture) {
		version := f.create(entry("shop", "a"))
		f.create(entry("shop", "b"))
		revision := f.delete(entry("shop", "a"), "")
		f.wantAbsent(entry("shop", "a"))
		f.wantContent(entry("shop", "b"))
		if revision == version || revision != f.store.Version() {
			f.Errorf("returned %q, the object had %q, the store is at %q", revision, version, f.store.Version())
		}
	}},
	{"of an object that does not exist is ErrNotFound", func(f *fixture) {
		f.unchanged(func() {
			c := entry("shop", "a")
			for _, version := range []string{"", "1"} {
				_, err := f.store.Delete(f.Context(), c.GroupVersionKind, c.Name, c.Namespace, version)
				f.wantError(err, storage.ErrNotFound, "serviceentry/shop/a")
			}
		})
	}},
	{"with the stored version goes through", func(f *fixture) {
		f.delete(entry("shop", "a"), f.create(entry("shop", "a")))
		f.wantAbsent(entry("shop", "a"))
	}},
	{"with another version is a conflict that names both", func(f *fixture) {
		c := entry("shop", "a")
		stale := f.create(c)
		second := f.update(entry("shop", "a", "2.example"))
		f.unchanged(func() {
			_, err := f.store.Delete(f.Context(), c.GroupVersionKind, c.Name, c.Namespace, stale)
			f.wantConflict(err, c.Key(), stale, second)
		})
		f.wantContent(entry("shop", "a", "2.example"))
	}},
	{"accepts every served version of a kind", func(f *fixture) {
		c := entry("shop", "a")
		f.create(c)
		c.Version = "v1alpha3"
		f.delete(c, "")
		f.wantAbsent(entry("shop", "a"))
	}},
	{"ends an incarnation: the next one has another version and uid, and begins at generation 1", func(f *fixture) {
		c := entry("shop", "a")
		version := f.create(c)
		f.update(entry("shop", "a", "2.example"))
		first := f.get(c)
		f.delete(c, "")
		if again := f.create(c); again == version {
			f.Errorf("both incarnations had version %s", version)
		}
		if second := f.get(c); second.UID == first.UID || second.Generation != 1 {
			f.Errorf("uid went from %s to %s, generation from %d to %d", first.UID, second.UID, first.Generation, second.Generation)
		}
		_, err := f.store.Update(f.Context(), versioned(entry("shop", "a", "3.example"), version))
		f.wantError(err, storage.ErrConflict)
	}},
	{"of an unknown kind is ErrInvalid", func(f *fixture) {
		_, err := f.store.Delete(f.Context(), config.GroupVersionKind{Group: "x", Version: "v1", Kind: "Teapot"}, "a", "shop", "")
		f.wantError(err, storage.ErrInvalid, "Teapot")
	}},
}
