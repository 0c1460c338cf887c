package reliability_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/integration/reliability"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// TestTornLog cuts off the end of the log of a killed store, as a disk does that acknowledged
// writes too early. The store goes back, and reuses revisions. The server announces an epoch,
// and everybody converges to the store's present content.
func TestTornLog(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := newRig(t, topology{name: "torn", servers: 1}, 1, portolan(t))
	r.truth = &teller{r: r}
	if err := r.seedObjects(ctx); err != nil {
		t.Fatal(err)
	}
	s := r.servers[0]
	var running sync.WaitGroup
	follower := r.newProxy(s, 0)
	running.Go(func() { follower.run(ctx) })
	defer running.Wait()
	defer cancel()

	before, after := r.tear(t, ctx)
	t.Logf("the store went back from revision %d to %d", before, after)
	if err := await(ctx, 20*time.Second, func() error {
		sample, err := r.measure(ctx, s)
		if err == nil && sample.Epochs == 0 {
			err = errors.New("no epoch is counted")
		}
		return err
	}); err != nil {
		t.Errorf("the server does not know that the store went back: %v", err)
	}
	if err := r.writeDirectly(ctx, 3); err != nil { // reuses lost revisions
		t.Fatal(err)
	}
	if err := await(ctx, 20*time.Second, func() error { return r.sameAsStore(ctx, s) }); err != nil {
		t.Error(err)
	}
	if err := await(ctx, 20*time.Second, func() error { _, err := r.sameToAll(ctx, s, []*proxy{follower}); return err }); err != nil {
		t.Error(err)
	}
	if class := r.newWriter(0).write(ctx, s, reliability.Call{Writes: []reliability.Write{
		{Key: reliability.Singles()[0], Verb: reliability.Put, Value: r.values.Add(1)},
	}}); class != reliability.OK {
		t.Errorf("a write afterwards: %s", class)
	}
}

// tear makes the store lose its last revisions. It may take several attempts, since what the
// store has also written elsewhere is not lost.
func (r *rig) tear(t *testing.T, ctx context.Context) (before, after int64) {
	t.Helper()
	s := r.servers[0]
	for range 10 {
		if err := r.writeDirectly(ctx, 12); err != nil {
			t.Fatal(err)
		}
		before = r.head(ctx)
		if err := await(ctx, 5*time.Second, func() error {
			if sample, err := r.measure(ctx, s); err != nil || sample.Revision < before {
				return fmt.Errorf("the cache is at %d: %w", sample.Revision, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := r.writeDirectly(ctx, 8); err != nil {
			t.Fatal(err)
		}
		before = r.head(ctx)
		s.current().Pause()
		killed := s.signalStore(syscall.SIGKILL)
		log, whole := cutLog(t, s.dataDir)
		s.current().Resume()
		if err := s.awaitStore(ctx, killed); err == nil {
			if after = r.head(ctx); after < before {
				return before, after
			}
			continue
		}
		// The rest of the data was ahead of the log: try again with the whole log.
		s.current().Pause()
		if err := os.WriteFile(log, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		s.current().Resume()
		if err := s.awaitStore(ctx, killed); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the store does not lose anything")
	return 0, 0
}

// cutLog zeroes the end of the newest log, from the boundary of a sector on. It returns the
// log's path and former content.
func cutLog(t *testing.T, dataDir string) (path string, whole []byte) {
	t.Helper()
	const sector, lost = 512, 3 << 10
	paths, err := filepath.Glob(filepath.Join(dataDir, "etcd", "member", "wal", "*.wal"))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	path = slices.Max(paths)
	if whole, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	end := len(bytes.TrimRight(whole, "\x00"))
	torn := slices.Clone(whole)
	clear(torn[max(0, end-lost)/sector*sector : end])
	if err := os.WriteFile(path, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, whole
}

// head returns the revision of the store, 0 if it does not answer.
func (r *rig) head(ctx context.Context) (revision int64) {
	_ = r.withStore(ctx, func(ctx context.Context, c *clientv3.Client) error {
		answer, err := c.Get(ctx, "x")
		if err == nil {
			revision = answer.Header.Revision
		}
		return err
	})
	return revision
}

// sameAsStore returns an error unless a server shows the content of the store.
func (r *rig) sameAsStore(ctx context.Context, s *server) error {
	var revision int64
	err := r.withStore(ctx, func(ctx context.Context, c *clientv3.Client) error {
		answer, err := c.Get(ctx, etcd.ConfigPrefix, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		revision = answer.Header.Revision
		return r.finish(answer)
	})
	if err != nil {
		return err
	}
	shown, stored := map[reliability.Key]int64{}, map[reliability.Key]int64{} // values, since a status makes another version
	for _, scope := range reliability.Scopes() {
		l, class := r.list(ctx, newAPI(r, s), s, -2, scope, client.Freshness{MinRevision: revision})
		if class != reliability.OK {
			return fmt.Errorf("a list of %s: %s", scope, class)
		}
		for key, version := range l.Objects {
			shown[key] = version.Value
		}
	}
	for key, version := range r.history.Final {
		stored[key] = version.Value
	}
	if !maps.Equal(shown, stored) {
		return fmt.Errorf("the server shows the values %v, and the store has %v", shown, stored)
	}
	return nil
}
