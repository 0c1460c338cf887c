package reliability_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/integration/reliability"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// topologies returns the ways to run Portolan.
func topologies() []topology {
	return []topology{
		{name: "embedded", servers: 1, harm: toEmbedded},
		{name: "members", servers: 3, members: true, harm: toMembers},
		{name: "fleet", servers: 3, fleet: true, harm: toFleet},
	}
}

// maxTries is how often a seed is run at most. A run is void if the store dropped history
// before the suite had read it, since the machine was too busy. Such a run says nothing about
// the product.
const maxTries = 3

// TestReliability runs every topology with faults, and judges the history. With several seeds
// the topologies take turns.
func TestReliability(t *testing.T) {
	first := *seedFlag
	if first == 0 {
		first = rand.Uint64() % 1_000_000
	}
	totals := map[string]int{}
	for seed := first; seed < first+uint64(*seedsFlag); seed++ {
		for i, topo := range topologies() {
			if *topologyFlag != "" && *topologyFlag != topo.name {
				continue
			}
			if *topologyFlag == "" && *seedsFlag > 1 && seed%uint64(len(topologies())) != uint64(i) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", topo.name, seed), func(t *testing.T) {
				plan := plan(randomOf(seed, 1), topo.harm, *durationFlag)
				h, trouble := run(t, topo, seed, *durationFlag, plan, portolan(t))
				for tries := 1; tries < maxTries && errors.Is(errors.Join(trouble...), errOvertaken); tries++ {
					t.Logf("seed %d, %s is void, and run again: %v", seed, topo.name, errors.Join(trouble...))
					totals["void"]++
					h, trouble = run(t, topo, seed, *durationFlag, plan, portolan(t))
				}
				for _, err := range trouble {
					t.Error(err)
				}
				report(t, h, reliability.Judge(h), totals)
			})
		}
	}
	if totals["runs"] >= len(topologies()) && totals["statuses"] == 0 {
		t.Error("nothing was seen of statuses")
	}
	t.Logf("%d runs, %d void, %d violations: %d calls, %d writes acknowledged, %d outcomes unknown, %d watch events, %d statuses, %d pushes",
		totals["runs"], totals["void"], totals["violations"], totals["calls"], totals["acknowledged"], totals["unknown"], totals["events"], totals["statuses"], totals["pushes"])
}

// report prints the result of a run in one line. If a promise was broken it keeps the history.
func report(t *testing.T, h *reliability.History, violations []reliability.Violation, totals map[string]int) {
	t.Helper()
	s := reliability.Summarize(h)
	verdict := fmt.Sprintf("%d checkers ok", len(reliability.Checkers()))
	if len(violations) > 0 {
		verdict = fmt.Sprintf("%d VIOLATIONS of %s", len(violations), strings.Join(reliability.Broken(violations), ", "))
	}
	t.Logf("seed %d, %s: %s: %d calls, %d writes acknowledged, %d outcomes unknown, %d watch events, %d statuses, %d pushes, in step after %s: %s",
		h.Seed, h.Topology, strings.Join(s.Harm, ", "), s.Calls, s.Acknowledged, s.Unknown, s.Events, s.Statuses, s.Pushes,
		s.Settled.Round(time.Millisecond), verdict)
	for name, n := range map[string]int{
		"runs": 1, "violations": len(violations), "calls": s.Calls, "acknowledged": s.Acknowledged,
		"unknown": s.Unknown, "events": s.Events, "statuses": s.Statuses, "pushes": s.Pushes,
	} {
		totals[name] += n
	}
	if unseen := reliability.Unseen(h); len(unseen) > 0 {
		t.Errorf("nothing was seen of %s", strings.Join(unseen, ", "))
	}
	const shown = 20
	for i, v := range violations {
		if i == shown {
			t.Errorf("and %d more", len(violations)-shown)
			break
		}
		t.Error(v)
	}
	if t.Failed() {
		keep(t, h, violations)
	}
}

