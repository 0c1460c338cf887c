package mirror_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// shown returns a quarantine, one line per entry.
func shown(q mirror.Quarantine) (lines []string) {
	for one := range q.All() {
		lines = append(lines, fmt.Sprintf("%s@%d size %d serving %v since %d: %s", strings.TrimPrefix(one.Key, etcd.ConfigPrefix),
			one.Revision, one.Size, one.Serving, one.Since.Unix(), one.Fault.Reason()))
	}
	return lines
}

// TestQuarantine: faults before the first list, faults from the watch, repaired ones,
// and what a new list makes of them.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	var now atomic.Int64
	r := cachetest.NewRig(t, subject(t, client, client, func(o *mirror.Options) {
		o.Now = func() time.Time { return time.Unix(now.Load(), 0) }
	}))
	m := mirrorOf(r)
	put := func(key, value string) int64 {
		t.Helper()
		answer, err := client.Put(t.Context(), key, value)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Header.Revision
	}
	want := func(what string, lines ...string) {
		t.Helper()
		r.Await(fmt.Sprint(revisionOf(t, client)))
		if d := cmp.Diff(lines, shown(m.Quarantine())); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	const (
		magic   = `undecodable value: it does not begin with "ptl\x01"`
		unknown = "not the key of a known object: its kind is unknown"
		form    = "not the key of a known object: it does not have the form group/kind/namespace/name"
	)
	x := etcd.ConfigKey(cachetest.Key("a", "x"))
	path := strings.TrimPrefix(x, etcd.ConfigPrefix)
	strange, short := etcd.ConfigPrefix+"example.org/Unknown/a/x", etcd.ConfigPrefix+"short"

	strangeAt := put(strange, "of another kind")
	now.Store(1000)
	r.Start()
	want("of the first list", fmt.Sprintf("example.org/Unknown/a/x@%d size 15 serving false since 1000: %s", strangeAt, unknown))
	early := m.Quarantine()

	now.Store(2000)
	r.Put("a", "x", 1)
	xAt := put(x, "junk")
	shortAt := put(short, "")
	put(etcd.MeshPrefix+"workload/x", "of another tree")
	lines := []string{
		fmt.Sprintf("example.org/Unknown/a/x@%d size 15 serving false since 1000: %s", strangeAt, unknown),
		fmt.Sprintf("%s@%d size 4 serving true since 2000: %s", path, xAt, magic),
		fmt.Sprintf("short@%d size 0 serving false since 2000: %s", shortAt, form),
	}
	want("of the watch", lines...)
	if q := m.Quarantine(); q.Len() != 3 || q.Foreign() != 2 || early.Len() != 1 {
		t.Errorf("%d in quarantine, %d foreign, %d in the first", q.Len(), q.Foreign(), early.Len())
	}
	if err := m.Degraded(); err != nil {
		t.Errorf("degraded: %v", err)
	}

	now.Store(3000)
	xAt = put(x, "other junk")
	lines[1] = fmt.Sprintf("%s@%d size 10 serving true since 2000: %s", path, xAt, magic)
	want("of another value", lines...)

	if _, err := client.Delete(t.Context(), short); err != nil {
		t.Fatal(err)
	}
	want("without one that was deleted", lines[:2]...)
	r.Put("a", "x", 2)
	want("without one that was mended", lines[:1]...)
	if _, err := client.Delete(t.Context(), strange); err != nil {
		t.Fatal(err)
	}
	want("that is empty")
}

// TestANewListKeepsTheQuarantine: a new list changes only the entries that differ.
func TestANewListKeepsTheQuarantine(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	f := newFaulty(t, func(o *mirror.Options) {
		o.Now = func() time.Time { return time.Unix(now.Load(), 0) }
	})
	keys := []string{etcd.ConfigPrefix + "k/1", etcd.ConfigPrefix + "k/2", etcd.ConfigPrefix + "k/3"}
	put := func(key string) {
		t.Helper()
		if _, err := f.direct.Put(t.Context(), key, ""); err != nil {
			t.Fatal(err)
		}
	}
	put(keys[0])
	put(keys[1])
	f.Start()
	f.relay.cut()
	now.Store(1000)
	if _, err := f.direct.Delete(t.Context(), keys[0]); err != nil {
		t.Fatal(err)
	}
	put(keys[2])
	compact(t, f.direct)
	f.relay.lead(f.direct.Endpoints()[0])
	f.Settle(fmt.Sprint(revisionOf(t, f.direct)))
	var got []string
	for one := range mirrorOf(f.Rig).Quarantine().All() {
		got = append(got, fmt.Sprint(one.Key, " ", one.Since.Unix()))
	}
	if d := cmp.Diff([]string{keys[1] + " 0", keys[2] + " 1000"}, got); d != "" {
		t.Errorf("quarantine (-want +got):\n%s", d)
	}
}

func revisionOf(t testing.TB, client *clientv3.Client) int64 {
	t.Helper()
	instance, err := etcd.ReadInstance(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	return instance.Revision
}

// TestAFormatAboveOursIsDegraded: the cache goes on serving, and Degraded says so.
func TestAFormatAboveOursIsDegraded(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	registry := prometheus.NewRegistry()
	r := cachetest.NewRig(t, subject(t, client, client, register(registry)))
	r.Put("a", "x", 1)
	r.Start()
	if err := mirrorOf(r).Degraded(); err != nil || metric(t, registry, "portolan_store_newer") != 0 {
		t.Errorf("degraded: %v", err)
	}
	// The message has the fields storage_format and min_reader.
	if _, err := client.Put(t.Context(), etcd.FormatKey, "ptl\x01\x08\x07\x10\x05"); err != nil {
		t.Fatal(err)
	}
	r.Eventually("degraded", func() bool { return mirrorOf(r).Degraded() != nil })
	for _, words := range []string{"storage format 7", "storage format 5", "read only"} {
		if err := mirrorOf(r).Degraded(); !strings.Contains(err.Error(), words) {
			t.Errorf("%q does not say %q", err, words)
		}
	}
	if r.Cache.Snapshot().Get(cachetest.Key("a", "x")) == nil || metric(t, registry, "portolan_store_newer") != 1 {
		t.Error("the object is gone, or the metric says nothing")
	}
}
