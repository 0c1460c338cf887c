package main

import (
	"context"
	"time"

	"github.com/portolan-mesh/portolan/discovery/node"
)

// factsEvery is how often the agent looks whether what it says of the machine has changed.
const factsEvery = 5 * time.Second

// tellFacts tells the servers what runs on the machine, and again when it has changed, until ctx
// ends. No fact changes by time alone.
func (a *agent) tellFacts(ctx context.Context) {
	since := time.Now()
	tick := time.NewTicker(factsEvery)
	defer tick.Stop()
	for told := (node.Facts{}); ; {
		if now := a.facts(since); now != told {
			a.relay.Tell(ctx, now)
			told = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// facts returns what is true now of an agent that runs since a time.
func (a *agent) facts(since time.Time) node.Facts {
	out := node.Facts{Agent: version, AgentSince: since, Capture: "none", CertificateEnds: a.secrets.Until()}
	if a.envoy != nil {
		now := a.envoy.Status()
		out.Envoy = now.Version
		if now.PID != 0 {
			out.EnvoySince = now.Since
		}
	}
	out.Drained, _ = a.standing.why()
	if a.capture != nil {
		out.Capture = string(a.capture.Status().State)
	}
	return out
}
