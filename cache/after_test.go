package cache_test

import (
	"slices"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// TestAfter: the foreseen objects equal those that the store makes, and the original
// snapshot does not change.
func TestAfter(t *testing.T) {
	t.Parallel()
	long := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	object := func(name string, created time.Time) *config.Config {
		return &config.Config{Meta: config.Meta{GroupVersionKind: alpha, Namespace: "ns", Name: name, CreationTimestamp: created}}
	}
	var there pmap.Map[*config.Config]
	for _, name := range []string{"changed", "deleted", "kept"} {
		there = there.Set(keyOf(alpha, name).Path(), object(name, long))
	}
	is := cache.NewSnapshot(7, there)
	began := time.Now().Truncate(time.Second)
	would := is.After([]storage.Op{
		{Verb: storage.Put, Config: object("changed", time.Time{})},
		{Verb: storage.Delete, Key: keyOf(alpha, "deleted")},
		{Verb: storage.Put, Config: object("new", long)},
		{Verb: storage.Restore, Config: object("restored", long)},
		{Verb: storage.Restore, Config: object("of the future", time.Now().Add(time.Hour))},
	}, "mesh.test")
	if would.Revision() != 8 || would.Configs().Len() != 5 || is.Configs() != there {
		t.Errorf("at %d there are %d objects; the snapshot has changed: %v", would.Revision(), would.Configs().Len(), is.Configs() != there)
	}
	for name, old := range map[string]bool{"changed": true, "kept": true, "restored": true, "new": false, "of the future": false} {
		got := would.Get(keyOf(alpha, name))
		switch {
		case got == nil:
			t.Errorf("there is no %s", name)
		case got.CreationTimestamp.Equal(long) != old || !old && (got.CreationTimestamp.Before(began) || got.CreationTimestamp.After(time.Now())):
			t.Errorf("%s is of %v", name, got.CreationTimestamp)
		case (got.Domain == "mesh.test") != (name != "kept"):
			t.Errorf("%s is of the domain %q", name, got.Domain)
		}
	}
}

// TestAfterBesideOtherSources: what the store would write goes before the objects of
// other sources; what it would delete lets them count again.
func TestAfterBesideOtherSources(t *testing.T) {
	t.Parallel()
	objectFrom := func(source string) *config.Config {
		return &config.Config{Meta: config.Meta{GroupVersionKind: alpha, Namespace: "ns", Name: "x", Source: source}}
	}
	key := keyOf(alpha, "x")
	is := cache.NewSnapshot(7, pmap.Map[*config.Config]{}.Set(key.Path(), objectFrom("files")))
	expect := func(is *cache.Snapshot, want ...string) {
		t.Helper()
		var got []string
		if s := is.Shadows().Value(key.Path()); s != nil {
			for _, object := range s.Objects {
				got = append(got, object.Source)
			}
			if s.Objects[0] != is.Get(key) {
				t.Error("the first object does not count")
			}
		} else if object := is.Get(key); object != nil {
			got = append(got, object.Source)
		}
		if !slices.Equal(got, want) {
			t.Errorf("there are objects of %q, want %q", got, want)
		}
	}
	expect(is, "files")
	is = is.After([]storage.Op{{Verb: storage.Create, Config: objectFrom("")}}, "")
	expect(is, "", "files")
	is = is.After([]storage.Op{{Verb: storage.Put, Config: objectFrom("")}}, "")
	expect(is, "", "files")
	is = is.After([]storage.Op{{Verb: storage.Delete, Key: key}}, "")
	expect(is, "files")

	behind := cache.Content{Configs: pmap.Map[*config.Config]{}.Set(key.Path(), objectFrom("first"))}
	behind.Shadows = behind.Shadows.Set(key.Path(), &cache.Shadow{Objects: []*config.Config{behind.Configs.Value(key.Path()), objectFrom(""), objectFrom("last")}})
	is = (*cache.Snapshot)(nil).Next(7, behind)
	expect(is.After([]storage.Op{{Verb: storage.Restore, Config: objectFrom("")}}, ""), "first", "", "last")
	expect(is.After([]storage.Op{{Verb: storage.Delete, Key: key}}, ""), "first", "last")
}

// TestAfterARestoreWithHealth: a restored object comes with its health, unless it has a report.
func TestAfterARestoreWithHealth(t *testing.T) {
	t.Parallel()
	object := func(uid string) *config.Config {
		return &config.Config{Meta: config.Meta{GroupVersionKind: alpha, Namespace: "ns", Name: "x", UID: uid}}
	}
	key := keyOf(alpha, "x")
	known := &health.Report{Namespace: "ns", Name: "x", UID: "u"}
	restore := []storage.Op{{Verb: storage.Restore, Config: object(""), Health: &health.Report{Healthy: true}}}
	for name, test := range map[string]struct {
		there *config.Config
		known *health.Report
		want  bool
	}{
		"a new object":                {nil, nil, true},
		"a new object of an old name": {nil, known, true},
		"one without a report":        {object("u"), nil, true},
		"one with a report":           {object("u"), known, false},
	} {
		var content cache.Content
		if test.there != nil {
			content.Configs = content.Configs.Set(key.Path(), test.there)
		}
		if test.known != nil {
			content.Health = content.Health.Set(test.known.Path(), test.known)
		}
		is := cache.NewSnapshot(7, pmap.Map[*config.Config]{}).Next(8, content)
		would := is.After(restore, "")
		got, of := would.Health().Value(known.Path()), would.Get(key)
		if !got.Of(of.UID) || got.Healthy != test.want || is.Health().Value(known.Path()) != test.known {
			t.Errorf("%s: %+v of %q", name, got, of.UID)
		}
	}
}
