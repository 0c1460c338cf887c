package etcd_test

import (
	"sync"
	"testing"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

func TestInstanceIsWrittenOnce(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	none, err := etcd.ReadInstance(t.Context(), client)
	if err != nil || none.ID != "" || none.Cluster == 0 || none.Revision != 1 {
		t.Fatalf("an empty store is %+v, %v", none, err)
	}
	ids := make([]string, 8)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			got, err := etcd.EnsureInstance(t.Context(), client)
			if err != nil {
				t.Error(err)
			}
			ids[i] = got.ID
		})
	}
	group.Wait()
	now, err := etcd.ReadInstance(t.Context(), client)
	if err != nil || now.ID == "" || now.Cluster != none.Cluster || now.Revision != 2 {
		t.Fatalf("the store is %+v, %v", now, err)
	}
	for _, id := range ids {
		if id != now.ID {
			t.Errorf("one was told %q, the store says %q", id, now.ID)
		}
	}
}
