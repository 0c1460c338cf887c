package listener

import (
	"iter"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Generator makes listeners.
type Generator struct{}

var _ generate.Generator = Generator{}

// TypeURL implements generate.Generator.
func (Generator) TypeURL() string { return resource.ListenerType }

// Affected implements generate.Generator. Listeners of gateways, and those that a Sidecar
// names, appear and disappear with these objects, which change the proxy's class. Those
// of gateways also depend on tcp and tls routes, on services for AUTO_PASSTHROUGH, and on
// the secrets with which they terminate TLS. All others appear and disappear with the
// services that the proxy sees, and those of headless services with the addresses of their
// workloads.
func (Generator) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if v.Shape().Type == discovery.Router {
			if d.Whole {
				gatewayNames(v, yield)
			} else if streamNames(v, d, yield) {
				certifiedNames(v, d, yield)
			}
			return
		}
		if d.Whole && !(virtualNames(v, yield) && httpProxyNames(v, yield) && egressNames(v, yield)) {
			return
		}
		sockets := byteSockets(v)
		for row := range route.ChangedHosts(v, d) {
			if !hostNames(v, row, yield) || !sockets.names(v, row, yield) {
				return
			}
		}
		if !d.Whole {
			headlessNames(v, d, yield)
		}
	}
}

// virtualNames yields the listener that gets captured traffic.
func virtualNames(v *mesh.View, yield func(string) bool) bool {
	return !v.Shape().Captures() || yield(names.VirtualOutboundListener)
}

// hostNames yields the listeners that the services of a host have or share, as far as the
// proxy sees them. It need not yield a listener that was built from another host's row: a
// change of that row finds it.
func hostNames(v *mesh.View, row *mesh.HostRow, yield func(string) bool) bool {
	for _, s := range row.Services {
		for _, p := range s.Ports() {
			for _, l := range route.ListenersOf(v, p.Number) {
				if v.ServiceAt(l, row.Hostname) == s && !portNames(v, l, s, p, yield) {
					return false
				}
			}
		}
	}
	return true
}

func portNames(v *mesh.View, l mesh.EgressListener, s *mesh.ServiceRow, p discovery.Port, yield func(string) bool) bool {
	bind := bindOf(v, l)
	if bind == "" {
		return capturedNames(v, l, s, p, yield)
	}
	return yield(names.Listener(bind, uint32(p.Number))) && (v.Shape().Captures() || assignedNames(v, s, p, yield))
}

// Build implements generate.Generator.
func (Generator) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	if v.Shape().Type == discovery.Router {
		return gateway(v, name)
	}
	if name == names.VirtualOutboundListener && v.Shape().Captures() {
		return virtualOutbound(v)
	}
	if l, ok := socketOf(v, name); ok {
		return socket(v, name, l)
	}
	port, ok := portOf(name)
	if !ok {
		return nil, nil, nil
	}
	if isHTTPProxy(v, name, port) {
		return httpProxy(v, name, port)
	}
	all := route.ListenersOf(v, port)
	for _, l := range all {
		if bind := bindOf(v, l); bind != "" && name == names.Listener(bind, uint32(port)) {
			return outbound(v, name, l, port)
		}
	}
	for _, l := range all {
		switch bind := bindOf(v, l); {
		case bind == "" && name == names.Listener(v.Shape().Wildcard(), uint32(port)):
			return wildcardListener(v, name, l, port)
		case bind == "":
			return addressListener(v, name, l, port)
		case l.Port == 0 && !v.Shape().Captures():
			return assignedListener(v, name, l, port)
		}
	}
	return nil, nil, nil
}

// portOf parses the port at the end of a listener's name.
func portOf(name string) (int, bool) {
	at := strings.LastIndexByte(name, '_')
	if at < 0 {
		return 0, false
	}
	port, err := strconv.ParseUint(name[at+1:], 10, 16)
	return int(port), err == nil && port > 0
}

// addressOf returns the part of a listener's name before the port.
func addressOf(name string) string {
	if at := strings.LastIndexByte(name, '_'); at >= 0 {
		return name[:at]
	}
	return ""
}

// loopback is the address on which a proxy of a shape listens for clients on its own
// machine.
func loopback(s mesh.Shape) string {
	if s.IPv6 && !s.IPv4 {
		return "::1"
	}
	return "127.0.0.1"
}

// moreLoopbacks are the further addresses of a listener at loopback.
func moreLoopbacks(s mesh.Shape) []string {
	if s.IPv4 && s.IPv6 {
		return []string{"::1"}
	}
	return nil
}

// moreWildcards are the further wildcard addresses of a listener that takes connections
// from anywhere.
func moreWildcards(s mesh.Shape) []string {
	if s.IPv4 && s.IPv6 {
		return []string{"::"}
	}
	return nil
}
