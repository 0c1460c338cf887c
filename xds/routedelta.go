package xds

import corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

// firstRouteDelta is the oldest version of Envoy that is known to take virtual
// hosts by delta as they are served here: 1.40.
var firstRouteDelta = [2]uint32{1, 40}

// takesRouteDelta says whether the client takes virtual hosts as resources of
// their own: an Envoy of a version that is known to, over one aggregated stream in
// delta, since a route configuration tells it to look for them there. Whoever else
// gets them within their route configurations.
func (c *Connection) takesRouteDelta(node *corev3.Node) bool {
	wire, delta := c.wire.(deltaWire)
	if !delta || wire.only != "" || c.server.options.WholeRoutes || node.GetUserAgentName() != "envoy" {
		return false
	}
	v := node.GetUserAgentBuildVersion().GetVersion()
	if v.GetMajorNumber() != firstRouteDelta[0] {
		return v.GetMajorNumber() > firstRouteDelta[0]
	}
	return v.GetMinorNumber() >= firstRouteDelta[1]
}
