package main

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/health"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/relay"
	"github.com/portolan-mesh/portolan/discovery/node"
)

// TestRegistrationInTheStatus: each thing that the servers may have said is told in a line, and what
// keeps clients away also makes the machine not ready.
func TestRegistrationInTheStatus(t *testing.T) {
	t.Parallel()
	const entry = "workloadentry/shop/web-10.0.0.1"
	for name, c := range map[string]struct {
		group   string
		away    bool // no server answers
		said    *node.Standing
		want    string
		keptOut string
	}{
		"no group":         {want: "none, since the machine names no group: nobody sends to it, unless somebody writes a WorkloadEntry for it"},
		"nothing said":     {group: "web", want: "the server has not decided yet"},
		"nobody to say it": {group: "web", away: true, want: "unknown: no server answers"},
		"registered":       {group: "web", said: &node.Standing{State: node.Registered, Entry: entry}, want: "registered, " + entry},
		"was registered":   {group: "web", away: true, said: &node.Standing{State: node.Registered, Entry: entry}, want: "registered, " + entry + " (no server answers: it was so at last)"},
		"partly":           {group: "web", said: &node.Standing{State: node.Registered, Entry: entry, Reason: "without labels"}, want: "registered, " + entry + ", without labels"},
		"waiting":          {group: "web", said: &node.Standing{State: node.Waiting, Entry: entry, Reason: "the group"}, want: "waiting, " + entry + ": it waits for the group"},
		"refused": {group: "web", said: &node.Standing{State: node.Refused, Entry: entry, Reason: "it is removed"},
			want: "refused, " + entry + ": it is removed", keptOut: "the machine is not registered: it is removed"},
		"refused, by its name": {group: "web", said: &node.Standing{State: node.Refused, Entry: entry, Reason: entry + " is removed"},
			want: "refused: " + entry + " is removed", keptOut: "the machine is not registered: " + entry + " is removed"},
		"drained": {group: "web", said: &node.Standing{State: node.Registered, Entry: entry, Drained: "a disk"},
			want: "registered, " + entry + "; drained by the mesh's operators: a disk: portolan machine drain web-10.0.0.1 -n shop --end takes it back", keptOut: "the mesh's operators have drained the machine: a disk"},
		"written":     {said: &node.Standing{State: node.Written, Entry: entry}, want: "an entry that somebody has written, " + entry},
		"two are":     {said: &node.Standing{State: node.Written, Entry: entry, Reason: "beside workloadentry/shop/b"}, want: "an entry that somebody has written, " + entry + ", beside workloadentry/shop/b"},
		"was written": {away: true, said: &node.Standing{State: node.Written, Entry: entry}, want: "an entry that somebody has written, " + entry + " (no server answers: it was so at last)"},
		"written, drained": {said: &node.Standing{State: node.Written, Entry: entry, Drained: "a disk"},
			want: "an entry that somebody has written, " + entry + "; drained by the mesh's operators: a disk: portolan machine drain web-10.0.0.1 -n shop --end takes it back", keptOut: "the mesh's operators have drained the machine: a disk"},
	} {
		s := Status{Group: c.group, Registration: c.said, Clients: []relay.Client{{Node: "n", Server: "s"}}}
		if c.away {
			s.Clients[0].Server = ""
		}
		if got := s.registration(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		a := &agent{health: health.New(health.Options{}), standing: &standing{}}
		a.standsAs.Store(c.said)
		if got := strings.Join(a.unfit(a.faulty(nil)), "; "); got != c.keptOut {
			t.Errorf("%s: %q keeps it out, want %q", name, got, c.keptOut)
		}
	}
}
