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

// state is the condition of a datacentre. It is guarded by the datacenter's mu.
type state struct {
	plan plan
	// suspicious is true if a query has failed and no probe has succeeded after it; since is when
	// that began.
	suspicious bool
	since      time.Time
	// down is why Consul does not answer, nil if it does. logged says whether it was logged.
	down   error
	logged bool
	// faults holds the queries that fail although Consul answers.
	faults map[string]error
	// servers identifies the servers of Consul at the last look, by id and the index of their
	// registration.
	servers map[string]bool
	// heldUntil is when content is withdrawn that Consul lost and does not have again; zero if
	// it has lost none.
	heldUntil time.Time
	// doubtful is true if the last list is not trusted.
	doubtful bool
	unusable []string
	// reads and sweeper belong to the plan; nil if it has none.
	reads   *reads
	sweeper *sweeper
	// restored is the time of the last known content that was restored at the start,
	// zero if none was.
	restored time.Time
	// index is the index of the last list of services, read or restored. compared is when the
	// last comparison with Consul's index began: Consul had not lost its data then.
	index    uint64
	compared time.Time
	// wholeNoted is true once it was logged that the datacentre was read.
	wholeNoted bool
	// rounds counts the losses of data, each of which starts all queries anew. asking holds
	// the cancel functions of the requests under way, by number.
	rounds  int
	numbers int
	asking  map[int]context.CancelFunc
}

func newState() state {
	return state{suspicious: true, since: time.Now(), faults: map[string]error{}, asking: map[int]context.CancelFunc{}}
}

// displayName returns the name of the datacentre for people.
func (d *datacenter) displayName() string { return wordOf(d.name) }

func wordOf(datacenter string) string { return cmp.Or(datacenter, "local") }

// isUp says whether Consul answered at the last look.
func (d *datacenter) isUp() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.suspicious
}

// round returns a context that ends with ctx or with the current round, and the number of the
// round.
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

// mustProbe says whether Consul must be probed before its answers are trusted.
func (d *datacenter) mustProbe() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.suspicious
}

func (d *datacenter) addFailure(query string, err error) {
	err = inWords(err)
	d.r.metrics.failures.WithLabelValues(d.displayName()).Inc()
	d.r.o.Logger.Debug("a query of Consul failed", "datacenter", d.displayName(), "query", query, "err", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[query] = err
	if !d.suspicious {
		d.suspicious, d.since = true, time.Now()
	}
}

// clearFailure notes that a query succeeds, or is no longer sent.
func (d *datacenter) clearFailure(query string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.faults, query)
}

// recover waits until Consul answers, and finds out whether its servers are others than
// before. One goroutine probes for all; the others wait for it.
func (d *datacenter) recover(ctx context.Context) {
	select {
	case d.probing <- struct{}{}:
		defer func() { <-d.probing }()
	case <-ctx.Done():
		return
	}
	backoff := retry.New(minPause, maxPause)
	for d.mustProbe() && ctx.Err() == nil {
		servers, meta, err := request(ctx, d, d.probe(), 0)
		if ctx.Err() != nil {
			return
		}
		if err == nil && len(servers) == 0 && !meta.ResultsFilteredByACLs && d.knowsServers() {
			err = errNoServers
		}
		if err == nil {
			d.markBack(servers)
			return
		}
		d.markAway(inWords(err))
		_ = backoff.Wait(ctx)
	}
}

// errNoServers is for a Consul that has just started: it has a leader, but its catalogue does
// not even list its servers yet.
var errNoServers = errors.New("it has no servers in its catalogue yet")

func (d *datacenter) knowsServers() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.servers) > 0
}

// markAway notes that Consul does not answer.
func (d *datacenter) markAway(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down = err; !d.logged {
		d.r.o.Logger.Warn("Consul cannot be read: the last known services stay, and the server goes on trying", "datacenter", d.displayName(), "err", err)
		d.logged = true
	}
}

// markBack notes that Consul answers again, and what servers it has.
func (d *datacenter) markBack(answer []*api.CatalogService) {
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
		d.r.o.Logger.Info("Consul can be read again", "datacenter", d.displayName(), "after", time.Since(d.since).Round(time.Millisecond))
	}
	if d.down != nil && !d.heldUntil.IsZero() {
		d.heldUntil = time.Now().Add(d.r.o.ResetHold)
		d.replan()
	}
	d.suspicious, d.down, d.logged = false, nil, false
	round := d.rounds
	d.mu.Unlock()
	same := slices.ContainsFunc(slices.Collect(maps.Keys(servers)), func(s string) bool { return before[s] })
	if len(before) > 0 && len(servers) > 0 && !same {
		d.reset(round, "its servers are others than before")
	}
}

