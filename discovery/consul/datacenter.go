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

// plan is how the catalogue of a datacentre is followed.
type plan int

const (
	// byService has a query for each service wait in Consul.
	byService plan = iota
	// byNode has two for each node.
	byNode
	// byTurns asks for one service after the other.
	byTurns
)

func (p plan) String() string { return [...]string{"service", "node", "turns"}[p] }

// datacenter follows the catalogue of one datacentre.
type datacenter struct {
	r    *Registry
	name string // empty for that of the agent
	max  int    // of queries that wait

	queries atomic.Int64
	// probing is held by whoever finds out whether Consul is back.
	probing chan struct{}
	// turned holds a token when a plan may have to end or go on otherwise.
	turned chan struct{}

	mu sync.Mutex // guards the fields below
	state
}

func newDatacenter(r *Registry, name string, limit int) *datacenter {
	d := &datacenter{
		r: r, name: name, max: limit,
		probing: make(chan struct{}, 1), turned: make(chan struct{}, 1),
	}
	d.state = newState()
	return d
}

// run follows the datacentre until ctx ends, by one plan after the other.
func (d *datacenter) run(ctx context.Context) {
	for ctx.Err() == nil {
		p, err := d.choose(ctx)
		if err != nil {
			return // ctx has ended
		}
		d.setPlan(p)
		d.r.o.Logger.Info("the catalogue of Consul is followed", "datacenter", d.word(), "by", p.String())
		d.r.catalog.begin(d.name)
		d.follow(ctx, p)
	}
}

// choose finds the best plan that the limit on queries allows. Of many services
// it takes the nodes where these are fewer: they are read sooner.
func (d *datacenter) choose(ctx context.Context) (plan, error) {
	services, _, err := once(ctx, d, d.services())
	if err != nil {
		return 0, err
	}
	names, _ := d.usable(services)
	if len(names)+1 <= d.few() {
		return byService, nil
	}
	nodes, _, err := once(ctx, d, d.nodes())
	if err != nil {
		return 0, err
	}
	switch nodesFit := 2*len(nodes)+1 <= d.max; {
	case nodesFit && 2*len(nodes) < len(names):
		return byNode, nil
	case len(names)+1 <= d.max:
		return byService, nil
	case nodesFit:
		return byNode, nil
	}
	return byTurns, nil
}

// few is how many queries are few, whatever the limit.
func (d *datacenter) few() int { return min(d.max, DefaultMaxQueries) }

// list is which parts there are.
type list struct {
	names []string
	// doubtful says that it is not believed in what it lacks: something is hidden.
	doubtful bool
	index    uint64
}

