package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clientv3 "go.etcd.io/etcd/client/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func workload(name string) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.WorkloadEntry, Namespace: "shop", Name: name},
		Spec: &networking.WorkloadEntry{Address: "10.0.0.1"},
	}
}

var probed = time.Date(2026, 1, 31, 12, 0, 0, 500, time.UTC)

func probe(healthy bool, after time.Duration) *health.Report {
	return &health.Report{Healthy: healthy, Message: "x", Probed: probed.Add(after)}
}

func report(t testing.TB, s *etcd.Store, name string, r *health.Report) storage.HealthResult {
	t.Helper()
	result, err := s.SetHealth(t.Context(), storage.HealthUpdate{Key: workload(name).Key(), Report: r})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// healthIn returns the health in etcd, nil if there is none.
func healthIn(t testing.TB, client *clientv3.Client, name string) *health.Report {
	t.Helper()
	response, err := client.Get(t.Context(), etcd.HealthKey("shop", name))
	if err != nil {
		t.Fatal(err)
	}
	if len(response.Kvs) == 0 {
		return nil
	}
	out, err := etcd.DecodeHealth(response.Kvs[0])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func uidOf(t testing.TB, s *etcd.Store, name string) string {
	t.Helper()
	object, err := s.Get(t.Context(), schema.WorkloadEntry, name, "shop")
	if err != nil {
		t.Fatal(err)
	}
	return object.UID
}

func TestSetHealthStoresWhatWasFound(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	before := create(t, store, workload("a"))
	result := report(t, store, "a", &health.Report{Healthy: true, Reason: "Probe", Message: "200 OK", Probed: probed})
	got := healthIn(t, client, "a")
	want := &health.Report{
		Namespace: "shop", Name: "a", UID: uidOf(t, store, "a"), Healthy: true, Reason: "Probe", Message: "200 OK",
		Since: probed, Probed: probed, Revision: parse(t, result.Revision),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(got, result.Report); d != "" {
		t.Error(d)
	}
	if object, err := store.Get(t.Context(), schema.WorkloadEntry, "a", "shop"); err != nil || object.ResourceVersion != before {
		t.Errorf("the version of the object is %s and was %s: %v", object.ResourceVersion, before, err)
	}
}

func TestWhichOfTwoReportsStands(t *testing.T) {
	t.Parallel()
	second := probed.Truncate(time.Second)
	for name, c := range map[string]struct {
		first, next  *health.Report
		healthy      bool
		since        time.Time
		stale, wrote bool
	}{
		"a later one":                  {probe(true, 0), probe(false, time.Second), false, probed.Add(time.Second), false, true},
		"not an older one":             {probe(true, 0), probe(false, -time.Nanosecond), true, probed, true, false},
		"the last of the same time":    {probe(true, 0), probe(false, 0), false, probed, false, true},
		"one of the same whole second": {probe(true, 0), &health.Report{Message: "x", Probed: second}, false, probed, false, true},
		"not one of the second before": {probe(true, 0), &health.Report{Probed: second.Add(-time.Second)}, true, probed, true, false},
		"one without a time":           {probe(true, time.Hour*24*365*100), &health.Report{}, false, time.Time{}, false, true},
		"no change":                    {probe(true, 0), probe(true, 0), true, probed, false, false},
		"healthy still":                {probe(true, 0), probe(true, time.Minute), true, probed, false, true},
		"since is told": {probe(true, 0), &health.Report{Since: probed.Add(time.Second), Probed: probed.Add(time.Minute)}, false, probed.Add(time.Second),
			false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := etcdtest.Start(t)
			store := open(t, client)
			create(t, store, workload("a"))
			first, second := report(t, store, "a", c.first), report(t, store, "a", c.next)
			got := healthIn(t, client, "a")
			if got.Healthy != c.healthy || second.Stale != c.stale || (first.Revision != second.Revision) != c.wrote {
				t.Errorf("%+v after %s and %s, stale %v", got, first.Revision, second.Revision, second.Stale)
			}
			if !c.since.IsZero() && !got.Since.Equal(c.since) {
				t.Errorf("since %v, want %v", got.Since, c.since)
			}
		})
	}
}

func TestTheConditionsOfSetHealth(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	created := create(t, store, workload("a"))
	uid := uidOf(t, store, "a")
	healthy := report(t, store, "a", probe(true, 0)).Revision
	for _, c := range []struct {
		name string
		with storage.HealthUpdate
		want error
	}{
		{"another uid", storage.HealthUpdate{UID: "x"}, storage.ErrConflict},
		{"the version of the object alone", storage.HealthUpdate{ResourceVersion: created}, storage.ErrConflict},
		{"the version of both", storage.HealthUpdate{UID: uid, ResourceVersion: healthy}, nil},
		{"that version again", storage.HealthUpdate{ResourceVersion: healthy}, storage.ErrConflict},
		{"no such object", storage.HealthUpdate{Key: workload("b").Key()}, storage.ErrNotFound},
		{"another kind", storage.HealthUpdate{Key: entry("a").Key()}, storage.ErrInvalid},
	} {
		if c.with.Key.Name == "" {
			c.with.Key = workload("a").Key()
		}
		c.with.Report = probe(false, time.Minute)
		if _, err := store.SetHealth(t.Context(), c.with); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// A health that is taken back keeps a revision, so that the served version of the object
// never falls.
func TestHealthIsTakenBack(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	created := create(t, store, workload("a"))
	if result := report(t, store, "a", &health.Report{Unknown: true}); result.Report != nil || result.Revision != created {
		t.Errorf("%+v", result)
	}
	told := report(t, store, "a", probe(true, 0))
	result := report(t, store, "a", &health.Report{Unknown: true})
	if got := healthIn(t, client, "a"); !got.Unknown || got.Healthy || got.Revision <= told.Report.Revision {
		t.Errorf("%+v", got)
	}
	if again := report(t, store, "a", &health.Report{Unknown: true}); again.Revision != result.Revision {
		t.Errorf("written again: %+v", again)
	}
}

func TestHealthGoesWithItsObject(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	create(t, store, workload("a"))
	create(t, store, workload("b"))
	report(t, store, "a", probe(true, 0))
	kept := report(t, store, "b", probe(true, 0))
	gone, _, err := store.Apply(t.Context(), []storage.Op{{Verb: storage.Delete, Key: workload("a").Key()}})
	if err != nil {
		t.Fatal(err)
	}
	if healthIn(t, client, "a") != nil || healthIn(t, client, "b").Revision != parse(t, kept.Revision) {
		t.Error("the health of a is there, or that of b is not")
	}
	response, err := client.Get(t.Context(), etcd.HealthKey("shop", "a"), clientv3.WithRev(parse(t, gone)-1))
	if err != nil || len(response.Kvs) != 1 {
		t.Errorf("the health of a went before its object: %v", err)
	}
}

// An older binary leaves the health of the objects that it deletes.
func TestHealthIsThatOfOneIncarnation(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	create(t, store, workload("a"))
	report(t, store, "a", probe(true, time.Hour))
	if _, err := client.Delete(t.Context(), etcd.ConfigKey(workload("a").Key())); err != nil {
		t.Fatal(err)
	}
	create(t, open(t, client), workload("a"))
	if result := report(t, store, "a", probe(false, 0)); result.Stale || result.Report.UID != uidOf(t, store, "a") || !result.Report.Since.Equal(probed) {
		t.Errorf("%+v", result)
	}
}

func TestRivalReportsEndWithTheLatest(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	create(t, store, workload("a"))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			_, err := store.SetHealth(t.Context(), storage.HealthUpdate{Key: workload("a").Key(), Report: probe(i%2 == 0, time.Duration(i)*time.Second)})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	want := probe(false, 19*time.Second)
	if d := cmp.Diff(want, healthIn(t, client, "a"), cmpopts.IgnoreFields(health.Report{}, "Namespace", "Name", "UID", "Since", "Revision")); d != "" {
		t.Error(d)
	}
}

// A batch must count the operations as etcd does. Otherwise etcd refuses it, and the
// store takes that for a lost answer.
func TestAStockEtcdDeletesWhatTheStoreLetsPass(t *testing.T) {
	t.Parallel()
	store := open(t, etcdtest.Dial(t, etcdtest.Listen(t, etcdtest.DefaultLimits)), stock)
	var creates, deletes []storage.Op
	for i := range 64 {
		object := workload(fmt.Sprintf("w%02d", i))
		creates = append(creates, storage.Op{Verb: storage.Create, Config: object})
		deletes = append(deletes, storage.Op{Verb: storage.Delete, Key: object.Key()})
	}
	if _, _, err := store.Apply(t.Context(), creates); err != nil {
		t.Fatal(err)
	}
	_, _, err := store.Apply(t.Context(), deletes)
	wantTooLarge(t, err, "64 operations", "64 more for the health of workloads", "128")
	if _, _, err := store.Apply(t.Context(), deletes[:63]); err != nil {
		t.Error(err)
	}
}

func TestAServedVersionCountsHealth(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	created := create(t, store, workload("a"))
	healthy := report(t, store, "a", probe(true, 0)).Revision
	put := func(version string, served bool, address string) error {
		object := workload("a")
		object.Spec.(*networking.WorkloadEntry).Address, object.ResourceVersion = address, version
		_, _, err := store.Apply(t.Context(), []storage.Op{{Verb: storage.Put, Config: object, Served: served}})
		return err
	}
	if err := put(created, true, "10.0.0.2"); !errors.Is(err, storage.ErrConflict) || !strings.Contains(err.Error(), healthy) {
		t.Errorf("the version before the health: %v", err)
	}
	if err := put(healthy, false, "10.0.0.2"); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("the version of the object itself is not that of its health: %v", err)
	}
	if err := put(healthy, true, "10.0.0.2"); err != nil {
		t.Error(err)
	}
	object, err := store.Get(t.Context(), schema.WorkloadEntry, "a", "shop")
	if err != nil {
		t.Fatal(err)
	}
	if err := put(object.ResourceVersion, true, "10.0.0.3"); err != nil {
		t.Errorf("an object newer than its health: %v", err)
	}
}

// When several writers change an object or its health on condition of the same version,
// exactly one wins.
func TestOneOfRivalsWinsWhateverTheyChange(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	version := create(t, store, workload("a"))
	for round := range 20 {
		var rivals sync.WaitGroup
		wins := make(chan string, 6)
		for i := range 3 {
			rivals.Go(func() {
				r := &health.Report{Healthy: round%2 == 0, Message: fmt.Sprint(i)}
				result, err := store.SetHealth(t.Context(), storage.HealthUpdate{Key: workload("a").Key(), ResourceVersion: version, Report: r})
				if err == nil {
					wins <- result.Revision
				} else if !errors.Is(err, storage.ErrConflict) {
					t.Error(err)
				}
			})
			rivals.Go(func() {
				object := workload("a")
				object.ResourceVersion, object.Labels = version, map[string]string{"round": fmt.Sprint(round), "rival": fmt.Sprint(i)}
				revision, _, err := store.Apply(t.Context(), []storage.Op{{Verb: storage.Update, Config: object, Served: true}})
				if err == nil {
					wins <- revision
				} else if !errors.Is(err, storage.ErrConflict) {
					t.Error(err)
				}
			})
		}
		rivals.Wait()
		if len(wins) != 1 {
			t.Fatalf("round %d: %d won", round, len(wins))
		}
		version = <-wins
	}
}

// If the answer to a report is lost, the caller learns the real outcome. The store
// recognises its own write, even if the condition fails because of it.
func TestALostAnswerToAReport(t *testing.T) {
	t.Parallel()
	for name, lost := range ambiguous {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := etcdtest.Start(t)
			store := open(t, client)
			created := create(t, store, workload("a"))
			kv := hook(client)
			kv.after = once(always(lost))
			update := storage.HealthUpdate{Key: workload("a").Key(), ResourceVersion: created, Report: probe(true, 0)}
			result, err := store.SetHealth(t.Context(), update)
			if got := healthIn(t, client, "a"); err != nil || got == nil || got.Revision != parse(t, result.Revision) || kv.commits.Load() != 1 {
				t.Fatalf("landed, and the answer was lost: %+v, %v after %d transactions", result, err, kv.commits.Load())
			}
			kv.before = once(always(lost))
			second := report(t, store, "a", probe(false, time.Second))
			if got := healthIn(t, client, "a"); got.Healthy || got.Revision != parse(t, second.Revision) {
				t.Errorf("not landed at first: %+v", got)
			}
		})
	}
}

func TestAReportThatStaysInDoubt(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client, func(o *etcd.Options) { o.RequestTimeout = 300 * time.Millisecond })
	create(t, store, workload("a"))
	hook(client).before = always(context.DeadlineExceeded)
	_, err := store.SetHealth(t.Context(), storage.HealthUpdate{Key: workload("a").Key(), Report: probe(true, 0)})
	if !errors.Is(err, storage.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
}

// TestARestoredWorkloadComesWithItsHealth: object and health are one change. An object that exists keeps
// its health.
func TestARestoredWorkloadComesWithItsHealth(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	restore := func(r *health.Report) string {
		t.Helper()
		revision, _, err := store.Apply(t.Context(), []storage.Op{{Verb: storage.Restore, Config: workload("a"), Health: r}})
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	revision := restore(probe(true, 0))
	got := healthIn(t, client, "a")
	if got == nil || !got.Healthy || got.UID != uidOf(t, store, "a") || !got.Probed.Equal(probed) || fmt.Sprint(got.Revision) != revision {
		t.Errorf("restored at %s: %+v", revision, got)
	}
	restore(probe(false, time.Hour))
	if now := healthIn(t, client, "a"); !cmp.Equal(now, got) {
		t.Errorf("an object that exists: %+v, was %+v", now, got)
	}
	for name, op := range map[string]storage.Op{
		"a put":        {Verb: storage.Put, Config: workload("b"), Health: probe(true, 0)},
		"another kind": {Verb: storage.Restore, Config: entry("b", "b.test"), Health: probe(true, 0)},
	} {
		if _, _, err := store.Apply(t.Context(), []storage.Op{op}); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
