package main

import (
	"context"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/discovery/node"
)

// factsEvery is how often the agent looks whether what it says of the machine has changed. What it does
// itself it says at once.
const factsEvery = 5 * time.Second

// factsTold are the facts that the servers were told last.
type factsTold struct {
	mu   sync.Mutex
	last node.Facts
}

// tell tells the facts if they have changed. It returns when the servers have been told, or ctx ends.
func (t *factsTold) tell(ctx context.Context, now func() node.Facts, tell func(context.Context, node.Facts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if is := now(); is != t.last {
		if tell(ctx, is); ctx.Err() == nil { // else some may not know yet
			t.last = is
		}
	}
}

// keepTellingFacts tells the servers what runs on the machine, and again when it has changed, until ctx
// ends. No fact changes by time alone.
func (a *agent) keepTellingFacts(ctx context.Context) {
	tick := time.NewTicker(factsEvery)
	defer tick.Stop()
	for {
		a.tellFacts(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (a *agent) tellFacts(ctx context.Context) { a.told.tell(ctx, a.facts, a.relay.Tell) }

// facts returns what is true now.
func (a *agent) facts() node.Facts {
	out := node.Facts{Agent: version, AgentSince: a.since, Capture: "none", CertificateEnds: a.secrets.Until()}
	if a.envoy != nil {
		now := a.envoy.Status()
		out.Envoy = now.Version
		if now.PID != 0 {
			out.EnvoySince = now.Since
		}
		out.Patches = a.patchesFact()
	}
	out.Drained, _ = a.standing.why()
	if a.capture != nil {
		out.Capture = string(a.capture.Status().State)
	}
	return out
}
