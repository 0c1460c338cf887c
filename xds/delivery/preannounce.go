package delivery

import (
	"slices"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// A gRPC client requests only the clusters that its routes name. New routes would send
// calls to clusters that it does not have. So its present routes are sent once more, and
// name the new clusters too, without traffic. Once it has these, the new routes follow.
// It drops by itself the clusters that no routes name any more.
// https://github.com/grpc/proposal/pull/170

// isGRPC says whether the client is a gRPC client.
func (s *Sequencer) isGRPC() bool {
	return slices.ContainsFunc(s.types, func(t *typeState) bool { return t.Preannounce != nil })
}

// mayPreannounce says whether new clusters are announced to the client in its present
// resource of a name. It must have one, and must not have rejected the desired one.
func (t *typeState) mayPreannounce(name string) bool {
	return t.Preannounce != nil && t.sub.Acked(name) != nil && !t.sub.Rejects(name)
}

// notPreannounced returns a target that holds back the desired resource of a gRPC client:
// one that the client's present resource does not name yet, or one that it names and the
// client cannot use; false if there is none.
func (s *Sequencer) notPreannounced(t *typeState, name string) (string, bool) {
	if some := s.unnamed(t, name); len(some) > 0 {
		return some[0], true
	}
	for target := range t.sub.Acked(name).EachRef {
		if !s.target.complete(target) {
			return target, true
		}
	}
	return "", false
}

// unnamed returns the targets of a resource that the client's present one does not
// name.
func (s *Sequencer) unnamed(t *typeState, name string) []string {
	var out []string
	has := t.sub.Acked(name)
	for target := range t.sub.Desired(name).EachRef {
		if s.target.sub.Desired(target) != nil && !has.Refers(target) && !slices.Contains(out, target) {
			out = append(out, target)
		}
	}
	return out
}

// preannouncement returns the interim form of a waiting name, from which the client
// learns of new targets and then requests them. It returns nil if the present form names
// them all.
func (s *Sequencer) preannouncement(t *typeState, name string) *resource.Resource {
	if _, waits := t.held.since[name]; !waits || !t.mayPreannounce(name) {
		return nil
	}
	unnamed := s.unnamed(t, name)
	if len(unnamed) == 0 {
		return nil
	}
	out, err := t.Preannounce(t.sub.Acked(name), unnamed)
	if err != nil {
		return nil // the resource waits until its limit instead
	}
	return out
}

// complete says whether a client that requests targets by name has an answer for a
// target, and for everything that the target needs.
func (t *typeState) complete(name string) bool {
	if !t.sub.Answered(name) {
		return false
	}
	if t.isWarming(name) && t.sub.Desired(name) != nil {
		return false
	}
	for _, n := range t.needs {
		for needed := range n.names(t.sub.AckedOrEmpty(name)) {
			if !n.needed.Optional && !n.needed.sub.Answered(needed) {
				return false
			}
		}
	}
	return true
}
