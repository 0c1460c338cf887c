package cache_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// large returns a version of an object that takes much memory, in many small parts.
func large(revision int64) *config.Config {
	spec := &networking.ServiceEntry{Hosts: []string{"large.example"}}
	for i := range 2_000 {
		spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{
			Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Labels: map[string]string{"version": "v" + strconv.Itoa(i)},
			Ports: map[string]uint32{"http": 8080},
		})
	}
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: alpha, Namespace: "ns", Name: "large", ResourceVersion: strconv.FormatInt(revision, 10)},
		Spec: spec,
	}
}

// TestHistoryIsBoundedInBytes: many versions of a large object do not stay. A follower
// from a dropped one gets an error. The newest changes stay whatever their size.
func TestHistoryIsBoundedInBytes(t *testing.T) {
	const versions, limit = 100, 16 << 20
	f := cache.NewFeed(cache.FeedOptions{Worker: cache.NewWorker(), Schemas: schemas(), HistoryMemory: limit})
	held := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var configs pmap.Map[*config.Config]
	publish := func(revision int64) {
		object := large(revision)
		configs = configs.Set(object.Key().Path(), object)
		f.Publish(cache.NewSnapshot(revision, configs))
	}
	before := held()
	f.Replace(cache.NewSnapshot(1, configs))
	first := f.Snapshot()
	for revision := range int64(versions) {
		publish(revision + 2)
	}
	grown := held() - before
	t.Logf("%d versions take %d KiB of memory", versions, grown>>10)
	if grown > 2*limit {
		t.Errorf("%d versions take %d KiB of memory: the limit is %d KiB", versions, grown>>10, limit>>10)
	}
	if grown < limit/2 {
		t.Errorf("%d versions take %d KiB of memory: history is far from its limit of %d KiB", versions, grown>>10, limit>>10)
	}
	if _, err := f.Next(t.Context(), first); err == nil {
		t.Error("who follows from what was forgotten is not told")
	}
	for revision := range int64(3) {
		if _, ok := f.At(versions + 1 - revision); !ok {
			t.Errorf("revision %d is not kept", versions+1-revision)
		}
	}
	runtime.KeepAlive(f)
}
