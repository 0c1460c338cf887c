package consul

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"
)

// plan is a way to find out which services of a datacentre have changed. Under each plan a
// changed service is read as a whole: its instances with their checks, in one answer.
type plan int

const (
	// byService keeps one blocking query for each service.
	byService plan = iota
	// byNode keeps one blocking query for each node, and a few for the lists and all checks.
	byNode
	// bySweep keeps only the blocking queries for the lists and all checks. When the catalogue
	// has changed, it reads all nodes, or all services.
	bySweep
)

func (p plan) String() string { return [...]string{"service", "node", "sweep"}[p] }

// datacenter follows the catalogue of one datacentre.
type datacenter struct {
	r    *Registry
	name string // empty for the datacentre of the agent
	max  int    // how many queries may wait in Consul

	queries atomic.Int64
	// probing is a lock, held by the goroutine that checks whether Consul is back.
	probing chan struct{}
	// comparing is a lock, held by the goroutine that compares the index of the list.
	comparing chan struct{}
	// turned holds a token when follower.run must look again at what to follow and by which
	// plan.
	turned chan struct{}

	mu sync.Mutex // guards the fields below
	state
}

func newDatacenter(r *Registry, name string, limit int) *datacenter {
	d := &datacenter{
		r: r, name: name, max: limit,
		probing: make(chan struct{}, 1), comparing: make(chan struct{}, 1), turned: make(chan struct{}, 1),
	}
	d.state = newState()
	return d
}

// run follows the datacentre until ctx ends, by one plan after the other.
func (d *datacenter) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	patience := d.restoreLastKnown(ctx)
	running.Go(func() { d.probePeriodically(ctx) })
	running.Go(func() { d.awaitOrServeLastKnown(ctx, patience) })
	for ctx.Err() == nil {
		p, err := d.choosePlan(ctx)
		if err != nil {
			return // ctx has ended
		}
		d.setPlan(p)
		d.r.o.Logger.Info("the catalogue of Consul is followed", "datacenter", d.displayName(), "by", p.String())
		d.follow(ctx, p)
	}
}

// choosePlan returns the best plan that the limit on queries allows. If there are many services,
// it prefers byNode when there are fewer than half as many nodes.
func (d *datacenter) choosePlan(ctx context.Context) (plan, error) {
	services, _, err := queryUntilAnswered(ctx, d, d.services())
	if err != nil {
		return 0, err
	}
	names, _ := d.usable(services)
	if d.serviceQueries(len(names)) <= d.fewQueries() {
		return byService, nil
	}
	nodes, _, err := queryUntilAnswered(ctx, d, d.nodes())
	if err != nil {
		return 0, err
	}
	switch nodesFit := nodeQueries(len(nodes)) <= d.max; {
	case nodesFit && 2*len(nodes) < len(names):
		return byNode, nil
	case d.serviceQueries(len(names)) <= d.max:
		return byService, nil
	case nodesFit:
		return byNode, nil
	}
	return bySweep, nil
}

// fewQueries returns how many queries count as few whatever the limit.
func (d *datacenter) fewQueries() int { return min(d.max, DefaultMaxQueries) }

// commonQueries are the queries of every plan except byService: the services, the
// nodes, and two for checks.
const commonQueries = 4

func (d *datacenter) serviceQueries(services int) int { return services + 1 }

// nodeQueries does not count the reads, because they do not wait in Consul.
func nodeQueries(nodes int) int { return nodes + commonQueries }

// list is the list of services in a datacentre.
type list struct {
	names []string
	// doubtful is true if ACLs hide something, so that a missing entry may still exist.
	doubtful bool
	index    uint64
}

// follow follows the datacentre under a plan until another plan is better.
func (d *datacenter) follow(ctx context.Context, p plan) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f := &follower{d: d, plan: p, running: &running, lists: make(chan list), nodes: make(chan []string), watched: map[string]context.CancelFunc{}}
	running.Go(func() { d.watchList(ctx, f.lists) })
	if p != byService {
		f.reads = newReads()
		f.sweeper = &sweeper{d: d, reads: f.reads, due: make(chan struct{}, 1)}
		d.setReads(f.reads, f.sweeper)
		defer d.setReads(nil, nil)
		running.Go(func() { d.read(ctx, f.reads) })
		for _, status := range []string{api.HealthCritical, api.HealthWarning} {
			running.Go(func() { f.watchChecks(ctx, status) })
		}
		running.Go(func() { f.watchNodes(ctx) })
	}
	if p == bySweep {
		running.Go(func() { f.sweeper.run(ctx) })
	}
	f.run(ctx)
}

