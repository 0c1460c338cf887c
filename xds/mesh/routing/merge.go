package routing

import (
	"cmp"
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/names"
)

// MergedGateway is all Gateways of one workload, the oldest first: the listeners of their
// servers, and the servers that have none. It is never modified. (Istio: mergeGateways.)
type MergedGateway struct {
	Gateways []*Gateway
	// Listeners stand in the order of their first servers.
	Listeners []*Listener
	// Routes are the route configurations of their servers, in the same order. Indexed has
	// made them.
	Routes []*Routes
	// Lost are the servers that cannot share the listener that they ask for.
	Lost []Lost

	listeners map[string]*Listener // by name
	routes    map[string]*Routes
}

// Listener finds a listener by its name, nil for none.
func (m *MergedGateway) Listener(name string) *Listener {
	if m == nil {
		return nil
	}
	return m.listeners[name]
}

// RoutesNamed finds a route configuration by its name, nil for none.
func (m *MergedGateway) RoutesNamed(name string) *Routes {
	if m == nil {
		return nil
	}
	return m.routes[name]
}

// Routes are the servers of one port that share a route configuration: all of plaintext, or
// one that ends TLS. There is at least one. It is never modified.
type Routes struct {
	Name    string
	Servers []*Server
}

// Port is the port that virtual hosts are named for, and that clients know: that of the
// first server.
func (r *Routes) Port() int { return r.Servers[0].Port() }

// Listener is the servers that have an address and a port: one for bytes in plaintext,
// several of HTTP, or several of TLS. The names that clients ask for tell those of TLS
// apart. Servers of HTTP that are younger than one of TLS have what comes in plaintext.
type Listener struct {
	// Bind is the address, or a Unix domain socket, whose Port is 0.
	Bind string
	// Port is where the proxy listens. Servers may have another, as TargetPorts say.
	Port int
	// Servers are in precedence. There is at least one.
	Servers []*Server
	// Gateways are those with a server that asks for the address and port, and may have lost
	// it.
	Gateways []*Gateway

	names map[string]*Server // of TLS, by the names of their hosts
}

// Lost is a server without a listener, and the server that comes first.
type Lost struct {
	Server, To *Server
	// Name is the host of both, for which both would end TLS or pass it on; empty where
	// servers of their kinds do not share a port.
	Name string
}

// MergeGateways puts gateways together, on proxies that take wildcard for the address of a
// server that names none, and listen on other ports than those of some servers. Of servers that cannot share a listener the first has it, and the
// other has nothing, even where only one of its hosts is in the way.
func MergeGateways(gateways []*Gateway, wildcard string, ports TargetPorts) *MergedGateway {
	m := &MergedGateway{Gateways: gateways}
	slices.SortFunc(m.Gateways, func(a, b *Gateway) int { return config.Compare(a.Config, b.Config) })
	type place struct {
		bind string
		port int
	}
	listeners := map[place]*Listener{}
	for _, g := range m.Gateways {
		for _, s := range g.Servers {
			if s.Kind() == NotServed {
				continue
			}
			at := place{cmp.Or(s.Spec.GetBind(), wildcard), ports.Of(s.Port())}
			l := listeners[at]
			if l == nil {
				l = &Listener{Bind: at.bind, Port: at.port}
				listeners[at] = l
				m.Listeners = append(m.Listeners, l)
			}
			if len(l.Gateways) == 0 || l.Gateways[len(l.Gateways)-1] != g {
				l.Gateways = append(l.Gateways, g)
			}
			if lost, ok := l.add(s); !ok {
				m.Lost = append(m.Lost, lost)
			}
		}
	}
	return m
}

// Indexed has listeners and routes be found by their names, and returns the merged gateway. It
// takes over those of another, of an earlier time, that are equal to its own: what has not
// changed is then told by ==. The other may be nil.
func (m *MergedGateway) Indexed(before *MergedGateway) *MergedGateway {
	m.index()
	if before != nil {
		m.share(before)
	}
	return m
}

func (m *MergedGateway) index() {
	m.listeners, m.routes = make(map[string]*Listener, len(m.Listeners)), map[string]*Routes{}
	for _, l := range m.Listeners {
		m.listeners[l.Name()] = l
		for _, s := range l.Servers {
			if !s.Kind().RoutesHTTP() {
				continue
			}
			name := l.RoutesOf(s)
			r := m.routes[name]
			if r == nil {
				r = &Routes{Name: name}
				m.routes[name] = r
				m.Routes = append(m.Routes, r)
			}
			r.Servers = append(r.Servers, s)
		}
	}
}

func (m *MergedGateway) share(with *MergedGateway) {
	for i, l := range m.Listeners {
		if o := with.listeners[l.Name()]; o != nil && slices.Equal(o.Servers, l.Servers) && slices.Equal(o.Gateways, l.Gateways) {
			m.Listeners[i], m.listeners[l.Name()] = o, o
		}
	}
	for i, r := range m.Routes {
		if o := with.routes[r.Name]; o != nil && slices.Equal(o.Servers, r.Servers) {
			m.Routes[i], m.routes[r.Name] = o, o
		}
	}
}

// Name is the name of the listener.
func (l *Listener) Name() string { return names.Listener(l.Bind, uint32(l.Port)) }

// RoutesOf names the routes of a server of the listener. Those of plaintext share them.
func (l *Listener) RoutesOf(s *Server) string {
	port, bind := s.Spec.GetPort(), s.Spec.GetBind()
	if s.Kind() == HTTPS {
		of := s.Gateway.Config
		return names.GatewayHTTPSRouteConfig(port.GetNumber(), port.GetName(), of.Name, of.Namespace, bind)
	}
	return names.GatewayHTTPRouteConfig(uint32(l.Port), bind)
}

// add has a server share the listener. It is false where the server cannot.
func (l *Listener) add(s *Server) (Lost, bool) {
	if len(l.Servers) > 0 && !shares(l.Servers[0].Kind(), s.Kind()) {
		return Lost{Server: s, To: l.Servers[0]}, false
	}
	if s.Kind().IsTLS() {
		for _, name := range s.Names {
			if to := l.names[name]; to != nil {
				return Lost{s, to, name}, false
			}
		}
		if l.names == nil {
			l.names = map[string]*Server{}
		}
		for _, name := range s.Names {
			l.names[name] = s
		}
	}
	l.Servers = append(l.Servers, s)
	return Lost{}, true
}

// shares says whether a server may have the listener whose first server is of a kind.
func shares(first, s ServerKind) bool {
	return first != Bytes && s != Bytes && (first != HTTP || s == HTTP)
}

// Holder is the server of TLS that has a name as a host, nil for none.
func (l *Listener) Holder(name string) *Server { return l.names[name] }

// IsTLS says whether a server of the listener is of TLS.
func (l *Listener) IsTLS() bool { return l.Servers[0].Kind().IsTLS() }
