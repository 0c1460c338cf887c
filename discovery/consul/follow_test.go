package consul_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/consul/api"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/consul"
)

// limits holds, for each plan, a limit on queries that makes the registry choose it for six
// services on one or two nodes.
var limits = map[string]int{"service": 10, "node": 6, "sweep": 4}

// six returns an agent that has six services with one instance each.
func six(t *testing.T) *agent {
	a := newAgent(t)
	for i, name := range []string{"a", "b", "c", "x", "y", "z"} {
		a.put(entry("n1", name, name+"-1", fmt.Sprintf("10.0.0.%d", i+1), 80))
	}
	return a
}

// byEachPlan runs a test on six services under each plan.
func byEachPlan(t *testing.T, test func(t *testing.T, a *agent, o func(*consul.Options))) {
	for plan, limit := range limits {
		t.Run(plan, func(t *testing.T) {
			t.Parallel()
			test(t, six(t), func(o *consul.Options) { o.MaxQueries = limit })
		})
	}
}

func TestOneChangedInstanceIsOneUpdate(t *testing.T) {
	t.Parallel()
	byEachPlan(t, func(t *testing.T, a *agent, o func(*consul.Options)) {
		f := follow(t, a, o).synced()
		f.row("a", "tcp-80=10.0.0.1:80")
		f.xds.Take()
		a.put(entry("n2", "a", "a-2", "10.0.1.1", 80))
		f.row("a", "tcp-80=10.0.0.1:80", "tcp-80=10.0.1.1:80")
		a.put(entry("n1", "b", "b-1", "10.0.0.2", 80, tags("version=v2")))
		await(t, "the label is there", func() bool {
			return f.xds.Rows()["consul/b.service.consul"].Endpoints[0].Labels["version"] == "v2"
		})
		a.put(entry("n1", "d", "d-1", "10.0.0.4", 80))
		f.row("d", "tcp-80=10.0.0.4:80")
		want := []string{
			"endpoints consul/a.service.consul 2", "endpoints consul/b.service.consul 1",
			"services consul/d.service.consul 1", "endpoints (silent) consul/d.service.consul 1", "wake service=1",
		}
		var got []string
		await(t, "the pusher is woken", func() bool { got = append(got, f.xds.Take()...); return len(got) >= len(want) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		a.remove("n1/d-1")
		await(t, "the service goes", func() bool { return !f.has("d") })
	})
}

// While Consul does not answer, has no leader or refuses the token, no endpoint goes. Once it
// is back, the registry sees what happened in the meantime.
func TestWhileConsulIsAway(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for name, harm := range map[string]func(a *agent, on bool){
		"no leader":      func(a *agent, on bool) { a.leader = !on },
		"refuses token":  func(a *agent, on bool) { a.denied = on },
		"shows nothing":  func(a *agent, on bool) { a.hidden = func(string) bool { return on } },
		"hides one of c": func(a *agent, on bool) { a.hidden = func(s string) bool { return on && s == "c" } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			byEachPlan(t, func(t *testing.T, a *agent, o func(*consul.Options)) {
				f := follow(t, a, o).synced()
				f.xds.Take()
				a.change(func() { harm(a, true) })
				await(t, "it is degraded", func() bool { return f.Degraded() != nil })
				if err := f.Ready(); err != nil {
					t.Errorf("not ready any more: %v", err)
				}
				if name == "no leader" {
					await(t, "it is told since when", func() bool {
						s := f.SourceStatuses()[0]
						return s.State == discovery.SourceLastKnown && s.AsOf.After(began) && s.Problem != ""
					})
				} else if s := f.SourceStatuses()[0]; s.State == discovery.SourceLive || s.State == discovery.SourceSyncing {
					t.Errorf("%+v", s)
				}
				if calls := f.xds.Take(); len(calls) > 0 {
					t.Errorf("while Consul is away: %v", calls)
				}
				a.change(func() {
					a.entries["n1/b-2"] = entry("n1", "b", "b-2", "10.0.0.9", 80)
					delete(a.entries, "n1/c-1")
					harm(a, false)
				})
				f.row("b", "tcp-80=10.0.0.2:80", "tcp-80=10.0.0.9:80")
				await(t, "what went meanwhile goes", func() bool { return !f.has("c") })
				await(t, "it is not degraded", func() bool { return f.Degraded() == nil })
				if !f.has("a") {
					t.Error("a is gone")
				}
			})
		})
	}
}

// losses are the ways in which a Consul shows that it has lost its data.
var losses = map[string]func(*agent){
	"its servers are others": func(a *agent) { a.server, a.denied, a.index = "second", true, 100 },
	"its index goes back":    func(a *agent) { a.index = 1 },
}

// After a loss of data, what Consul lacks is kept. But what Consul has again and then loses is
// gone.
func TestConsulLosesItsData(t *testing.T) {
	t.Parallel()
	for name, harm := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			byEachPlan(t, func(t *testing.T, a *agent, o func(*consul.Options)) {
				f := follow(t, a, o, func(o *consul.Options) { o.ResetHold = time.Hour }).synced()
				f.xds.Take()
				a.lose(t, f, harm)
				await(t, "it says so", func() bool {
					err := f.Degraded()
					return err != nil && strings.Contains(err.Error(), "lost its data")
				})
				a.put(entry("n1", "a", "a-1", "10.0.0.1", 80))
				a.put(entry("n1", "b", "b-1", "10.0.0.22", 80))
				f.row("b", "tcp-80=10.0.0.22:80")
				await(t, "a was seen again", func() bool { return f.Status().Datacenters[0].Kept == 4 }) // c, x, y, z
				for _, s := range []string{"a", "b", "c"} {
					if !f.has(s) {
						t.Errorf("%s is gone", s)
					}
				}
				a.remove("n1/a-1")
				await(t, "a goes, which was there again", func() bool { return !f.has("a") })
				if !f.has("c") {
					t.Error("c is gone before its time")
				}
			})
		})
	}
}

