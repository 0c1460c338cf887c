package explain

import (
	"strconv"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// isVia reports whether a text names a listener that applications call without the address of a
// service: the port of an HTTP proxy, or a Unix domain socket. Empty is allowed and names none.
func isVia(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return text == "" || names.IsUnix(text) || err == nil && port > 0
}

// asReceived returns the request as the listener of via gets it: in the form for an HTTP proxy,
// unless the listener is a socket for bytes.
func (e *explainer) asReceived(p *simulate.Proxy, r simulate.Request) simulate.Request {
	if port, err := strconv.Atoi(e.via); err == nil {
		r.Address, r.Port = listeningAt(p, port, loopback(e.view().Shape())), port
	} else {
		r.Address = e.via
	}
	if e.proxy.Type == discovery.Router {
		return r
	}
	if l, ok := e.socket(); ok && !l.TakesHTTP() && !e.http {
		if r.Protocol == simulate.HTTP {
			r.Protocol = simulate.TCP
		}
		return r
	}
	if e.sni == "" {
		r.Protocol, r.SNI = simulate.HTTP, ""
	}
	return r
}

// serverPort returns the port of the gateway's server that gets the request, 0 if the request
// comes through a socket.
func (e *explainer) serverPort() int {
	if e.via != "" && e.proxy.Type == discovery.Router {
		return 0
	}
	return e.port
}

// listeningPort is the port on which a gateway gets the request: the port of its servers,
// unless the gateway's service maps it to another.
func (e *explainer) listeningPort() int {
	if listeners := e.gatewayListeners(); len(listeners) > 0 {
		return listeners[0].Port
	}
	return e.port
}

// socket returns the egress listener of the socket that the request comes through; false if it
// comes through none.
func (e *explainer) socket() (mesh.EgressListener, bool) {
	for _, l := range e.view().Egress() {
		if l.Socket != "" && l.Socket == e.via {
			return l, true
		}
	}
	return mesh.EgressListener{}, false
}

// dialedText is the address and port that a client connects to.
func dialedText(r simulate.Request) string {
	if names.IsUnix(r.Address) {
		return r.Address
	}
	return names.HostPort(r.Address, uint32(r.Port))
}

// patternService returns the service of the most specific pattern that covers the host of the
// request and has its port, nil for none.
func (e *explainer) patternService() *mesh.ServiceRow {
	for pattern := range host.Name(e.host).Covers() {
		if s := e.view().Service(pattern); s != nil {
			if _, ok := s.Port(e.port); ok {
				return s
			}
		}
	}
	return nil
}
