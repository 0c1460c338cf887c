package health

import (
	"time"

	"github.com/portolan-mesh/portolan/xds/names/probe"
)

// State is what is known of a workload.
type State string

// The states.
const (
	Unknown   State = "unknown" // before enough checks
	Healthy   State = "healthy"
	Unhealthy State = "unhealthy"
)

// judge turns the results of checks into a state. A state lasts until so many results in turn
// speak against it as the probe demands.
type judge struct {
	state State
	since time.Time
	// ok says what the last result was, and inTurn how many results in turn were so.
	ok     bool
	inTurn int32
}

// take takes a result.
func (j *judge) take(ok bool, p *probe.Probe, now time.Time) {
	if j.ok != ok {
		j.ok, j.inTurn = ok, 0
	}
	j.inTurn++
	next, enough := Healthy, p.GetSuccessThreshold()
	if !ok {
		next, enough = Unhealthy, p.GetFailureThreshold()
	}
	if j.state != next && j.inTurn >= enough {
		j.state, j.since = next, now
	}
}

// restart forgets the results, but not the state: another probe is to judge.
func (j *judge) restart() { j.inTurn = 0 }
