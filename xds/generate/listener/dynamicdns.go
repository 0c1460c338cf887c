package listener

import (
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// isDynamic says whether proxies resolve the host of a service request by request.
func isDynamic(s *mesh.ServiceRow) bool { return s.Service().Resolution == discovery.DynamicDNS }

// takesBytes says whether an egress listener can forward connections to a service's port
// as TCP. Connections to a dynamic service must name a host, so it must speak TLS.
func takesBytes(l mesh.EgressListener, s *mesh.ServiceRow, port int) bool {
	return !isDynamic(s) || speaksTLS(l, s, port)
}

// resolvedPort returns the port at which the proxy connects to the SNI name: that of the
// stream's first dynamic destination. It is 0 if there is none.
func (c *chains) resolvedPort(s *mesh.ServiceRow, st stream) int {
	switch {
	case !st.tls:
		return 0
	case st.vs == nil && isDynamic(s):
		return c.port
	}
	for _, d := range st.route {
		if len(st.route) == 1 || d.GetWeight() > 0 {
			if to, port := route.Destination(c.view, d.GetDestination(), c.port); to != nil && isDynamic(to) {
				return port
			}
		}
	}
	return 0
}