// follower runs one plan.
type follower struct {
	d       *datacenter
	plan    plan
	running *sync.WaitGroup
	lists   chan list
	nodes   chan []string
	// reads and sweeper are nil under the plan byService.
	reads   *reads
	sweeper *sweeper
	// watched holds the services or nodes with their own blocking query.
	watched map[string]context.CancelFunc
	asked   map[string]bool // services of which a read was requested
	hosts   int             // number of nodes
}

// run handles the answers of the queries until another plan is better.
func (f *follower) run(ctx context.Context) {
	d, services := f.d, map[string]bool(nil)
	for {
		var changed []string
		select {
		case <-ctx.Done():
			return
		case names := <-f.nodes:
			f.setNodes(ctx, names)
		case l := <-f.lists:
			services, changed = d.r.catalog.setList(d.name, l)
		case <-d.turned:
			services, changed = d.r.catalog.recheckList(d.name)
		case <-d.holdEnds():
			if !d.releaseHeld() {
				continue
			}
			services, changed = d.r.catalog.withdrawKept(d.name)
		}
		d.publish(changed)
		if f.planUnfit(len(services)) {
			return
		}
		f.setServices(ctx, services)
	}
}

// planUnfit says whether the plan needs more queries than the limit, or a better plan fits with a
// good margin.
func (f *follower) planUnfit(services int) bool {
	d := f.d
	byServices, byNodes := d.serviceQueries(services), nodeQueries(f.hosts)
	fits := func(queries, limit int) bool { return queries <= limit*3/4 }
	switch {
	case f.plan == byService:
		return byServices > d.max
	case d.r.catalog.isWhole(d.name) && fits(byServices, d.fewQueries()):
		return true
	case f.plan == byNode:
		return byNodes > d.max
	}
	return f.hosts > 0 && fits(byNodes, d.max) || d.r.catalog.isWhole(d.name) && fits(byServices, d.max)
}

// setServices watches each service, or reads each new one once.
func (f *follower) setServices(ctx context.Context, wanted map[string]bool) {
	if f.plan == byService {
		f.watch(ctx, wanted, f.d.watchService)
		return
	}
	f.sweeper.setServices(wanted)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !f.asked[name] {
			f.reads.request(false, name)
		}
	}
	f.asked = wanted
}

func (f *follower) setNodes(ctx context.Context, names []string) {
	f.hosts = len(names)
	if f.plan == byNode && nodeQueries(f.hosts) <= f.d.max {
		f.watch(ctx, setOf(names), f.watchNode)
	}
	f.sweeper.setNodes(names)
}

