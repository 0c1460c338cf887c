package etcd_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestQuotaUsedUp has many writers use up the quota at once. etcd may apply a write and
// still answer that there is no space. The store must report what really happened.
func TestQuotaUsedUp(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t, func(c *embed.Config) { c.QuotaBackendBytes = 16 << 20 })
	store := open(t, etcdtest.Dial(t, endpoint))
	const writers = 32
	var (
		group    sync.WaitGroup
		mu       sync.Mutex
		refused  []string
		refusals []error
	)
	for w := range writers {
		group.Go(func() {
			for i := range 1000 {
				object := entry(fmt.Sprintf("w%d-%d", w, i), "1.example")
				object.Annotations = map[string]string{"pad": strings.Repeat("x", 32<<10)}
				if _, err := store.Create(t.Context(), object); err != nil {
					mu.Lock()
					refused, refusals = append(refused, object.Name), append(refusals, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	group.Wait()
	for i, name := range refused {
		if !isErr(refusals[i], storage.ErrUnavailable) || !strings.Contains(refusals[i].Error(), "quota") {
			t.Errorf("%s was refused with %v", name, refusals[i])
		}
		if _, err := store.Get(t.Context(), schema.ServiceEntry, name, "shop"); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s was refused (%v), and is there (%v)", name, refusals[i], err)
		}
	}
	if len(refused) != writers {
		t.Errorf("%d of %d writers were refused", len(refused), writers)
	}
}
