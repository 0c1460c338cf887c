package integration

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/hashicorp/consul/api"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/longtest"
)

// bigConsul is a Consul with many services on many nodes, and a registry that
// follows it.
type bigConsul struct {
	*consulAgent
	registry        *consul.Registry
	services, nodes int
	weights         int
}

func followBigConsul(t *testing.T, services, nodes int) *bigConsul {
	t.Helper()
	b := &bigConsul{consulAgent: startConsul(t, consulOptions{}), services: services, nodes: nodes}
	began := time.Now()
	b.catalogue(services, nodes)
	b.checks(services, nodes)
	t.Logf("registered in %s", time.Since(began).Round(time.Millisecond))
	b.registry, _, _ = b.follow(0)
	began = time.Now()
	cpu := b.cpu()
	eventually(t, "the registry has synced", func() error { return b.registry.Ready() })
	t.Logf("%d services on %d nodes read in %s, for %s of Consul's CPU", services, nodes, time.Since(began).Round(time.Millisecond), b.cpu()-cpu)
	return b
}

// follow runs a registry with a limit on queries until the caller calls stop or the test ends.
func (c *consulAgent) follow(limit int) (r *consul.Registry, xds *discoverytest.Recorder, stop func()) {
	c.t.Helper()
	worker := cache.NewWorker()
	xds = &discoverytest.Recorder{}
	r, err := consul.New(consul.Options{Address: c.url, XDS: xds, Worker: worker, MaxQueries: limit})
	c.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = worker.Run(ctx) })
	running.Go(func() { _ = r.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	c.t.Cleanup(stop)
	return r, xds, stop
}

// checks registers a passing check for every service of the catalogue.
func (c *consulAgent) checks(services, nodes int) {
	c.t.Helper()
	type document = map[string]any // the API's type has fields that Consul 1.12 rejects
	var ops []document
	for i := range services {
		id := fmt.Sprintf("s%d", i)
		ops = append(ops, document{"Check": document{"Verb": api.CheckSet, "Check": document{
			"Node": fmt.Sprintf("n%d", i%nodes), "CheckID": "c" + id, "Name": "c", "ServiceID": id, "ServiceName": id, "Status": api.HealthPassing,
		}}})
		if len(ops) == 64 || i == services-1 {
			_, err := c.Raw().Write("/v1/txn", ops, nil, nil)
			c.must(err)
			ops = nil
		}
	}
}

// endpoint returns the only endpoint of a service, nil if it has none or several.
func (b *bigConsul) endpoint(service int) *discovery.Endpoint {
	s := b.registry.GetService(host.Name(fmt.Sprintf("s%d.service.consul", service)))
	if s == nil {
		return nil
	}
	if all := b.registry.InstancesByPort(s, s.Ports[0].Number, nil); len(all) == 1 {
		return all[0].Endpoint
	}
	return nil
}

// mark sets the check of a service, and returns how long it takes until the registry sees it.
func (b *bigConsul) mark(service int, status string) time.Duration {
	b.t.Helper()
	id, node := fmt.Sprintf("s%d", service), fmt.Sprintf("n%d", service%b.nodes)
	want := discovery.Healthy
	if status == api.HealthCritical {
		want = discovery.Unhealthy
	}
	_, err := b.Catalog().Register(&api.CatalogRegistration{Node: node, SkipNodeUpdate: true, Check: &api.AgentCheck{
		Node: node, CheckID: "c" + id, Name: "c", ServiceID: id, ServiceName: id, Status: status,
	}}, nil)
	b.must(err)
	return b.awaitTimed(id+" is "+status, func() bool { e := b.endpoint(service); return e != nil && e.Health == want })
}

// reweigh registers a service again with another weight, and returns how long it takes until
// the registry sees it. Consul only tells the registry that something in the catalogue changed.
func (b *bigConsul) reweigh(service int) time.Duration {
	b.t.Helper()
	b.weights++
	weight := 2 + b.weights%50
	id := fmt.Sprintf("s%d", service)
	_, err := b.Catalog().Register(&api.CatalogRegistration{Node: fmt.Sprintf("n%d", service%b.nodes), SkipNodeUpdate: true, Service: &api.AgentService{
		ID: id, Service: id, Port: 8080, Meta: map[string]string{"protocol": "http"}, Weights: api.AgentWeights{Passing: weight, Warning: 1},
	}}, nil)
	b.must(err)
	return b.awaitTimed(id+" has a weight", func() bool { e := b.endpoint(service); return e != nil && e.Weight == uint32(weight) })
}

// awaitTimed waits until something holds, and returns how long that took.
func (b *bigConsul) awaitTimed(what string, holds func() bool) time.Duration {
	b.t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > 2*time.Minute {
			b.t.Fatalf("not seen in %s: %s: %+v", time.Since(began), what, b.registry.Status().Datacenters)
		}
		time.Sleep(200 * time.Microsecond)
	}
	return time.Since(began)
}

