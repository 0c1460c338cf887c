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

	"github.com/portolan-mesh/portolan/storage/retry"
)

// state is how a datacentre is doing. It is guarded by the datacenter's mu.
type state struct {
	plan plan
	// suspicious says that Consul has failed, and was not checked since.
	suspicious bool
	// down is why it does not answer, since when, and whether that was logged.
	down   error
	since  time.Time
	logged bool
	// faults are the queries that fail although Consul answers.
	faults map[string]error
	// servers are the servers of Consul at the last look: their ids, and when they were
	// registered.
	servers map[string]bool
	// heldUntil is when that is withdrawn which a Consul that lost its data does
	// not have; zero where it has not.
	heldUntil time.Time
	// doubtful says that a list is not believed.
	doubtful bool
	unusable []string
	// reads and sweeper belong to the plan; nil if it has none.
	reads   *reads
	sweeper *sweeper
	// restored is the time of the last known content that was restored at the start,
	// zero if none was.
	restored time.Time
	// index is the index of the last list of services, read or restored. The registry is as
	// current as Consul was at compared, when it last began to compare indexes.
	index    uint64
	compared time.Time
	// wholeNoted says that it was logged that the datacentre was read.
	wholeNoted bool
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

// suspect says whether Consul must be checked before its answers count.
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
	backoff := retry.New(minPause, maxPause)
	for d.suspect() && ctx.Err() == nil {
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
		_ = backoff.Wait(ctx)
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

// away notes that Consul does not answer.
func (d *datacenter) away(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down == nil {
		d.since = time.Now()
	}
	if d.down = err; !d.logged {
		d.r.o.Logger.Warn("Consul cannot be read: the last known services stay, and the server goes on trying", "datacenter", d.word(), "err", err)
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
	if d.down != nil && !d.heldUntil.IsZero() {
		d.heldUntil = time.Now().Add(d.r.o.ResetHold)
		d.turn()
	}
	d.suspicious, d.down, d.logged = false, nil, false
	round := d.rounds
	d.mu.Unlock()
	same := slices.ContainsFunc(slices.Collect(maps.Keys(servers)), func(s string) bool { return before[s] })
	if len(before) > 0 && len(servers) > 0 && !same {
		d.reset(round, "its servers are others than before")
	}
}

// beat probes Consul now and then, so that a Consul that hangs is noticed. A waiting
// query would notice that after minutes, or never.
func (d *datacenter) beat(ctx context.Context) {
	ticker := time.NewTicker(beatTime)
	defer ticker.Stop()
	for beats := 1; ; beats++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if beats%doubtBeats == 0 && len(d.r.catalog.doubtful(d.name)) > 0 {
			d.lookAgain()
		}
		q := d.probe()
		if !d.suspect() {
			if _, _, err := request(ctx, d, q, 0); err != nil && ctx.Err() == nil {
				d.fail(q.String(), err)
				d.away(inWords(err))
			}
		}
		if d.recover(ctx); ctx.Err() == nil {
			d.forget(q.String())
		}
	}
}

// settle serves the last known content of the datacentre if Consul is not read in time.
func (d *datacenter) settle(ctx context.Context, patience time.Duration) {
	if more := patience - d.r.o.Patience; more > 0 {
		_ = retry.Sleep(ctx, d.r.o.Patience)
		d.warnOfWaiting(more)
		patience = more
	}
	if retry.Sleep(ctx, patience) != nil || !d.r.catalog.settle(d.name) {
		return
	}
	d.mu.Lock()
	restored := d.restored
	d.mu.Unlock()
	if restored.IsZero() {
		d.r.o.Logger.Warn("Consul is not read yet, and nothing was known of it before; the mesh is served without its services", "datacenter", d.word())
	} else {
		d.r.o.Logger.Warn("Consul is not read yet; what was last known of it is served", "datacenter", d.word(), "known", restored.UTC().Format(time.RFC3339))
	}
	d.r.settled()
}

// warnOfWaiting logs how long proxies wait for a Consul that cannot be read and was never
// read before.
func (d *datacenter) warnOfWaiting(patience time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down != nil {
		d.r.o.Logger.Warn("no proxy is served until Consul can be read, since nothing is known of it: after this time the mesh is served without its services "+
			"(--consul-reset-hold)", "datacenter", d.word(), "for", patience)
	}
}

// reset notes that Consul has lost its data, as was seen in a round: all is asked
// anew, once.
func (d *datacenter) reset(round int, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if round != d.rounds {
		return
	}
	d.r.catalog.reset(d.name)
	d.index = 0
	d.heldUntil = time.Now().Add(d.r.o.ResetHold)
	d.r.o.Logger.Warn("Consul has lost its data; what it does not have any more is kept for a time",
		"datacenter", d.word(), "reason", reason, "for", d.r.o.ResetHold)
	d.rounds++
	for _, end := range d.asking {
		end()
	}
	if d.reads != nil {
		d.reads.ask(false, d.r.catalog.names(d.name)...)
	}
	d.turn()
}

// noteWhole logs, once, that the datacentre was read as a whole.
func (d *datacenter) noteWhole() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wholeNoted || !d.r.catalog.isWhole(d.name) {
		return
	}
	d.wholeNoted = true
	d.r.o.Logger.Info("Consul was read", "datacenter", d.word(), "services", d.r.catalog.size(d.name))
}

// isHeld says whether Consul has lost data that is still served.
func (d *datacenter) isHeld() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.heldUntil.IsZero()
}

// lastIndex returns the least index that the list of services may have.
func (d *datacenter) lastIndex() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.index
}

// setIndex notes the index of the list of services, as of a round.
func (d *datacenter) setIndex(round int, index uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if round == d.rounds {
		d.index = index
	}
}

// hasItsData finds out whether Consul still has all that it had, as of now at the earliest.
// A snapshot that an operator restores breaks no connection, and an answer from it may
// come before the queries that wait tell. One look serves all who wait for it.
func (d *datacenter) hasItsData(ctx context.Context, round int) error {
	asked := time.Now()
	select {
	case d.comparing <- struct{}{}:
		defer func() { <-d.comparing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	least, compared := d.index, d.compared
	d.mu.Unlock()
	if !compared.Before(asked) {
		return nil
	}
	began := time.Now()
	_, meta, err := request(ctx, d, d.listIndex(), 0)
	switch {
	case err != nil:
		return err
	case meta.LastIndex < least:
		d.reset(round, fmt.Sprintf("the index of %s went back from %d to %d", d.services(), least, meta.LastIndex))
		return errSuspect
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.compared = began
	return nil
}

// setReads notes what reads services, and what looks for those that changed.
func (d *datacenter) setReads(r *reads, s *sweeper) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads, d.sweeper = r, s
}

// lookAgain has it found out what has changed where no query tells: a service in
// which something is doubted is read, too.
func (d *datacenter) lookAgain() {
	doubtful := d.r.catalog.doubtful(d.name)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sweeper != nil {
		d.sweeper.ask()
		d.reads.ask(false, doubtful...)
	}
}

// release notes that nothing is held any more. It is false, and all is held on,
// where Consul is away: the time in which agents register again begins when it is
// back.
func (d *datacenter) release() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.suspicious {
		d.heldUntil = time.Now().Add(d.r.o.ResetHold)
		return false
	}
	d.heldUntil = time.Time{}
	d.r.o.Logger.Warn("what Consul lost and did not get back is withdrawn", "datacenter", d.word())
	return true
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
