package consul_test

import (
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/consul"
)

// healthy returns whether service a has n healthy endpoints.
func (f *fixture) healthy(n int) func() bool {
	return func() bool {
		got := 0
		for _, e := range f.xds.Rows()["consul/a.service.consul"].Endpoints {
			if e.Health == discovery.Healthy {
				got++
			}
		}
		return got == n
	}
}

// Only the answer for a service says that an instance is healthy: a check may have gone
// together with its instance.
func TestChecksOnlySayWhatToRead(t *testing.T) {
	t.Parallel()
	byEachPlan(t, func(t *testing.T, a *agent, o func(*consul.Options)) {
		f := follow(t, a, o).synced()
		for range 3 {
			a.put(entry("n1", "a", "a-1", "10.0.0.1", 80, check("c", api.HealthCritical)))
			await(t, "it is unhealthy", f.healthy(0))
			a.put(entry("n1", "a", "a-1", "10.0.0.1", 80, check("c", api.HealthPassing)))
			await(t, "it is healthy", f.healthy(1))
			a.put(entry("n1", "a", "a-1", "10.0.0.1", 80, check("node", api.HealthCritical)))
			await(t, "its node is not", f.healthy(0))
		}
		a.put(entry("n1", "a", "a-2", "10.0.0.7", 80, check("c2", api.HealthPassing)))
		await(t, "another is healthy", f.healthy(1))
		f.xds.Take()
		a.remove("n1/a-1")
		f.row("a", "tcp-80=10.0.0.7:80")
		if calls := f.xds.Take(); len(calls) != 1 {
			t.Errorf("an unhealthy instance goes in %v", calls)
		}
	})
}

// A check comes and goes between two lists of checks, and a service is read in between. The
// registry still finds that the check is gone.
func TestACheckThatNoListHasShown(t *testing.T) {
	t.Parallel()
	byEachPlan(t, func(t *testing.T, a *agent, o func(*consul.Options)) {
		f := follow(t, a, o).synced()
		one := func(id, status string, more ...func(*api.ServiceEntry)) {
			a.put(entry("n1", "a", "a-1", "10.0.0.1", 80, append(more, check(id, status))...))
		}
		one("c", api.HealthCritical)
		await(t, "it is unhealthy, and the lists are followed", f.healthy(0))
		one("c", api.HealthPassing)
		await(t, "it is healthy", f.healthy(1))
		a.change(func() { a.held = []string{"health/state"} })
		one("c", api.HealthCritical, tags("v=2")) // another query reports this change
		await(t, "it is unhealthy", f.healthy(0))
		one("c", api.HealthPassing, tags("v=2"))
		a.change(func() { a.held = nil })
		await(t, "it is healthy again", f.healthy(1))
	})
}