// After a loss of data, what Consul does not have again within ResetHold is withdrawn.
func TestWhatALostConsulDoesNotBringBackGoes(t *testing.T) {
	t.Parallel()
	for name, harm := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			byEachPlan(t, func(t *testing.T, a *agent, o func(*consul.Options)) {
				f := follow(t, a, o, func(o *consul.Options) { o.ResetHold = 100 * time.Millisecond }).synced()
				a.lose(t, f, harm)
				a.put(entry("n1", "b", "b-1", "10.0.0.22", 80))
				await(t, "what is not back in time goes", func() bool { return !f.has("c") })
				await(t, "it is not degraded", func() bool { return f.Degraded() == nil })
				await(t, "b is there", func() bool { return f.has("b") })
			})
		})
	}
}

// lose removes all services from Consul and harms it. The blocking queries for lists do not
// show the loss before the answers for nodes and services come; on a slow machine these may not
// have been asked for yet, and then the lists show it after some seconds.
func (a *agent) lose(t *testing.T, f *fixture, harm func(*agent)) {
	t.Helper()
	// With a short ResetHold the registry is synced before Consul is read.
	await(t, "all is read", func() bool { return f.Status().Datacenters[0].Whole })
	a.change(func() {
		clear(a.entries)
		harm(a)
		a.held = []string{"catalog/services", "catalog/nodes", "health/state"}
	})
	if a.denied {
		await(t, "that it is away is seen", func() bool { return f.Degraded() != nil })
		a.change(func() { a.denied = false })
	}
	released := time.AfterFunc(5*time.Second, func() { a.change(func() { a.held = nil }) })
	defer released.Stop()
	await(t, "that data is lost is seen", func() bool { return strings.Contains(f.log.String(), "lost its data") })
	a.change(func() { a.held = nil })
}

// What Consul has lost is not withdrawn while Consul is away, however long.
func TestConsulLosesItsDataAndGoes(t *testing.T) {
	t.Parallel()
	const hold = 1500 * time.Millisecond
	a := six(t)
	f := follow(t, a, func(o *consul.Options) { o.ResetHold = hold }).synced()
	a.change(func() { clear(a.entries); a.index = 1 })
	await(t, "it is seen", func() bool { return strings.Contains(f.log.String(), "has lost its data") })
	a.change(func() { a.leader = false })
	await(t, "it is away", func() bool {
		err := f.Degraded()
		return err != nil && strings.Contains(err.Error(), "cannot be read")
	})
	f.xds.Take()
	<-time.After(hold * 3 / 2)
	if calls := f.xds.Take(); len(calls) > 0 {
		t.Errorf("while Consul is away: %v", calls)
	}
	a.change(func() { // in one change: what is missing when Consul is back would go
		a.entries["n1/a-1"] = entry("n1", "a", "a-1", "10.0.0.1", 80)
		a.leader = true
	})
	await(t, "what is not back in time goes", func() bool { return !f.has("b") })
	if !f.has("a") {
		t.Error("a is gone")
	}
}

