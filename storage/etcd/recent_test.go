package etcd_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// twoStores returns a store that remembers version of an object "e" with one host, and another
// store on the same etcd. requests counts the requests of the first.
func twoStores(t testing.TB) (first, other *etcd.Store, requests *hooked, version string) {
	t.Helper()
	endpoint := etcdtest.Listen(t)
	other = open(t, etcdtest.Dial(t, endpoint))
	client := etcdtest.Dial(t, endpoint)
	requests, first = hook(client), open(t, client)
	create(t, other, entry("first", "a.example")) // the first mutation of a store writes its format
	version = create(t, first, entry("e", "a.example"))
	requests.requests.Store(0)
	return first, other, requests, version
}

// at returns the object "e" with a host and a resource version.
func at(version, host string) *config.Config {
	c := entry("e", host)
	c.ResourceVersion = version
	return c
}

func update(t testing.TB, s *etcd.Store, c *config.Config) (version string) {
	t.Helper()
	version, err := s.Update(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// before returns the object before its newest change, from the history.
func before(t testing.TB, s *etcd.Store) *config.Config {
	t.Helper()
	changes, err := s.History(t.Context(), entry("e").Key(), 1)
	if err != nil || len(changes) != 1 {
		t.Fatalf("%d changes, %v", len(changes), err)
	}
	return changes[0].Before
}

func TestWhatThisStoreWroteItNeedNotRead(t *testing.T) {
	t.Parallel()
	first, other, requests, version := twoStores(t)
	for i, host := range []string{"b.example", "c.example", "d.example"} {
		last := version
		if version = update(t, first, at(version, host)); requests.requests.Load() != int64(i+1) {
			t.Errorf("update %d took %d requests", i, requests.requests.Load()-int64(i))
		}
		if got := before(t, first); got.ResourceVersion != last {
			t.Errorf("before update %d there was version %s, want %s", i, got.ResourceVersion, last)
		}
	}
	got, err := other.Get(t.Context(), schema.ServiceEntry, "e", "shop")
	if err != nil || host(got) != "d.example" || got.Generation != 4 || got.ResourceVersion != version {
		t.Errorf("the object is %v, %v", got, err)
	}
}

func TestWhatWasReadOnceNeedNotBeReadAgain(t *testing.T) {
	t.Parallel()
	first, other, requests, version := twoStores(t)
	version = update(t, other, at(version, "b.example"))
	if _, err := first.Get(t.Context(), schema.ServiceEntry, "e", "shop"); err != nil {
		t.Fatal(err)
	}
	update(t, first, at(version, "c.example"))
	if n := requests.requests.Load(); n != 1 {
		t.Errorf("%d transactions", n)
	}
	if got := host(before(t, first)); got != "b.example" {
		t.Errorf("before there was %s", got)
	}
}

func TestWhatIsRememberedIsOnlyAGuess(t *testing.T) {
	t.Parallel()
	// meanwhile is what another store does; change is then made by the store that
	// remembers the old object.
	for name, c := range map[string]struct {
		meanwhile func(testing.TB, *etcd.Store)
		change    func(version string) storage.Op
		want      error
		before    string // the host that was there before the newest change
		outcome   storage.Outcome
	}{
		"a newer object is what is replaced": {
			meanwhile: func(t testing.TB, s *etcd.Store) { update(t, s, at("", "b.example")) },
			change:    func(string) storage.Op { return storage.Op{Verb: storage.Put, Config: at("", "c.example")} },
			before:    "b.example", outcome: storage.Configured,
		},
		"what is remembered is written where it is there no more": {
			meanwhile: func(t testing.TB, s *etcd.Store) { update(t, s, at("", "b.example")) },
			change:    func(string) storage.Op { return storage.Op{Verb: storage.Put, Config: at("", "a.example")} },
			before:    "b.example", outcome: storage.Configured,
		},
		"what is there already is not written": {
			meanwhile: func(t testing.TB, s *etcd.Store) { update(t, s, at("", "b.example")) },
			change:    func(string) storage.Op { return storage.Op{Verb: storage.Put, Config: at("", "b.example")} },
			before:    "a.example", outcome: storage.Unchanged,
		},
		"the version remembered is in conflict with the one there is": {
			meanwhile: func(t testing.TB, s *etcd.Store) { update(t, s, at("", "b.example")) },
			change:    func(v string) storage.Op { return storage.Op{Verb: storage.Update, Config: at(v, "c.example")} },
			want:      storage.ErrConflict,
		},
		"what went cannot be updated": {
			meanwhile: deleteEntry,
			change:    func(string) storage.Op { return storage.Op{Verb: storage.Update, Config: at("", "c.example")} },
			want:      storage.ErrNotFound,
		},
		"what went can be made": {
			meanwhile: deleteEntry,
			change:    func(string) storage.Op { return storage.Op{Verb: storage.Create, Config: at("", "c.example")} },
			outcome:   storage.Created,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, other, _, version := twoStores(t)
			c.meanwhile(t, other)
			_, results, err := first.Apply(t.Context(), []storage.Op{c.change(version)})
			if c.want != nil {
				if !errors.Is(err, c.want) {
					t.Errorf("error %v, want %v", err, c.want)
				}
				return
			}
			if err != nil || results[0].Outcome != c.outcome {
				t.Fatalf("%v, %v", results, err)
			}
			if c.before != "" && host(before(t, first)) != c.before {
				t.Errorf("before there was %s, want %s", host(before(t, first)), c.before)
			}
		})
	}
}

func deleteEntry(t testing.TB, s *etcd.Store) {
	if _, err := s.Delete(t.Context(), schema.ServiceEntry, "e", "shop", ""); err != nil {
		t.Fatal(err)
	}
}

// TestAnotherLifeOfEtcdIsNotRemembered: when a store replaces another, the same revision
// stands for something else.
func TestAnotherLifeOfEtcdIsNotRemembered(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	create(t, store, entry("e", "a.example"))
	update(t, store, entry("e", "b.example"))
	version := update(t, store, at("", "a.example"))

	restored := etcdtest.Start(t)
	again := open(t, restored)
	create(t, again, entry("e", "x.example"))
	update(t, again, entry("e", "y.example"))
	client.KV = restored.KV // at an older revision, so far
	if _, err := store.List(t.Context(), schema.ServiceEntry, ""); err != nil {
		t.Fatal(err)
	}
	if other := update(t, again, at("", "z.example")); other != version {
		t.Fatalf("the versions are %s and %s", version, other)
	}
	if _, err := store.List(t.Context(), schema.ServiceEntry, ""); err != nil {
		t.Fatal(err)
	}
	update(t, store, at(version, "c.example"))
	if got := host(before(t, store)); got != "z.example" {
		t.Errorf("before there was %s", got)
	}
}

// TestWhatIsRememberedKeepsFieldsUnknownHere: a value that this store wrote may hold
// fields that it does not know, if the stored value had them.
func TestWhatIsRememberedKeepsFieldsUnknownHere(t *testing.T) {
	t.Parallel()
	first, _, requests, version := twoStores(t)
	given := at(version, "b.example")
	given.Spec.(proto.Message).ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 9999, protowire.VarintType), 1))
	version = update(t, first, given)
	update(t, first, at(version, "c.example"))
	if n := requests.requests.Load(); n != 2 {
		t.Errorf("%d requests", n)
	}
	got, err := first.Get(t.Context(), schema.ServiceEntry, "e", "shop")
	if err != nil || host(got) != "c.example" || len(got.Spec.(proto.Message).ProtoReflect().GetUnknown()) == 0 {
		t.Errorf("the object is %v, %v", got, err)
	}
}
