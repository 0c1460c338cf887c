package main

import (
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/discovery/node"
)

// followStanding takes what the servers say of the machine's registration. It implements
// relay.Follower.
func (a *agent) followStanding(set []*discoveryv3.Resource, removed []string) {
	if len(removed) > 0 {
		a.standsAs.Store(nil)
	}
	for _, one := range set { // there is one at most
		body := &structpb.Struct{}
		if err := one.GetResource().UnmarshalTo(body); err != nil {
			a.logger.Warn("what the server says of the registration cannot be read", "err", err)
			continue
		}
		now := node.StandingOf(body)
		a.standsAs.Store(&now)
		if a.relay == nil {
			continue // it is what was kept
		}
		if now.State == node.Refused || now.Drained != "" {
			a.logger.Warn("the registration: " + standingText(now))
		} else {
			a.logger.Info("the registration: " + standingText(now))
		}
	}
}

// standingText says in a line what has become of the registration.
func standingText(s node.Standing) string {
	text := string(s.State) + ", " + s.Entry
	if s.State == node.Written {
		text = "an entry that somebody has written, " + s.Entry
	}
	switch {
	case strings.HasPrefix(s.Reason, s.Entry): // it names the entry
		text = string(s.State) + ": " + s.Reason
	case s.State == node.Waiting:
		text += ": it waits for " + s.Reason
	case s.Reason != "" && (s.State == node.Registered || s.State == node.Written):
		text += ", " + s.Reason
	case s.Reason != "":
		text += ": " + s.Reason
	}
	if s.Drained != "" {
		text += "; drained by the mesh's operators: " + s.Drained + ": " + s.EndDrain() + " takes it back"
	}
	return text
}

// registration says in a line what has become of the registration.
func (s Status) registration() string {
	known := false
	for _, c := range s.Clients {
		known = known || c.Server != ""
	}
	switch r := s.Registration; {
	case s.Group == "" && r == nil:
		return "none, since the machine names no group: nobody sends to it, unless somebody writes a WorkloadEntry for it"
	case r == nil && known:
		return "the server has not decided yet"
	case r == nil:
		return "unknown: no server answers"
	case !known:
		return standingText(*r) + " (no server answers: it was so at last)"
	default:
		return standingText(*r)
	}
}
