package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"
)

// state is how a datacentre is doing. It is guarded by the datacenter's mu.
type state struct {
	plan plan
	// suspicious says that Consul has failed, and was not looked at since.
	suspicious bool
	// down is why it does not answer, since when, and whether that was logged.
	down   error
	since  time.Time
	logged bool
	// faults are the queries that fail although Consul answers.
	faults map[string]error
	// servers are those that Consul had when it was last looked at: their ids,
	// and when they were registered.
	servers map[string]bool
	// heldUntil is when that is withdrawn which a Consul that lost its data does
	// not have; zero where it has not.
	heldUntil time.Time
	// doubtful says that a list is not believed.
	doubtful bool
	unusable []string
	// rounds counts how often all was asked anew; asking are the ends of the
	// requests of this one, by their numbers.
	rounds  int
	numbers int
	asking  map[int]context.CancelFunc
}

func newState() state {
	return state{suspicious: true, since: time.Now(), faults: map[string]error{}, asking: map[int]context.CancelFunc{}}
}

// word is the datacentre for people.
func (d *datacenter) word() string { return wordOf(d.name) }

func wordOf(datacenter string) string { return cmp.Or(datacenter, "local") }

// isUp says whether Consul answers, as far as is known.
func (d *datacenter) isUp() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.suspicious
}

// round is a context that ends with ctx, or when all is to be asked anew, and
// which round it is.
func (d *datacenter) round(ctx context.Context) (round context.Context, number int, end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	round, cancel := context.WithCancel(ctx)
	d.numbers++
	own := d.numbers
	d.asking[own] = cancel
	return round, d.rounds, func() {
		cancel()
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.asking, own)
	}
}

// suspect says whether Consul has to be looked at before anything is believed.
func (d *datacenter) suspect() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.suspicious
}

// fail notes that a query has failed.
func (d *datacenter) fail(query string, err error) {
	err = inWords(err)
	d.r.metrics.failures.WithLabelValues(d.word()).Inc()
	d.r.o.Logger.Debug("a query of Consul failed", "datacenter", d.word(), "query", query, "err", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[query] = err
	d.suspicious = true
}

// forget notes that a query succeeds, or is not made any more.
func (d *datacenter) forget(query string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.faults, query)
}

// recover waits until Consul answers, and finds out whether it has lost its
// data. One query does that for all; the others wait for it.
func (d *datacenter) recover(ctx context.Context) {
	select {
	case d.probing <- struct{}{}:
		defer func() { <-d.probing }()
	case <-ctx.Done():
		return
	}
	for delay := minPause; d.suspect() && ctx.Err() == nil; delay = min(2*delay, maxPause) {
		servers, meta, err := request(ctx, d, d.probe(), 0)
		if ctx.Err() != nil {
			return
		}
		if err == nil && len(servers) == 0 && !meta.ResultsFilteredByACLs && d.knowsServers() {
			err = errNoServers
		}
		if err == nil {
			d.back(servers)
			return
		}
		d.away(inWords(err))
		pause(ctx, jitter(delay))
	}
}

// errNoServers is a Consul that has just begun: it has a leader, which is not in
// the catalogue yet, and nothing else is.
var errNoServers = errors.New("it has no servers in its catalogue yet")

func (d *datacenter) knowsServers() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.servers) > 0
}

// probe asks for Consul's own servers. An answer, even an empty one, says that
// Consul has a leader and takes the token.
func (d *datacenter) probe() question[[]*api.CatalogService] {
	return question[[]*api.CatalogService]{kind: "probe", ask: func(o *api.QueryOptions) ([]*api.CatalogService, *api.QueryMeta, error) {
		return d.r.client.Catalog().Service(serversName, "", o)
	}}
}

// away notes that Consul does not answer.
func (d *datacenter) away(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down == nil {
		d.since = time.Now()
	}
	if d.down = err; !d.logged {
		d.r.o.Logger.Warn("Consul cannot be read, it is asked again and again; what was known of it is kept", "datacenter", d.word(), "err", err)
		d.logged = true
	}
}

// back notes that Consul answers again, and what servers it has.
func (d *datacenter) back(answer []*api.CatalogService) {
	servers := map[string]bool{}
	for _, s := range answer {
		servers[fmt.Sprint(s.ID, "/", s.CreateIndex)] = true
	}
	d.mu.Lock()
	before := d.servers
	if len(servers) > 0 {
		d.servers = servers
	}
	if d.logged {
		d.r.o.Logger.Info("Consul can be read again", "datacenter", d.word(), "after", time.Since(d.since).Round(time.Millisecond))
	}
	d.suspicious, d.down, d.logged = false, nil, false
	d.mu.Unlock()
	same := slices.ContainsFunc(slices.Collect(maps.Keys(servers)), func(s string) bool { return before[s] })
	if len(before) > 0 && len(servers) > 0 && !same {
		d.reset("its servers are others than before")
	}
}

// reset notes that Consul has lost its data: all is asked anew.
func (d *datacenter) reset(reason string) {
	d.r.catalog.reset(d.name)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heldUntil = time.Now().Add(d.r.o.ResetHold)
	d.r.o.Logger.Warn("Consul has lost its data; what it does not have any more is kept for a time",
		"datacenter", d.word(), "reason", reason, "for", d.r.o.ResetHold)
	d.rounds++
	for _, end := range d.asking {
		end()
	}
	d.turn()
}

// released notes that nothing is held any more.
func (d *datacenter) released() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heldUntil = time.Time{}
	d.r.o.Logger.Warn("what Consul lost and did not get back is withdrawn", "datacenter", d.word())
}

func (d *datacenter) setPlan(p plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan = p
}

func (d *datacenter) setDoubt(doubtful bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if doubtful && !d.doubtful {
		d.r.o.Logger.Warn("the token of Consul reads less than before; what it hides is kept", "datacenter", d.word())
	}
	d.doubtful = doubtful
}

// setUnusable notes which services are left out for their names, and logs those
// that are new, in one line.
func (d *datacenter) setUnusable(names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fresh := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(d.unusable, n) })
	if len(fresh) > 0 {
		d.r.o.Logger.Warn("services of Consul are left out: their names are no DNS labels",
			"datacenter", d.word(), "number", len(fresh), "names", fresh[:min(10, len(fresh))])
	}
	d.unusable = names
}