// follow follows the datacentre by a plan until another is better.
func (d *datacenter) follow(ctx context.Context, p plan) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lists := make(chan list)
	running.Go(func() { d.watchList(ctx, p, lists) })
	parts := map[string]context.CancelFunc{}
	turns := newTurns()
	if p == byTurns {
		running.Go(func() { d.takeTurns(ctx, turns) })
	}
	for {
		var wanted map[string]bool
		var changed []string
		select {
		case <-ctx.Done():
			return
		case l := <-lists:
			wanted, changed = d.r.catalog.want(d.name, l)
		case <-d.turned:
			if d.better(ctx, p, turns) {
				return
			}
			wanted, changed = d.r.catalog.again(d.name)
		case <-d.holdEnds():
			d.released()
			wanted, changed = d.r.catalog.expire(d.name)
		}
		d.publish(changed)
		if d.tooMany(p, len(wanted)) {
			return
		}
		if turns.set(wanted); p == byTurns {
			continue
		}
		for name, cancel := range parts {
			if !wanted[name] {
				cancel()
				delete(parts, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			if parts[name] == nil {
				own, cancel := context.WithCancel(ctx)
				parts[name] = cancel
				running.Go(func() { d.watchPart(own, p, name) })
			}
		}
	}
}

// tooMany says whether a plan needs more queries than there may be.
func (d *datacenter) tooMany(p plan, parts int) bool {
	return p == byService && parts+1 > d.max || p == byNode && 2*parts+1 > d.max
}

// better says whether a plan that is better fits by a good margin.
func (d *datacenter) better(ctx context.Context, p plan, t *turns) bool {
	fits := func(queries int) bool { return queries <= d.max*3/4 }
	few := d.r.catalog.size(d.name)+1 <= d.few()*3/4
	if p == byService || p == byNode && !few || p == byTurns && !few && !t.passed() {
		return false
	}
	if _, kept, doubtful := d.r.catalog.sizes(d.name); kept > 0 || doubtful || !d.r.catalog.isSettled(d.name) {
		return false
	}
	if few {
		return true
	}
	nodes, _, err := once(ctx, d, d.nodes())
	return err == nil && fits(2*len(nodes)+1)
}

// watchList follows which parts there are.
func (d *datacenter) watchList(ctx context.Context, p plan, lists chan<- list) {
	send := func(l list) {
		select {
		case lists <- l:
		case <-ctx.Done():
		}
	}
	filtered := false // as of the last list that was believed
	first := true
	doubts := func(hidden bool, names int) bool {
		doubtful := hidden && (names == 0 || !first && !filtered)
		if first = false; !doubtful {
			filtered = hidden
		}
		d.setDoubt(doubtful)
		return doubtful
	}
	if p == byNode {
		watch(ctx, d, d.nodes(), func(nodes []*api.Node, meta *api.QueryMeta, _ int) {
			var names []string
			for _, n := range nodes {
				names = append(names, n.Node)
			}
			send(list{names, doubts(meta.ResultsFilteredByACLs, len(names)), meta.LastIndex})
		})
		return
	}
	watch(ctx, d, d.services(), func(services map[string][]string, meta *api.QueryMeta, _ int) {
		names, unusable := d.usable(services)
		d.setUnusable(unusable)
		send(list{names, doubts(meta.ResultsFilteredByACLs, len(names)), meta.LastIndex})
	})
}

// usable are the names of services that can be in the mesh, in lower case, and
// of those that cannot.
func (d *datacenter) usable(services map[string][]string) (names, unusable []string) {
	for name := range services {
		switch {
		case !taken("", name):
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

// watchPart follows the instances of a service or a node.
func (d *datacenter) watchPart(ctx context.Context, p plan, name string) {
	if p == byService {
		watch(ctx, d, d.service(name), func(entries []*api.ServiceEntry, meta *api.QueryMeta, _ int) {
			d.take(name, answer{instancesOf(&d.r.o, entries), meta.ResultsFilteredByACLs, true, meta.LastIndex})
		})
		return
	}
	n := &node{d: d, name: name}
	var running sync.WaitGroup
	running.Go(func() { watch(ctx, d, d.nodeServices(name), n.setServices) })
	running.Go(func() { watch(ctx, d, d.nodeChecks(name), n.setChecks) })
	running.Wait()
}

// take hands over what was learned of a part.
func (d *datacenter) take(part string, a answer) {
	changed, unlisted := d.r.catalog.take(d.name, part, a)
	d.publish(changed)
	if unlisted || !a.strict {
		d.turn() // there may be less to follow
	}
}

func (d *datacenter) publish(services []string) {
	d.r.publish(services)
	d.r.report(services)
	d.r.whole()
}

// turn has follow look again.
func (d *datacenter) turn() {
	select {
	case d.turned <- struct{}{}:
	default:
	}
}

// node puts together what two queries say of a node.
type node struct {
	d    *datacenter
	name string

	mu       sync.Mutex // guards the fields below; held while they are handed over, which keeps the order
	services *api.CatalogNodeServiceList
	checks   api.HealthChecks
	filtered [2]bool
	rounds   [2]int // of the two answers, from 1
	index    uint64 // of the services
}

// setServices takes the services of the node. A node that is gone has none; that
// it is gone is for the list of nodes to say.
func (n *node) setServices(services *api.CatalogNodeServiceList, meta *api.QueryMeta, round int) {
	if services == nil || services.Node == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.services, n.filtered[0], n.rounds[0] = services, meta.ResultsFilteredByACLs, round+1
	n.index = meta.LastIndex
	n.handOver()
}

func (n *node) setChecks(checks api.HealthChecks, meta *api.QueryMeta, round int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.checks, n.filtered[1], n.rounds[1] = checks, meta.ResultsFilteredByACLs, round+1
	n.handOver()
}

// handOver hands over what both answers of one round say.
func (n *node) handOver() {
	if n.rounds[0] == 0 || n.rounds[0] != n.rounds[1] {
		return
	}
	var entries []*api.ServiceEntry
	for _, s := range n.services.Services {
		entries = append(entries, &api.ServiceEntry{Node: n.services.Node, Service: s, Checks: n.checks})
	}
	n.d.take(n.name, answer{instancesOf(&n.d.r.o, entries), n.filtered[0] || n.filtered[1], false, n.index})
}

// The questions.

func (d *datacenter) services() question[map[string][]string] {
	return question[map[string][]string]{kind: "services", spacing: listSpacing, steady: true, ask: d.r.client.Catalog().Services}
}

func (d *datacenter) nodes() question[[]*api.Node] {
	return question[[]*api.Node]{kind: "nodes", spacing: listSpacing, steady: true, ask: d.r.client.Catalog().Nodes}
}

// service asks for the instances of a service, those near the agent first: not
// for their order, but because Consul then does not answer from its event
// stream, whose answers say neither that there is a leader nor that something is
// hidden.
func (d *datacenter) service(name string) question[[]*api.ServiceEntry] {
	return question[[]*api.ServiceEntry]{kind: "service", name: name, spacing: spacing, steady: true,
		ask: func(o *api.QueryOptions) ([]*api.ServiceEntry, *api.QueryMeta, error) {
			o.Near = "_agent"
			return d.r.client.Health().Service(name, "", false, o)
		}}
}

// nodeServices is not steady: of a node that is gone the index is 1.
func (d *datacenter) nodeServices(name string) question[*api.CatalogNodeServiceList] {
	return question[*api.CatalogNodeServiceList]{kind: "node_services", name: name, spacing: spacing,
		ask: func(o *api.QueryOptions) (*api.CatalogNodeServiceList, *api.QueryMeta, error) {
			return d.r.client.Catalog().NodeServiceList(name, o)
		}}
}

func (d *datacenter) nodeChecks(name string) question[api.HealthChecks] {
	return question[api.HealthChecks]{kind: "node_checks", name: name, spacing: spacing, steady: true,
		ask: func(o *api.QueryOptions) (api.HealthChecks, *api.QueryMeta, error) {
			return d.r.client.Health().Node(name, o)
		}}
}

// holdEnds fires when what is kept since Consul lost its data is to be
// withdrawn; never where nothing is.
func (d *datacenter) holdEnds() <-chan time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.heldUntil.IsZero() {
		return nil
	}
	return time.After(time.Until(d.heldUntil))
}