func TestNotReadyBeforeTheWholeIsRead(t *testing.T) {
	t.Parallel()
	a := six(t)
	a.change(func() { a.leader = false })
	f := follow(t, a)
	await(t, "it says why", func() bool {
		err := f.Ready()
		return err != nil && strings.Contains(err.Error(), "datacenter local: not read yet") && strings.Contains(err.Error(), "No cluster leader")
	})
	if f.HasSynced() || len(f.xds.Rows()) > 0 {
		t.Error("synced with nothing")
	}
	if got := f.gauge("portolan_consul_up"); got != 0 {
		t.Errorf("portolan_consul_up is %v", got)
	}
	a.change(func() { a.leader = true })
	f.synced()
	for _, s := range []string{"a", "b", "c"} {
		if !f.has(s) {
			t.Errorf("synced without %s", s)
		}
	}
}

// The plan follows the number of services and nodes; no endpoint goes when it changes.
func TestThePlanChanges(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.put(entry("n1", "first", "first", "10.0.0.1", 80))
	f := follow(t, a, func(o *consul.Options) { o.MaxQueries = 8 }).synced()
	awaitPlan := func(plan string) {
		t.Helper()
		await(t, "by "+plan, func() bool { return f.Status().Datacenters[0].By == plan })
	}
	awaitPlan("service")
	many := func(nodes int) {
		a.change(func() {
			for i := range 12 {
				e := entry(fmt.Sprintf("n%d", i%nodes), fmt.Sprintf("s%d", i), fmt.Sprintf("s%d", i), "10.0.1.1", 80)
				a.entries[e.Service.ID] = e
			}
		})
	}
	many(2) // with the first service, on three nodes
	awaitPlan("node")
	f.row("s11", "tcp-80=10.0.1.1:80")
	many(6)
	awaitPlan("sweep")
	a.change(func() { a.entries["s11"].Service.Address = "10.0.1.2" })
	f.row("s11", "tcp-80=10.0.1.2:80")
	if fresh := f.Status().Datacenters[0].Freshness; fresh <= 0 || fresh > 5*time.Second {
		t.Errorf("freshness of 13 services by sweep: %s", fresh)
	}
	many(1)
	awaitPlan("node")
	a.change(func() {
		for i := range 12 {
			if i > 2 {
				delete(a.entries, fmt.Sprintf("s%d", i))
			}
		}
	})
	await(t, "they go", func() bool { return !f.has("s11") })
	awaitPlan("service")
	f.row("first", "tcp-80=10.0.0.1:80")
	if calls := f.xds.Take(); slices.Contains(calls, "services consul/first.service.consul 0") {
		t.Errorf("the first service was withdrawn meanwhile: %v", calls)
	}
}

// A service in several datacentres is one service with all their endpoints.
func TestSeveralDatacenters(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	in := func(dc string) func(*api.ServiceEntry) { return node(func(n *api.Node) { n.Datacenter = dc }) }
	a.put(entry("n1", "web", "w", "10.0.0.1", 80, in("east")))
	a.put(entry("n2", "web", "w", "10.0.0.2", 80, in("west")))
	a.put(entry("n3", "web", "w", "10.0.0.3", 80, in("south"))) // in a datacentre that the registry does not read
	f := follow(t, a, func(o *consul.Options) { o.Datacenters = []string{"west", "east"} }).synced()
	want := []string{"port tcp-80 80 TCP", "10.0.0.1:80 at east for tcp-80 weight 1", "10.0.0.2:80 at west for tcp-80 weight 1"}
	if diff := cmp.Diff(want, described(f.xds.Rows()["consul/web.service.consul"])); diff != "" {
		t.Error(diff)
	}
	a.remove("n1/w")
	f.row("web", "tcp-80=10.0.0.2:80")
}
