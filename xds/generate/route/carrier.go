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

// Carrier names the requests that a sidecar's route configuration is for: those to a
// port of an egress listener; or, with Only, those of them for addresses of one service
// without a declared protocol; or, with Whole, those that name both host and port, as
// clients of an HTTP proxy and of a Unix domain socket do.
type Carrier struct {
	// Listener carries the port. It is not set of the HTTP proxy of the mesh before At.
	Listener mesh.EgressListener
	// Port is 0 of a Whole carrier before At.
	Port int
	// Only is the host of that service, empty for the whole port.
	Only host.Name
	// Whole is the name of a route configuration for requests to all ports, empty for
	// others.
	Whole string
}

// WholeCarriers are the carriers of a sidecar for requests to all ports: the HTTP proxy
// of the mesh, and the egress listeners that are HTTP proxies or sockets.
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

// wholeName names the route configuration of an egress listener for requests to all
// ports, empty for another listener.
func wholeName(l mesh.EgressListener) string {
	switch {
	case l.Socket != "" && l.TakesHTTP():
		return l.Socket
	case l.Socket == "" && l.IsHTTPProxy() && l.Port != 0:
		return sidecarName(l.Port)
	}
	return ""
}

// At is the carrier of the requests to one port; false where it has none.
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

// CarrierOf tells a carrier by the name of its route configuration; false for
// another name, and for a port on which no listener routes by HTTP.
func CarrierOf(v *mesh.View, name string) (Carrier, bool) {
	for c := range WholeCarriers(v) {
		if c.Whole == name {
			return c, true
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

// exists says whether there is anything behind the carrier.
func (c Carrier) exists(v *mesh.View) bool {
	if c.Whole != "" {
		return true
	}
	if c.Only == "" {
		return v.CarriesHTTP(c.Listener, c.Port)
	}
	return c.Service(v, c.Only) != nil
}

// Service returns the service of a host that has a virtual host in the route
// configuration, nil for none. The listener must see it, and route its port by HTTP.
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

// detectedAt says whether HTTP on a port of a service is looked for at addresses
// that it has.
func detectedAt(v *mesh.View, s *mesh.ServiceRow, p discovery.Port) bool {
	return p.Protocol == discovery.Unsupported && (len(v.Shape().Addresses(s)) > 0 || len(s.Ranges()) > 0)
}

// DetectedPorts are the ports of a host on which a sidecar that captures traffic
// looks for HTTP at the addresses of its services.
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
