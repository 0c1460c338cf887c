package xds_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// handCache is a cache whose snapshots the test publishes.
type handCache struct{ *cache.Feed }

// Run implements cache.ConfigStoreCache.
func (handCache) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// handled makes an empty snapshot of a revision the one that all handlers have
// seen.
func (h handCache) handled(worker *cache.Worker, revision int64) {
	h.Publish(cache.NewSnapshot(revision, pmap.Map[*config.Config]{}))
	done := make(chan struct{})
	worker.Post("handled", func() { close(done) })
	<-done
}

// byHand is a DiscoveryServer that runs over a cache moved by hand.
type byHand struct {
	*xds.DiscoveryServer
	handle   func(revision int64) // makes an empty snapshot the handled one
	stop     func()               // ends Run and waits for it
	address  string               // where it is served by gRPC
	registry *prometheus.Registry
}

func starting(t *testing.T, synced func() bool) *byHand {
	t.Helper()
	worker, registry := cache.NewWorker(), prometheus.NewRegistry()
	configs := handCache{cache.NewFeed(cache.FeedOptions{Worker: worker, Schemas: schema.Pilot()})}
	s := xds.New(xds.Options{
		Configs: configs, Types: catalogue.Types(), Synced: synced, Registerer: registry, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, part := range []func(context.Context) error{worker.Run, s.Run} {
		running.Go(func() {
			if err := part(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	g := grpc.NewServer(xds.ServerOptions()...)
	s.Register(g)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(listener) })
	b := &byHand{
		DiscoveryServer: s, registry: registry, address: listener.Addr().String(),
		handle: func(revision int64) { configs.handled(worker, revision) },
		stop:   sync.OnceFunc(func() { cancel(); running.Wait() }),
	}
	t.Cleanup(func() {
		g.Stop()
		b.stop()
		serving.Wait()
	})
	return b
}

// counted is the sum over the labels of a counter.
func counted(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestSyncedAfterTheLastCommit: a server that is synced only after everything
// was committed, as with an empty store, publishes all the same.
func TestSyncedAfterTheLastCommit(t *testing.T) {
	t.Parallel()
	var synced, asked atomic.Bool
	s := starting(t, func() bool {
		asked.Store(true)
		return synced.Load()
	})
	s.handle(1)
	s.Commit()
	xdstest.Eventually(t, "the question", asked.Load)
	select {
	case <-s.Published():
		t.Fatal("published before it is synced")
	default:
	}
	synced.Store(true)
	select {
	case <-s.Published():
	case <-time.After(10 * time.Second):
		t.Fatal("nothing is published")
	}
}

// TestTheFirstPushHasWhatSyncedPromised: what was committed before the server
// was synced is part of the first push, not of a second one.
func TestTheFirstPushHasWhatSyncedPromised(t *testing.T) {
	t.Parallel()
	var s *byHand
	var once sync.Once
	ready := make(chan struct{})
	s = starting(t, func() bool {
		<-ready
		once.Do(func() { // the last registry commits, then it is synced
			s.handle(2)
			s.Commit()
		})
		return true
	})
	s.handle(1)
	s.Commit()
	close(ready)
	xdstest.Eventually(t, "revision 2", func() bool { return s.Context().Revision() == 2 })
	if n := counted(t, s.registry, "portolan_pushes_total"); n != 1 {
		t.Errorf("%.0f pushes", n)
	}
}

// TestAPushBeganWithWhatItCarries: a wake-up that changed nothing does not make
// the next push look old.
func TestAPushBeganWithWhatItCarries(t *testing.T) {
	t.Parallel()
	s := starting(t, func() bool { return true })
	s.SvcUpdate(discovery.ShardKey{Provider: discovery.Memory}, "a.example", "shop", nil)
	s.ConfigUpdate(&discovery.PushRequest{Reason: map[string]int{discovery.ReasonMesh: 2}})
	before := time.Now()
	s.handle(1)
	s.Commit()
	<-s.Published()
	r := s.LastRequest()
	if r.Start.Before(before) {
		t.Errorf("the push began %s before anything changed", before.Sub(r.Start))
	}
	want := map[string]int{discovery.ReasonService: 1, discovery.ReasonMesh: 2, discovery.ReasonConfig: 1}
	if d := cmp.Diff(want, r.Reason); d != "" {
		t.Errorf("reasons (-want +got):\n%s", d)
	}
}