// cpu returns the processor time that Consul's process has used.
func (c *consulAgent) cpu() time.Duration { return cpuOf(fmt.Sprint(c.process.pid())) }

// cpuOf returns the processor time that a process has used, 0 if the system does not report it.
func cpuOf(process string) time.Duration {
	text, err := os.ReadFile("/proc/" + process + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// cost is the work counted between two moments.
type cost struct {
	at      time.Time
	cpu     time.Duration
	own     time.Duration // of this process, including the test's own checks
	queries int
	bytes   uint64
}

func (b *bigConsul) cost() cost {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return cost{time.Now(), b.cpu(), cpuOf("self"), b.queries(), m.TotalAlloc}
}

// since describes the cost since an earlier one.
func (b *bigConsul) since(c cost, changes int) string {
	now := b.cost()
	took := now.at.Sub(c.at)
	out := fmt.Sprintf("in %s: %d queries (%.1f/s), %.1f %% of a core of Consul, %.1f %% and %d kB allocated here", took.Round(time.Millisecond),
		now.queries-c.queries, float64(now.queries-c.queries)/took.Seconds(), 100*float64(now.cpu-c.cpu)/float64(took), 100*float64(now.own-c.own)/float64(took), (now.bytes-c.bytes)>>10)
	if changes > 0 {
		out += fmt.Sprintf("; for each of %d changes %.1f queries, %s of Consul's CPU, %d kB", changes,
			float64(now.queries-c.queries)/float64(changes), ((now.cpu - c.cpu) / time.Duration(changes)).Round(10*time.Microsecond), (now.bytes-c.bytes)>>10/uint64(changes))
	}
	return out
}

// quantiles sorts times and describes them.
func quantiles(times []time.Duration) (median time.Duration, text string) {
	slices.Sort(times)
	at := func(q float64) time.Duration { return times[int(q*float64(len(times)-1))].Round(10 * time.Microsecond) }
	return at(0.5), fmt.Sprintf("p50 %s, p99 %s, at most %s", at(0.5), at(0.99), at(1))
}

// TestSoakConsulAtSize follows 5,000 services on 200 nodes with the default limits. The
// registry sees a critical check, and a registration, in under a second, and each costs a
// stated number of requests.
func TestSoakConsulAtSize(t *testing.T) {
	const services, nodes = 5000, 200
	b := followBigConsul(t, services, nodes)
	if s := b.registry.Status().Datacenters[0]; s.By != "sweep" || s.Queries > 4 || s.Services != services {
		t.Fatalf("%+v", s)
	}
	changes, rest := 20, 2*time.Second
	if long := longtest.Soak(t); long > 0 {
		changes, rest = 100, min(long/4, time.Minute)
	}
	b.settled()
	before := b.cost()
	time.Sleep(rest)
	t.Log("at rest: ", b.since(before, 0))

	before = b.cost()
	var took []time.Duration
	for i := range changes {
		took = append(took, b.mark(i*37%services, api.HealthCritical))
	}
	median, text := quantiles(took)
	t.Logf("critical: %s; %s", text, b.since(before, changes))
	if spent := b.cost().queries - before.queries; spent > 6*changes+20 {
		t.Errorf("%d checks that turn critical cost %d queries", changes, spent)
	}
	if late(median, time.Second) {
		t.Errorf("a check that turns critical is seen after %s", median)
	}
	before, took = b.cost(), nil
	for i := range changes {
		took = append(took, b.mark(i*37%services, api.HealthPassing))
	}
	_, text = quantiles(took)
	t.Logf("passing: %s; %s", text, b.since(before, changes))

	before, took = b.cost(), nil
	for i := range changes {
		took = append(took, b.reweigh(i*41%services))
	}
	median, text = quantiles(took)
	t.Logf("registered anew: %s; %s", text, b.since(before, changes))
	if spent := b.cost().queries - before.queries; spent > (2*nodes+20)*changes {
		t.Errorf("%d registrations cost %d queries", changes, spent)
	}
	if late(median, time.Second) {
		t.Errorf("a registration is seen after %s", median)
	}
}

// TestSoakConsulNode has all instances on one node: 9,500 in its long form, which Consul needs
// over a minute to register. One check flaps; the cost does not grow with the node.
func TestSoakConsulNode(t *testing.T) {
	instances, changes := 1000, 20
	if longtest.Soak(t) > 0 {
		instances, changes = 9500, 200
	}
	b := followBigConsul(t, instances, 1)
	b.settled()
	before := b.cost()
	var took []time.Duration
	for i := range changes {
		took = append(took, b.mark(7, []string{api.HealthCritical, api.HealthPassing}[i%2]))
	}
	median, text := quantiles(took)
	t.Logf("one check flaps: %s; %s", text, b.since(before, changes))
	if spent := b.cost(); (spent.bytes-before.bytes)/uint64(changes) > 1<<20 || spent.queries-before.queries > 6*changes+20 {
		t.Errorf("a check that flaps costs %s", b.since(before, changes))
	}
	if late(median, time.Second) {
		t.Errorf("a check that flaps is seen after %s", median)
	}
}

// TestSoakConsulConverges changes everything in Consul at random. In the end the registry has
// the same as a new one, with each plan.
func TestSoakConsulConverges(t *testing.T) {
	const services, nodes = 60, 20
	agent := startConsul(t, consulOptions{connections: 1000})
	agent.catalogue(services, nodes)
	agent.checks(services, nodes)
	followers := map[string]*discoverytest.Recorder{}
	for plan, limit := range map[string]int{"service": 100, "node": 40, "sweep": 4} {
		r, xds, _ := agent.follow(limit)
		eventually(t, "the registry has synced", func() error { return r.Ready() })
		if by := r.Status().Datacenters[0].By; by != plan {
			t.Fatalf("followed by %s, not by %s", by, plan)
		}
		followers[plan] = xds
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random, length := rand.New(rand.NewPCG(seed, 0)), cmp.Or(longtest.Soak(t), 8*time.Second)
	changes := 0
	for end := time.Now().Add(length); time.Now().Before(end); {
		for range 1 + random.IntN(60) {
			agent.disturb(random, services, nodes)
			changes++
		}
		r, fresh, stop := agent.follow(100)
		eventually(t, "all is read anew", func() error { return r.Ready() })
		for plan, xds := range followers {
			eventually(t, "by "+plan+" it is as if read anew", func() error {
				if diff := gocmp.Diff(fresh.Rows(), xds.Rows()); diff != "" || len(fresh.Rows()) == 0 {
					return fmt.Errorf("after %d changes: (-anew +followed)\n%s", changes, diff)
				}
				return nil
			})
		}
		stop()
	}
	t.Logf("%d changes", changes)
}

// disturb makes a random change to the services and checks.
func (c *consulAgent) disturb(random *rand.Rand, services, nodes int) {
	c.t.Helper()
	i := random.IntN(services)
	id, node := fmt.Sprintf("s%d", i), fmt.Sprintf("n%d", i%nodes)
	statuses := []string{api.HealthPassing, api.HealthPassing, api.HealthWarning, api.HealthCritical}
	change := &api.CatalogRegistration{Node: node, SkipNodeUpdate: true}
	own := func() {
		change.Service = &api.AgentService{
			ID: id, Service: fmt.Sprintf("s%d", i/2*2), Port: 8080, Meta: map[string]string{"protocol": "http"},
			Weights: api.AgentWeights{Passing: 1 + random.IntN(9), Warning: 1},
		}
		change.Check = &api.AgentCheck{Node: node, CheckID: "c" + id, Name: "c", ServiceID: id, Status: statuses[random.IntN(4)]}
	}
	switch random.IntN(10) {
	case 0:
		_, err := c.Catalog().Deregister(&api.CatalogDeregistration{Node: node, ServiceID: id}, nil)
		c.must(err)
		return
	case 1:
		change.Check = &api.AgentCheck{Node: node, CheckID: "alive", Name: "alive", Status: statuses[random.IntN(4)]}
	case 2:
		change.SkipNodeUpdate, change.Address = false, fmt.Sprintf("10.%d.0.%d", 1+random.IntN(2), i%nodes+1)
	default:
		own()
	}
	_, err := c.Catalog().Register(change, nil)
	c.must(err)
}