// probePeriodically probes Consul every beatTime to notice when it hangs. A blocking query
// would notice that after minutes, or never.
func (d *datacenter) probePeriodically(ctx context.Context) {
	ticker := time.NewTicker(beatTime)
	defer ticker.Stop()
	for beats := 1; ; beats++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if beats%doubtBeats == 0 && len(d.r.catalog.doubtful(d.name)) > 0 {
			d.rereadDoubtful()
		}
		q := d.probe()
		if !d.mustProbe() {
			if _, _, err := request(ctx, d, q, 0); err != nil && ctx.Err() == nil {
				d.addFailure(q.String(), err)
				d.markAway(inWords(err))
			}
		}
		if d.recover(ctx); ctx.Err() == nil {
			d.clearFailure(q.String())
		}
	}
}

// awaitOrServeLastKnown serves the last known content of the datacentre if Consul is not read
// in time.
func (d *datacenter) awaitOrServeLastKnown(ctx context.Context, patience time.Duration) {
	if more := patience - d.r.o.Patience; more > 0 {
		_ = retry.Sleep(ctx, d.r.o.Patience)
		d.warnOfWaiting(more)
		patience = more
	}
	if retry.Sleep(ctx, patience) != nil || !d.r.catalog.markServed(d.name) {
		return
	}
	d.mu.Lock()
	restored := d.restored
	d.mu.Unlock()
	if restored.IsZero() {
		d.r.o.Logger.Warn("Consul is not read yet, and nothing was known of it before; the mesh is served without its services", "datacenter", d.displayName())
	} else {
		d.r.o.Logger.Warn("Consul is not read yet; what was last known of it is served", "datacenter", d.displayName(), "known", restored.UTC().Format(time.RFC3339))
	}
	d.r.datacenterServed()
}

// warnOfWaiting logs how long proxies wait for a Consul that cannot be read and was never
// read before.
func (d *datacenter) warnOfWaiting(patience time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down != nil {
		d.r.o.Logger.Warn("no proxy is served until Consul can be read, since nothing is known of it: after this time the mesh is served without its services "+
			"(--consul-reset-hold)", "datacenter", d.displayName(), "for", patience)
	}
}

// reset notes that Consul has lost its data, as an answer of a round shows. It starts a new
// round, once per loss.
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
		"datacenter", d.displayName(), "reason", reason, "for", d.r.o.ResetHold)
	d.rounds++
	for _, end := range d.asking {
		end()
	}
	if d.reads != nil {
		d.reads.request(false, d.r.catalog.names(d.name)...)
	}
	d.replan()
}

// logWhole logs once that the whole datacentre was read.
func (d *datacenter) logWhole() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wholeNoted || !d.r.catalog.isWhole(d.name) {
		return
	}
	d.wholeNoted = true
	d.r.o.Logger.Info("Consul was read", "datacenter", d.displayName(), "services", d.r.catalog.size(d.name))
}

// isHeld says whether Consul has lost data of which content is still kept.
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

// setIndex notes the index of a list of services that was read in a round.
func (d *datacenter) setIndex(round int, index uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if round == d.rounds {
		d.index = index
	}
}

// hasItsData checks that Consul still has all its data, at a moment not before the call. An
// operator who restores a snapshot breaks no connection, so an answer from it may come before
// a blocking query shows the loss. Callers that wait at the same time share one look.
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

// setReads sets the plan's queue of reads and its sweeper, nil if it has none.
func (d *datacenter) setReads(r *reads, s *sweeper) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads, d.sweeper = r, s
}

// rereadDoubtful starts a sweep and reads the doubtful services, for changes that no query reports.
func (d *datacenter) rereadDoubtful() {
	doubtful := d.r.catalog.doubtful(d.name)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sweeper != nil {
		d.sweeper.requestSweep()
		d.reads.request(false, doubtful...)
	}
}

// releaseHeld ends the holding of lost content. If Consul is away it returns false and holds on:
// the time that agents have to register again begins when Consul is back.
func (d *datacenter) releaseHeld() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.suspicious {
		d.heldUntil = time.Now().Add(d.r.o.ResetHold)
		return false
	}
	d.heldUntil = time.Time{}
	d.r.o.Logger.Warn("what Consul lost and did not get back is withdrawn", "datacenter", d.displayName())
	return true
}

func (d *datacenter) setPlan(p plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan = p
}

func (d *datacenter) setDoubtful(doubtful bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if doubtful && !d.doubtful {
		d.r.o.Logger.Warn("the token of Consul reads less than before; what it hides is kept", "datacenter", d.displayName())
	}
	d.doubtful = doubtful
}

// setUnusable notes which services are left out for their names, and logs the new ones in one
// line.
func (d *datacenter) setUnusable(names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fresh := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(d.unusable, n) })
	if len(fresh) > 0 {
		d.r.o.Logger.Warn("services of Consul are left out: their names are no DNS labels",
			"datacenter", d.displayName(), "number", len(fresh), "names", fresh[:min(10, len(fresh))])
	}
	d.unusable = names
}
