package consul

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/storage/retry"
)

// The pauses between two sweeps.
const (
	sweepPause = 250 * time.Millisecond
	// sweepShare is the least ratio of the pause to the time that the last sweep took.
	sweepShare = 2
)

// sweeper finds out what has changed when Consul only reports that something has.
type sweeper struct {
	d     *datacenter
	reads *reads
	// due holds a token when something has changed.
	due chan struct{}

	mu       sync.Mutex // guards the fields below
	nodes    []string
	services []string
	took     time.Duration // duration of the last sweep
}

func (s *sweeper) requestSweep() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

func (s *sweeper) setNodes(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = names
}

func (s *sweeper) setServices(wanted map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services = slices.Sorted(maps.Keys(wanted))
}

// freshness returns how old the known content may be.
func (s *sweeper) freshness() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 2*s.took + max(sweepPause, sweepShare*s.took)
}

// run sweeps whenever something has changed, until ctx ends.
func (s *sweeper) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.due:
		}
		began := time.Now()
		s.sweep(ctx)
		took := time.Since(began)
		s.mu.Lock()
		s.took = took
		s.mu.Unlock()
		_ = retry.Sleep(ctx, max(sweepPause, sweepShare*took))
	}
}

// sweep queries the instances on every node, or reads every service if there are fewer of
// those.
func (s *sweeper) sweep(ctx context.Context) {
	s.mu.Lock()
	nodes, services := s.nodes, s.services
	s.mu.Unlock()
	if len(nodes) >= len(services) {
		s.reads.request(false, services...)
		for ctx.Err() == nil && !s.reads.idle() {
			_ = retry.Sleep(ctx, spacing)
		}
		return
	}
	names := make(chan string)
	var running sync.WaitGroup
	defer running.Wait()
	defer close(names)
	for range min(readsAtOnce, len(nodes)) {
		running.Go(func() {
			for name := range names {
				s.checkNode(ctx, name)
			}
		})
	}
	for _, name := range nodes {
		select {
		case names <- name:
		case <-ctx.Done():
			return
		}
	}
}

// checkNode queries a node, and has the services read whose instances there differ from the known
// ones.
func (s *sweeper) checkNode(ctx context.Context, name string) {
	if s.d.mustProbe() {
		s.d.recover(ctx)
	}
	q := s.d.node(name)
	instances, _, err := request(ctx, s.d, q, 0)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.d.addFailure(q.String(), err)
		s.requestSweep()
	default:
		s.d.clearFailure(q.String())
		s.reads.request(false, s.d.r.catalog.outdated(s.d.name, name, instances)...)
	}
}