// keep saves a history and prints how to repeat the run.
func keep(t *testing.T, h *reliability.History, violations []reliability.Violation) {
	t.Helper()
	base := *keepFlag
	if base == "" {
		base = os.TempDir()
	}
	dir, err := os.MkdirTemp(base, fmt.Sprintf("reliability-%s-%d-", h.Topology, h.Seed))
	if err != nil {
		t.Error(err)
		return
	}
	text, _ := json.MarshalIndent(violations, "", " ")
	if err := os.WriteFile(filepath.Join(dir, "violations.json"), text, 0o600); err != nil {
		t.Error(err)
	}
	if err := h.Save(dir); err != nil {
		t.Error(err)
	}
	t.Logf("the history is in %s; once more: make reliability SEED=%d DURATION=%s TOPOLOGY=%s", dir, h.Seed, *durationFlag, h.Topology)
}

// run does one run. It returns the history, and what went wrong with the run itself.
func run(t *testing.T, topo topology, seed uint64, duration time.Duration, plan []harm, binary string) (*reliability.History, []error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	topo, prepare := topo.prepared(plan)
	r := newRig(t, topo, seed, binary, prepare...)
	r.truth = &teller{r: r}
	var telling sync.WaitGroup
	telling.Go(func() { r.truth.run(ctx) })
	defer telling.Wait()
	defer cancel()
	if err := r.seedObjects(ctx); err != nil {
		t.Fatal(err)
	}
	proxies, stopFollowing := r.following(ctx)
	stopWorking := r.working(ctx)
	pass(ctx, warmUp)
	before := r.measureAll(ctx)
	begun := time.Now()
	r.suffer(ctx, plan, duration)
	pass(ctx, time.Until(begun.Add(duration)))
	healed := r.now()
	stopWorking()
	r.settle(ctx, healed, proxies, before)
	stopFollowing()
	cancel() // etcd waits for its watchers before it ends
	telling.Wait()
	r.conclude(t.Context())
	return &r.history, r.trouble
}

// warmUp is how long clients work before measurements and faults begin.
const warmUp = time.Second

// prepared returns the topology with the flags that a plan needs, and what to do before the
// start.
func (o topology) prepared(plan []harm) (topology, []func(*rig) error) {
	var prepare []func(*rig) error
	seen := map[string]bool{}
	for _, h := range plan {
		if seen[h.name] {
			continue
		}
		seen[h.name] = true
		o.args = append(o.args[:len(o.args):len(o.args)], h.args...)
		if h.prepare != nil {
			prepare = append(prepare, h.prepare)
		}
	}
	return o, prepare
}

func (r *rig) measureAll(ctx context.Context) map[*server]reliability.Sample {
	out := map[*server]reliability.Sample{}
	for _, s := range r.servers {
		if sample, err := r.measure(ctx, s); err == nil {
			out[s] = sample
		}
	}
	return out
}

// settle waits until every replica is in sync with the store, and records how long that took
// after the last fault.
func (r *rig) settle(ctx context.Context, healed time.Duration, proxies []*proxy, before map[*server]reliability.Sample) {
	const limit = 20 * time.Second
	var last int64
	err := await(ctx, limit, func() error {
		return r.withStore(ctx, func(ctx context.Context, c *clientv3.Client) error {
			answer, err := c.Get(ctx, etcd.ConfigPrefix, clientv3.WithPrefix())
			if err != nil {
				return err
			}
			last = answer.Header.Revision
			return r.finish(answer)
		})
	})
	if err != nil {
		r.fail("the store does not answer once the harm is over: %v", err)
		return
	}
	if err := await(ctx, limit, func() error {
		if at := r.truth.at(); at < last {
			return fmt.Errorf("the truth is known up to %d, and the store is at %d", at, last)
		}
		return nil
	}); err != nil {
		r.fail("%w", err)
	}
	settled := make([]reliability.Settling, len(r.servers))
	var running sync.WaitGroup
	for i, s := range r.servers {
		running.Go(func() { settled[i] = r.settleOne(ctx, s, last, healed, limit, proxies) })
	}
	running.Wait()
	for i, s := range r.servers {
		settled[i].Before = before[s]
		settled[i].After = r.rested(ctx, s, before[s])
	}
	r.record(func(h *reliability.History) { h.Settled = settled })
}

