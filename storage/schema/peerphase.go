package schema

import (
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/phase"
)

// PeerPhaseName is the name of the only PeerPhase of a namespace that counts.
const PeerPhaseName = "default"

// peerPhase is a kind that the leader writes.
func peerPhase() *Schema {
	s := definition[*phase.Peers]{
		kind: PeerPhase, plural: "peerphases",
		codec:  config.JSON[phase.Peers](),
		served: serve("toward").with("settled", serve("name", "selector", "mode", "ports")),
		check:  checkPeerPhase,
	}.schema()
	s.Internal = true
	return s
}

func checkPeerPhase(c checker, _ *phase.Peers) {
	if name := c.report.object.Name; name != PeerPhaseName {
		c.report.at("metadata").at("name").fail("must be %s: the leading server writes this object", PeerPhaseName)
	}
}
