package registrytest

import (
	"sync"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
)

// fork returns a fork of the current registry.
func (r *rig) fork() (out discovery.Fork) {
	done := make(chan struct{})
	r.worker.Post(new(int), func() { out = r.Registry.Fork(); close(done) })
	<-done
	return out
}

// would returns the snapshots before and after these services are offered, nil if the source
// does not follow the configuration.
func (r *rig) would(offers ...Service) (from, to *cache.Snapshot) {
	if r.Would == nil {
		return nil, nil
	}
	return r.Would(offers...)
}

// allAnswers returns the answers to all queries of a registry, or of a fork.
func allAnswers(d discovery.ServiceDiscovery, proxies ...*discovery.Proxy) any {
	var instances [][]string
	for _, s := range d.Services() {
		instances = append(instances, addresses(d.InstancesByPort(s, s.Ports[0].Number, nil)))
	}
	for _, p := range proxies {
		instances = append(instances, addresses(d.GetProxyServiceInstances(p)))
	}
	return []any{d.Services(), instances}
}

func testForkStays(t *testing.T, r *rig) {
	r.run(web())
	fork := r.fork()
	before := allAnswers(fork, r.proxy("10.0.0.1"))
	r.expect(before, allAnswers(r.Registry, r.proxy("10.0.0.1")))
	r.Offer(web(), api())
	r.await("the registry goes on", func() bool { return len(r.Registry.Services()) == 2 })
	r.expect(allAnswers(fork, r.proxy("10.0.0.1")), before)
	if len(fork.Services()) != 1 {
		t.Error("a fork changes with its registry")
	}
}

func testForkSeesBatch(_ *testing.T, r *rig) {
	r.run(web())
	fork := r.fork()
	before := allAnswers(fork)
	changed := web()
	changed.Instances = changed.Instances[:1]
	from, to := r.would(changed, api())
	handed := &discoverytest.Recorder{}
	after := fork.Apply(from, to, handed)
	r.expect(allAnswers(r.Registry), before)
	r.expect(allAnswers(fork), before)
	if r.Would == nil {
		r.expect(allAnswers(after), before)
		r.expect(handed.Take(), []string(nil))
		return
	}
	r.expect(handed.Redundant(), []string(nil))
	r.Offer(changed, api())
	r.await("the batch is there", func() bool { return len(r.Registry.Services()) == 2 && r.endpoints("web") == 1 })
	r.settle()
	r.expect(allAnswers(after, r.proxy("10.0.0.1")), allAnswers(r.Registry, r.proxy("10.0.0.1")))
	for key, row := range handed.Rows() {
		r.expect(row.Endpoints, r.xds.Rows()[key].Endpoints)
	}
	r.expect(len(handed.Rows()), 2)
}

func testForksAreApart(t *testing.T, r *rig) {
	r.run(web())
	fork := r.fork()
	alone := fork.Apply(r.wouldTo(web(), api()))
	var applying sync.WaitGroup
	for i := range 8 {
		applying.Go(func() {
			offers := []Service{web(), api()}
			if i%2 == 1 {
				offers = nil
			}
			got := fork.Apply(r.wouldTo(offers...))
			switch {
			case i%2 == 0 && len(got.Services()) != len(alone.Services()):
				t.Errorf("one of several forks has %d services, alone it has %d", len(got.Services()), len(alone.Services()))
			case i%2 == 1 && r.Would != nil && len(got.Services()) != 0:
				t.Errorf("a fork whose services go has %d", len(got.Services()))
			}
		})
	}
	r.Offer(api()) // the registry changes in the meantime
	applying.Wait()
	r.expect(len(fork.Services()), 1)
}

// wouldTo is like would, and also returns an updater for the rows.
func (r *rig) wouldTo(offers ...Service) (from, to *cache.Snapshot, xds discovery.XDSUpdater) {
	from, to = r.would(offers...)
	return from, to, &discoverytest.Recorder{}
}