// finish records the final content of the store.
func (r *rig) finish(answer *clientv3.GetResponse) error {
	final := map[reliability.Key]reliability.Version{}
	for _, kv := range answer.Kvs {
		object, err := etcd.Decode(kv, schema.Pilot(), "")
		if err != nil {
			return err
		}
		final[reliability.KeyOf(object.Key())] = reliability.Version{Revision: kv.ModRevision, Value: reliability.ValueOf(object.Annotations)}
	}
	r.record(func(h *reliability.History) { h.Final = final })
	return nil
}

// settleOne waits until one replica shows a revision to readers, and sends its connected
// proxies the same as a new one.
func (r *rig) settleOne(ctx context.Context, s *server, last int64, healed, limit time.Duration, proxies []*proxy) reliability.Settling {
	out := reliability.Settling{Replica: s.name, Revision: last, Objects: map[reliability.Key]reliability.Version{}}
	api := newAPI(r, s)
	err := await(ctx, limit, func() error {
		for _, scope := range reliability.Scopes() {
			l, class := r.list(ctx, api, s, -2, scope, client.Freshness{MinRevision: last})
			if class != reliability.OK {
				return fmt.Errorf("a list of %s: %s", scope, class)
			}
			for key, v := range l.Objects {
				out.Objects[key] = v
			}
		}
		return nil
	})
	if err == nil {
		err = await(ctx, limit, func() (err error) { out.Resources, err = r.sameToAll(ctx, s, proxies); return err })
	}
	out.Took = r.now() - healed
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// sameToAll returns a digest of what a new proxy receives. It fails if a connected proxy holds
// something else.
func (r *rig) sameToAll(ctx context.Context, s *server, proxies []*proxy) (string, error) {
	c, err := r.newcomer(ctx, s, int(protocol.Delta))
	if err != nil {
		return "", err
	}
	defer c.Close()
	want := holds(c)
	for _, p := range proxies {
		if p.s == s && p.digest() != want {
			return "", fmt.Errorf("%s holds something else (%s) than a new proxy (%s)", p.name, p.digest(), want)
		}
	}
	return want, nil
}

// rested waits for a while until a server uses no more of the machine than before, and returns
// what it uses.
func (r *rig) rested(ctx context.Context, s *server, before reliability.Sample) (out reliability.Sample) {
	_ = await(ctx, 15*time.Second, func() error {
		sample, err := r.measure(ctx, s)
		if err != nil {
			return err
		}
		out = sample
		h := reliability.History{Settled: []reliability.Settling{{Replica: s.name, Before: before, After: sample}}}
		if broken := reliability.Bounded(&h); len(broken) > 0 {
			return fmt.Errorf("%v", broken)
		}
		return nil
	})
	return out
}

// conclude ends all processes and completes the history.
func (r *rig) conclude(ctx context.Context) {
	for _, s := range r.servers {
		r.end(s)
	}
	if len(r.servers) == 1 { // the lock is free, and the data complete
		s := r.servers[0]
		s.start()
		if err := s.ready(ctx, 20*time.Second); err != nil {
			r.fail("the second start: %w", err)
		}
		r.end(s)
	}
	for _, s := range r.servers {
		for _, line := range s.alarms() {
			r.fail("an alarm: %s", line)
		}
	}
	truth, said, err := r.truth.result()
	if err != nil {
		r.fail("the truth is not known: %w", err)
	}
	r.record(func(h *reliability.History) {
		h.Truth, h.Said = truth, said
		for _, s := range r.servers {
			h.Listed = append(h.Listed, s.lists()...)
		}
	})
}

func (r *rig) end(s *server) {
	begun := time.Now()
	e := reliability.Ending{Process: s.id()}
	if p := s.current(); !p.Running() {
		e.Error = fmt.Sprintf("it had ended by itself: %v", p.Err())
	} else if err := p.Terminate(r.t, 30*time.Second); err != nil {
		e.Error = err.Error()
	}
	e.Took = time.Since(begun)
	r.record(func(h *reliability.History) { h.Endings = append(h.Endings, e) })
}
