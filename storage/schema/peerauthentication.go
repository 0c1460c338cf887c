package schema

import (
	"maps"
	"slices"
	"strconv"

	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
)

func peerAuthentication() *Schema {
	return definition[*security.PeerAuthentication]{
		kind: PeerAuthentication, plural: "peerauthentications", shortName: "pa",
		codec:  config.Protobuf[security.PeerAuthentication](),
		served: serve("selector", "mtls", "portLevelMtls"),
		check:  checkPeerAuthentication,
	}.schema()
}

// phaseAnnotation says how a change of the policy is followed (peer.Immediate).
const phaseAnnotation = "portolan.io/phase"

func checkPeerAuthentication(c checker, p *security.PeerAuthentication) {
	c.at("selector", "matchLabels").labels(p.GetSelector().GetMatchLabels())
	if value, ok := c.report.object.Annotations[phaseAnnotation]; ok && value != "none" {
		c.report.at("metadata").at("annotations").key(phaseAnnotation).fail(`must be none, for a change without phases, is %q: leave it out for one with phases`, value)
	}
	if len(p.PortLevelMtls) > 0 && len(p.GetSelector().GetMatchLabels()) == 0 {
		c.at("portLevelMtls").fail("needs a selector: ports are those of workloads")
	}
	for _, port := range slices.Sorted(maps.Keys(p.PortLevelMtls)) {
		c.at("portLevelMtls").key(strconv.FormatUint(uint64(port), 10)).port(port)
	}
}
