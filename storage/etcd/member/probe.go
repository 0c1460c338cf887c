package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
	"github.com/portolan-mesh/portolan/storage/pulse"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// probeKey is read to see whether etcd answers; nobody writes it.
const probeKey = "\x00portolan"

// Healthy says whether the store can be called.
func (c *Child) Healthy() bool { return c.reachable() == nil }

// Ready returns nil if the store can be read and written, or why not, in words for an
// operator. With other members it may be ready although this process is down.
func (c *Child) Ready() error {
	if err := c.reachable(); err != nil {
		return err
	}
	return fullError(c.keeper)
}

// Whole returns nil if the store is complete. Otherwise it says what is missing from a
// store that can be read and written.
func (c *Child) Whole() error {
	if c.peers == nil {
		return nil
	}
	if err := c.notAnswering(); err != nil {
		return fmt.Errorf("writes succeed through the other members of the store: %w", err)
	}
	return c.peers.missingMembers()
}

// reachable returns why the store cannot be called, nil if it can.
func (c *Child) reachable() error {
	if c.peers == nil {
		return c.notAnswering()
	}
	err := c.peers.unusable()
	if err != nil && !c.peers.everAnswered() {
		return cmp.Or(c.notAnswering(), err)
	}
	return err
}

// notAnswering returns why the process does not answer, nil if it does.
func (c *Child) notAnswering() error {
	p := c.current.Load()
	if p == nil {
		return errors.New("the store process is not running")
	}
	if o := c.outage.Load(); o != nil {
		return c.outageError(o)
	}
	if !p.Running() {
		return c.outageError(&outage{since: p.Ended(), cause: p.Cause()})
	}
	if since := p.silent.Load(); since != nil {
		return fmt.Errorf("the store process has not answered for %s", time.Since(*since).Round(time.Second))
	}
	return nil
}

func (c *Child) outageError(o *outage) error {
	if o.waits {
		return o.cause
	}
	advice := ""
	if lacksSpace(o.cause) && !strings.Contains(o.cause.Error(), ErrNoSpace.Error()) {
		advice = ": free some space for " + c.opts.DataDir
	}
	return fmt.Errorf("the store process is down for %s and is being restarted: %w%s",
		time.Since(o.since).Round(time.Second), o.cause, advice)
}

// fullError returns the error of a store that takes no writes.
func fullError(k *upkeep.Keeper) error {
	s := k.Status()
	if s == nil || !s.Alarmed(upkeep.NoSpace) {
		return nil
	}
	return fmt.Errorf("the store takes no writes: its quota is used up (%d MiB of %d MiB): if it makes no room by itself within a minute, start the server with a larger --store-quota",
		s.Size>>20, s.Quota>>20)
}

// restProbes is every how many intervals a process that no call waits for is probed. An
// answer costs both processes more than all else that they do at rest.
const restProbes = 10

// pace counts the intervals since the last probe. The zero pace probes at once.
type pace int

// due says whether to probe now; awaited says whether a call waits for the process.
func (p *pace) due(awaited bool) bool {
	ask := awaited || *p%restProbes == 0
	if ask {
		*p = 0
	}
	*p++
	return ask
}

// probe kills a process that runs but does not answer, until ctx ends. Run then starts
// another.
func (c *Child) probe(ctx context.Context) {
	misses := 0
	var asked *process
	var pace pace
	for retry.Sleep(ctx, pulse.Until(c.opts.ProbeInterval)) == nil {
		p := c.current.Load()
		if p != asked {
			asked, misses, pace = p, 0, 0
		}
		if !pace.due(c.calls.Load() > 0) {
			continue
		}
		for p.ready.Load() != nil && p.Running() && !c.answers(ctx, p) {
			if ctx.Err() != nil {
				return
			}
			if misses++; misses < c.opts.ProbeMisses {
				continue
			}
			silence := time.Since(*p.silent.Load()).Round(time.Second)
			c.opts.Logger.Error("store process does not answer and is killed; nothing acknowledged is lost", "pid", p.PID(), "silentFor", silence)
			p.Condemn(fmt.Sprintf("it did not answer for %s and was killed", silence))
			<-p.Done()
		}
		misses = 0
	}
}

// answers says whether the process answers a linearizable read within ProbeTimeout, and
// notes it. A process that is being defragmented, or ends meanwhile, need not answer. A
// member that lacks the others says so, which counts as an answer.
func (c *Child) answers(ctx context.Context, p *process) bool {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.opts.ProbeTimeout)
	defer cancel()
	for ctx.Err() == nil {
		_, err := c.client.Get(clientv3.WithRequireLeader(ctx), probeKey)
		if err == nil || errors.Is(err, rpctypes.ErrNoLeader) || isLearner(err) || !p.Running() {
			p.silent.Store(nil)
			return true
		}
		_ = retry.Sleep(ctx, 50*time.Millisecond) // if ctx has ended, the next attempt fails
	}
	if c.keeper.Busy() {
		return true
	}
	p.silent.CompareAndSwap(nil, &begun)
	return false
}

// isLearner recognises the answer of a learner, which serves no linearizable reads.
func isLearner(err error) bool {
	return strings.Contains(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner))
}