// watch starts and stops queries so that exactly these names are watched.
func (f *follower) watch(ctx context.Context, wanted map[string]bool, query func(context.Context, string)) {
	for name, cancel := range f.watched {
		if !wanted[name] {
			cancel()
			delete(f.watched, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if f.watched[name] == nil {
			own, cancel := context.WithCancel(ctx)
			f.watched[name] = cancel
			f.running.Go(func() { query(own, name) })
		}
	}
}

func (d *datacenter) watchList(ctx context.Context, lists chan<- list) {
	filtered := false // whether ACLs hid something from the last trusted list
	first := true
	doubts := func(hidden bool, names int) bool {
		doubtful := hidden && (names == 0 || !first && !filtered)
		if first = false; !doubtful {
			filtered = hidden
		}
		d.setDoubtful(doubtful)
		return doubtful
	}
	watch(ctx, d, d.services(), func(services map[string][]string, meta *api.QueryMeta, how answerInfo) {
		names, unusable := d.usable(services)
		doubtful := doubts(meta.ResultsFilteredByACLs, len(names))
		if how.fresh && len(names) == 0 && !doubtful && d.r.catalog.size(d.name) > 0 && !d.isHeld() {
			d.reset(how.round, "it has no services any more")
			return
		}
		d.setUnusable(unusable)
		d.setIndex(how.round, meta.LastIndex)
		select {
		case lists <- list{names, doubtful, meta.LastIndex}:
		case <-ctx.Done():
		}
		d.rereadDoubtful() // the list says that the catalogue has changed, but not everything that has
	})
}

// usable divides the names of services into those that can be in the mesh, in lower case, and
// the rest.
func (d *datacenter) usable(services map[string][]string) (names, unusable []string) {
	for name := range services {
		switch {
		case !inMesh("", name):
		case flawOfName(name) != "":
			unusable = append(unusable, name)
		default:
			names = append(names, strings.ToLower(name))
		}
	}
	slices.Sort(names)
	slices.Sort(unusable)
	return slices.Compact(names), unusable
}

func (d *datacenter) watchService(ctx context.Context, name string) {
	watch(ctx, d, d.service(name), func(entries []*api.ServiceEntry, meta *api.QueryMeta, how answerInfo) {
		d.setAnswer(how.round, name, answer{instancesOf(&d.r.o, entries), meta.ResultsFilteredByACLs, meta.LastIndex})
	})
}

// watchNode follows the instances on a node, and has the services that change there read.
func (f *follower) watchNode(ctx context.Context, name string) {
	watch(ctx, f.d, f.d.node(name), func(instances []onNode, _ *api.QueryMeta, _ answerInfo) {
		f.reads.request(false, f.d.r.catalog.outdated(f.d.name, name, instances)...)
	})
}

// watchNodes follows the list of nodes, and has the services on changed nodes read.
func (f *follower) watchNodes(ctx context.Context) {
	before := map[string]uint64{}
	watch(ctx, f.d, f.d.nodes(), func(nodes []*api.Node, _ *api.QueryMeta, _ answerInfo) {
		now, names := make(map[string]uint64, len(nodes)), make([]string, len(nodes))
		for i, n := range nodes {
			now[n.Node], names[i] = n.ModifyIndex, n.Node
		}
		f.reads.repeatActive()
		for name, index := range before {
			if now[name] != index {
				f.reads.request(true, f.d.r.catalog.servicesOnNode(f.d.name, name)...)
			}
		}
		before = now
		select {
		case f.nodes <- names:
		case <-ctx.Done():
		}
		f.d.rereadDoubtful()
	})
}

// watchChecks follows the checks in a state. It reads a service again when one of its
// checks enters the state, changes in it or leaves it, also between two answers. It
// takes no health from here: a check may have gone together with its instance.
func (f *follower) watchChecks(ctx context.Context, status string) {
	before := map[checkKey]check{}
	watch(ctx, f.d, f.d.checks(status), func(checks []check, _ *api.QueryMeta, _ answerInfo) {
		now := make(map[checkKey]check, len(checks))
		for _, c := range checks {
			now[checkKey{c.Node, c.CheckID}] = c
		}
		concerned := changes{}
		for k, c := range now {
			if before[k] != c {
				f.addConcerned(c, concerned)
			}
		}
		for k, c := range before {
			if now[k] != c {
				f.addConcerned(c, concerned)
			}
		}
		before = now
		f.reads.repeatActive()
		f.reads.request(true, concerned.list()...)
		f.reads.request(true, f.d.r.catalog.recovered(f.d.name, status, now)...)
	})
}

// addConcerned adds the services that a check is about: one service, or all services on the node.
func (f *follower) addConcerned(c check, to changes) {
	if c.ServiceID == "" {
		for _, name := range f.d.r.catalog.servicesOnNode(f.d.name, c.Node) {
			to[name] = true
		}
	} else if name := strings.ToLower(c.ServiceName); f.d.r.catalog.isKnown(f.d.name, name) {
		to[name] = true
	}
}

// setAnswer drops an answer from an earlier round, since Consul has lost its data after
// that.
func (d *datacenter) setAnswer(round int, service string, a answer) {
	d.mu.Lock()
	if round != d.rounds {
		d.mu.Unlock()
		return
	}
	changed, unlisted := d.r.catalog.setAnswer(d.name, service, a)
	d.mu.Unlock()
	d.publish(changed)
	if unlisted {
		d.replan() // a plan may now have less to follow
	}
}

func (d *datacenter) publish(services []string) {
	d.r.publish(services)
	d.r.report(services)
	d.logWhole()
	d.r.datacenterServed()
}

// replan makes follower.run look again at what to follow and by which plan.
func (d *datacenter) replan() {
	select {
	case d.turned <- struct{}{}:
	default:
	}
}

// holdEnds returns a channel that fires when content kept since Consul lost its data must be
// withdrawn, nil if none is kept.
func (d *datacenter) holdEnds() <-chan time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.heldUntil.IsZero() {
		return nil
	}
	return time.After(time.Until(d.heldUntil))
}
