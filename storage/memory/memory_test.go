package memory_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/schema/schematest"
	"github.com/portolan-mesh/portolan/storage/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storage.ConfigStore {
		return memory.New(schema.Pilot(), memory.Options{})
	})
}

func TestHistory(t *testing.T) {
	t.Parallel()
	storetest.RunHistory(t, func(t *testing.T, now func() time.Time) storetest.HistorySubject {
		store := memory.New(schema.Pilot(), memory.Options{Now: now})
		return storetest.HistorySubject{Store: store, Compact: func(t *testing.T, version string) {
			revision, err := strconv.ParseInt(version, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			store.Compact(revision)
		}}
	})
}

func entry(name string, hosts ...string) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.ServiceEntry, Namespace: "shop", Name: name},
		Spec: &networking.ServiceEntry{Hosts: hosts},
	}
}

func create(t testing.TB, s *memory.Store, name string) string {
	t.Helper()
	version, err := s.Create(t.Context(), entry(name, name+".example"))
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func TestChangedIsClosedByTheNextChangeOnly(t *testing.T) {
	t.Parallel()
	s := memory.New(schema.Pilot(), memory.Options{})
	create(t, s, "a")
	changed := s.Changed()
	if _, err := s.Update(t.Context(), entry("a", "a.example")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
		t.Fatal("an update of nothing is told as a change")
	default:
	}
	create(t, s, "b")
	<-changed
	revision, content := s.Snapshot()
	if revision != 3 || content.Configs.Len() != 2 {
		t.Errorf("snapshot at %d of %d objects, want 3 and 2", revision, content.Configs.Len())
	}
}

func TestSnapshotsAreKeyedByPathAndDoNotChange(t *testing.T) {
	t.Parallel()
	s := memory.New(schema.Pilot(), memory.Options{Domain: "mesh.internal"})
	create(t, s, "a")
	_, held := s.Snapshot()
	create(t, s, "b")
	key := entry("a").Key()
	if object := held.Configs.Value(key.Path()); held.Configs.Len() != 1 || object == nil || object.Domain != "mesh.internal" {
		t.Errorf("the held snapshot has %d objects, %v at %s", held.Configs.Len(), object, key.Path())
	}
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	s := memory.New(schema.Pilot(), memory.Options{History: 3})
	first := create(t, s, "a")
	for i := range 5 {
		create(t, s, fmt.Sprintf("b%d", i))
	}
	if got, err := s.GetResourceAtVersion(t.Context(), s.Version(), entry("a").Key()); err != nil || got != first {
		t.Errorf("now: %q, %v, want %q", got, err, first)
	}
	if _, err := s.GetResourceAtVersion(t.Context(), first, entry("a").Key()); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("then: %v, want ErrCompacted", err)
	}
}

func TestSetLedgerReplacesTheHistory(t *testing.T) {
	t.Parallel()
	s := memory.New(schema.Pilot(), memory.Options{History: 1})
	other := memory.New(schema.Pilot(), memory.Options{})
	first := create(t, s, "a")
	if got := create(t, other, "a"); got != first {
		t.Fatalf("versions differ: %s and %s", first, got)
	}
	create(t, s, "b")
	if err := s.SetLedger(nil); err == nil {
		t.Error("a nil ledger was taken")
	}
	if err := s.SetLedger(other.GetLedger()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.GetResourceAtVersion(t.Context(), first, entry("a").Key()); err != nil || got != first {
		t.Errorf("%q, %v, want %q", got, err, first)
	}
}

func TestCreationTimeIsKeptWhateverTheClockSays(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 12, 0, 0, 987, time.FixedZone("", 3600))
	s := memory.New(schema.Pilot(), memory.Options{Now: func() time.Time { return now }})
	create(t, s, "a")
	now = now.Add(-time.Hour)
	if _, err := s.Update(t.Context(), entry("a", "2.example")); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), schema.ServiceEntry, "a", "shop")
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2030, 1, 1, 11, 0, 0, 0, time.UTC); got.CreationTimestamp != want {
		t.Errorf("creation time is %v, want %v", got.CreationTimestamp, want)
	}
}

func BenchmarkList(b *testing.B) {
	s := memory.New(schema.Pilot(), memory.Options{})
	var ops []storage.Op
	for i := range 10_000 {
		ops = append(ops, storage.Op{Verb: storage.Put, Config: entry(fmt.Sprintf("e%05d", i), "a.example")})
	}
	if _, _, err := s.Apply(b.Context(), ops); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if all, err := s.List(b.Context(), schema.ServiceEntry, ""); err != nil || len(all) != 10_000 {
			b.Fatalf("%d objects, %v", len(all), err)
		}
	}
}

func TestKindsThatAreNoMessages(t *testing.T) {
	t.Parallel()
	storetest.RunKinds(t, func(*testing.T) storage.ConfigStore { return memory.New(schematest.Kinds(), memory.Options{}) })
}
