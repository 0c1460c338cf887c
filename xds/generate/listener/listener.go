package listener

import (
	"iter"
	"strconv"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// TypeURL is the type of listeners.
const TypeURL = "type.googleapis.com/envoy.config.listener.v3.Listener"

// Generator makes listeners.
type Generator struct{}

var _ generate.Generator = Generator{}

// TypeURL implements generate.Generator.
func (Generator) TypeURL() string { return TypeURL }

// Affected implements generate.Generator. The listeners of a gateway, and those
// that a Sidecar names, come and go with these, which make another class of the
// proxy; the others with the services that the proxy sees.
func (Generator) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if v.Shape().Type == discovery.Router {
			if d.Whole {
				gatewayNames(v, yield)
			}
			return
		}
		if d.Whole && !(virtualNames(v, yield) && egressNames(v, yield)) {
			return
		}
		for row := range route.ChangedHosts(v, d) {
			if !hostNames(v, row, yield) {
				return
			}
		}
	}
}

// virtualNames names the listener that captured traffic goes to.
func virtualNames(v *mesh.View, yield func(string) bool) bool {
	return !v.Shape().Captures() || yield(envoy.VirtualOutboundListenerName)
}

// hostNames names the listeners that the services of a host have or share, as far
// as the proxy sees them. Those that were built from another one's row are found
// by it.
func hostNames(v *mesh.View, row *mesh.HostRow, yield func(string) bool) bool {
	for _, s := range row.Services {
		for _, p := range s.Ports() {
			l, ok := route.ListenerOf(v, p.Number)
			if ok && v.ServiceAt(l, row.Hostname) == s && !portNames(v, l, s, p, yield) {
				return false
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
	return yield(envoy.ListenerName(bind, uint32(p.Number))) && (v.Shape().Captures() || assignedNames(v, s, p, yield))
}

// Build implements generate.Generator.
func (Generator) Build(v *mesh.View, name string) (*resource.Resource, error) {
	if v.Shape().Type == discovery.Router {
		return gateway(v, name)
	}
	if name == envoy.VirtualOutboundListenerName && v.Shape().Captures() {
		return virtualOutbound(v)
	}
	port, ok := portOf(name)
	if !ok {
		return nil, nil
	}
	l, ok := route.ListenerOf(v, port)
	if !ok {
		return nil, nil
	}
	switch bind := bindOf(v, l); {
	case bind == "" && name == envoy.ListenerName(wildcard(v.Shape()), uint32(port)):
		return everywhere(v, name, l, port)
	case bind == "":
		return at(v, name, l, port)
	case name == envoy.ListenerName(bind, uint32(port)):
		return outbound(v, name, l, port)
	case l.Port == 0 && !v.Shape().Captures():
		return assigned(v, name, l, port)
	}
	return nil, nil
}

// portOf reads the port at the end of a listener's name.
func portOf(name string) (int, bool) {
	at := strings.LastIndexByte(name, '_')
	if at < 0 {
		return 0, false
	}
	port, err := strconv.ParseUint(name[at+1:], 10, 16)
	return int(port), err == nil && port > 0
}

// addressOf is what stands before the port in a listener's name.
func addressOf(name string) string {
	if at := strings.LastIndexByte(name, '_'); at >= 0 {
		return name[:at]
	}
	return ""
}

// loopback and wildcard are the addresses on which a proxy of a shape takes what
// comes from beside it, and what comes from anywhere.
func loopback(s mesh.Shape) string {
	if s.IPv6 && !s.IPv4 {
		return "::1"
	}
	return "127.0.0.1"
}

func wildcard(s mesh.Shape) string {
	if s.IPv6 && !s.IPv4 {
		return "::"
	}
	return discovery.UnspecifiedIP
}

// moreWildcards are the other addresses at which a proxy takes what comes from
// anywhere.
func moreWildcards(s mesh.Shape) []string {
	if s.IPv4 && s.IPv6 {
		return []string{"::"}
	}
	return nil
}

// accessLogs are those that the mesh asks for, none by default. noRoute are
// those of connections that no filter sees.
func accessLogs(v *mesh.View, noRoute bool) []*accesslogv3.AccessLog {
	m := v.Mesh()
	if m.GetAccessLogFile() == "" {
		return nil
	}
	options := envoy.AccessLogOptions{Path: m.GetAccessLogFile(), NoRoute: noRoute}
	if m.GetAccessLogEncoding() == meshv1alpha1.MeshConfig_JSON {
		options.JSON = envoy.JSONLogFormat(m.GetAccessLogFormat())
	} else {
		options.Format = m.GetAccessLogFormat()
	}
	return []*accesslogv3.AccessLog{envoy.AccessLog(options)}
}
