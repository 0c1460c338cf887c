package route

import (
	"iter"
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
)

// Carrier says which requests one route configuration of a sidecar serves. By default
// these are requests to a port of an egress listener. With Only, these are requests to
// the port at the addresses of one service, which does not declare a protocol. With
// Whole, these are requests that name both host and port, as clients of an HTTP proxy and
// of a Unix domain socket send them.
type Carrier struct {
	// Listener carries the port. Before At, it is not set for the mesh's HTTP proxy.
	Listener mesh.EgressListener
	// Port is the port. Before At, it is 0 for a Whole carrier.
	Port int
	// Only is the host of the one service, empty for the whole port.
	Only host.Name
	// Whole is the name of the route configuration if it serves all ports, else empty.
	Whole string
}

// WholeCarriers iterates over a sidecar's carriers for all ports: the mesh's HTTP proxy,
// and the egress listeners that are HTTP proxies or sockets.
func WholeCarriers(v *mesh.View) iter.Seq[Carrier] {
	return func(yield func(Carrier) bool) {
		if v.IsHTTPProxy() && !yield(Carrier{Whole: names.HTTPProxyRouteConfig}) {
			return
		}
		for _, l := range v.Egress() {
			if name := wholeName(l); name != "" && !yield(Carrier{Listener: l, Whole: name}) {
				return
			}
		}
	}
}

// wholeName returns the name of the route configuration of an egress listener that serves
// all ports, empty for other listeners.
func wholeName(l mesh.EgressListener) string {
	switch {
	case l.Socket != "" && l.TakesHTTP():
		return l.Socket
	case l.Socket == "" && l.IsHTTPProxy() && l.Port != 0:
		return NameOf(l, l.Port)
	}
	return ""
}

// At returns the carrier for requests to one port; false if it does not serve the port.
func (c Carrier) At(v *mesh.View, port int) (Carrier, bool) {
	if c.Whole == "" {
		return c, c.Port == port
	}
	c.Port = port
	if c.Whole != names.HTTPProxyRouteConfig {
		return c, true
	}
	var ok bool
	c.Listener, ok = ListenerOf(v, port)
	return c, ok && (c.Listener.Port == 0 || c.Listener.Protocol.IsHTTP())
}

// CarrierOf returns the carrier with this route configuration. It is false for other
// names, and for a port on which no listener routes HTTP.
func CarrierOf(v *mesh.View, name string) (Carrier, bool) {
	for c := range WholeCarriers(v) {
		if c.Whole == name {
			return c, true
		}
	}
	for _, l := range Beside(v) {
		if l.Routes == name {
			return Carrier{Listener: l, Port: l.Port}, l.Protocol.IsHTTP()
		}
	}
	only, text, detected := cutLast(name, ":")
	if !detected {
		only, text = "", name
	}
	number, err := strconv.ParseUint(text, 10, 16)
	c := Carrier{Port: int(number), Only: host.Name(only)}
	if err != nil || c.Port == 0 || c.name() != name {
		return Carrier{}, false
	}
	var ok bool
	c.Listener, ok = ListenerOf(v, c.Port)
	if !ok || c.Listener.Port != 0 && (c.Only != "" || !c.Listener.Protocol.IsHTTP()) {
		return Carrier{}, false
	}
	return c, true
}

func (c Carrier) name() string {
	if c.Only == "" {
		return sidecarName(c.Port)
	}
	return names.ServiceRouteConfig(string(c.Only), uint32(c.Port))
}

func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+len(separator):], true
}

// exists says whether the carrier has anything to route to.
func (c Carrier) exists(v *mesh.View) bool {
	if c.Whole != "" {
		return true
	}
	if c.Only == "" {
		return v.CarriesHTTP(c.Listener, c.Port)
	}
	return c.Service(v, c.Only) != nil
}

// Service returns the service whose host has a virtual host in the route configuration,
// nil for none. The listener must see the service, and route its port by HTTP.
func (c Carrier) Service(v *mesh.View, h host.Name) *mesh.ServiceRow {
	if c.Only != "" && c.Only != h {
		return nil
	}
	row := v.ServiceAt(c.Listener, h)
	if row == nil {
		return nil
	}
	p, ok := row.Port(c.Port)
	switch {
	case !ok || !v.Shape().RoutesHTTP(p.Protocol):
		return nil
	case c.Only != "" && !detectedAt(v, row, p):
		return nil
	}
	return row
}

// detectedAt says whether the proxy detects HTTP on a service's port at the service's own
// addresses, or at those of its workloads if it is headless.
func detectedAt(v *mesh.View, s *mesh.ServiceRow, p discovery.Port) bool {
	return p.Protocol == discovery.Unsupported && (len(v.Shape().Addresses(s)) > 0 || len(s.Ranges()) > 0 || s.Headless())
}

// DetectedPorts iterates over the ports of a host on which a capturing sidecar detects
// HTTP at the addresses of its services.
func DetectedPorts(v *mesh.View, row *mesh.HostRow) iter.Seq[int] {
	return func(yield func(int) bool) {
		if !v.Shape().Captures() {
			return
		}
		for _, s := range row.Services {
			for _, p := range s.Ports() {
				if detectedAt(v, s, p) && !yield(p.Number) {
					return
				}
			}
		}
	}
}
