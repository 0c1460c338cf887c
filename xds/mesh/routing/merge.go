package routing

import (
	"cmp"
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/names"
)

// MergedGateway merges all Gateways of one workload: the listeners of their servers, and
// the servers without one. It is never modified. (Istio: mergeGateways.)
type MergedGateway struct {
	Gateways []*Gateway
	// Listeners are in the order of their first servers.
	Listeners []*Listener
	// Routes are the route configurations of the listeners' servers, in the same order.
	// Indexed sets them.
	Routes []*Routes
	// Lost are the servers that cannot share the listener for their address and port.
	Lost []Lost

	listeners map[string]*Listener // by name
	routes    map[string]*Routes
}

// Listener returns the listener with a name, nil for none.
func (m *MergedGateway) Listener(name string) *Listener {
	if m == nil {
		return nil
	}
	return m.listeners[name]
}

// RoutesNamed returns the route configuration with a name, nil for none.
func (m *MergedGateway) RoutesNamed(name string) *Routes {
	if m == nil {
		return nil
	}
	return m.routes[name]
}

// Routes are the servers of one port that share a route configuration: all plaintext HTTP
// servers, or one that terminates TLS. There is at least one. It is never modified.
type Routes struct {
	Name    string
	Servers []*Server
	// Elsewhere are the names of the other TLS servers of the listener, if the server is one:
	// a request with one of these came on the wrong connection. They are sorted.
	Elsewhere []string
}

// Port is the port that clients know and that the names of virtual hosts contain: the
// first server's.
func (r *Routes) Port() int { return r.Servers[0].Port() }

// Owns says whether clients that ask for a name get to these routes. Where TLS servers
// share a listener, the SNI name chooses: the server with the most specific name.
func (r *Routes) Owns(name host.Name) bool {
	for n := range r.Servers[0].Narrower(name) {
		if _, elsewhere := slices.BinarySearch(r.Elsewhere, n); elsewhere {
			return false
		}
	}
	return true
}

// Listener holds the servers of one address and port: one that forwards plaintext TCP,
// several of HTTP, or several of TLS. SNI names distinguish the TLS servers. HTTP servers
// that are younger than a TLS server get the plaintext connections.
type Listener struct {
	// Bind is the address, or a Unix domain socket; then Port is 0.
	Bind string
	// Port is where the proxy listens. The servers' own port may differ, see TargetPorts.
	Port int
	// Servers are in precedence. There is at least one.
	Servers []*Server
	// Gateways are those with a server for the address and port, even one in Lost.
	Gateways []*Gateway

	names map[string]*Server // the TLS servers, by the names of their hosts
}

// Lost is a server without a listener, and the earlier server that has it.
type Lost struct {
	Server, To *Server
	// Name is the host for which both would handle TLS. It is empty if their kinds cannot
	// share a port.
	Name string
}

// MergeGateways merges the gateways of a proxy. wildcard is the address of servers that
// name none, and ports maps the ports of servers to those on which the proxy listens. If
// two servers cannot share a listener, the first gets it. The other gets nothing, even if
// only one of its hosts is in conflict.
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

// Indexed makes listeners and routes available by name, and returns m. It reuses the
// equal parts of an earlier merged gateway, so that == shows what is unchanged. before
// may be nil.
func (m *MergedGateway) Indexed(before *MergedGateway) *MergedGateway {
	m.index()
	if before != nil {
		m.reuseListeners(before)
	}
	return m
}

func (m *MergedGateway) index() {
	m.listeners, m.routes = make(map[string]*Listener, len(m.Listeners)), map[string]*Routes{}
	for _, l := range m.Listeners {
		m.listeners[l.Name()] = l
		names := l.tlsNames()
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
				r.Elsewhere = s.elsewhere(names)
			}
			r.Servers = append(r.Servers, s)
		}
	}
}

func (m *MergedGateway) reuseListeners(with *MergedGateway) {
	for i, l := range m.Listeners {
		if o := with.listeners[l.Name()]; o != nil && slices.Equal(o.Servers, l.Servers) && slices.Equal(o.Gateways, l.Gateways) {
			m.Listeners[i], m.listeners[l.Name()] = o, o
		}
	}
	for i, r := range m.Routes {
		if o := with.routes[r.Name]; o != nil && slices.Equal(o.Servers, r.Servers) && slices.Equal(o.Elsewhere, r.Elsewhere) {
			m.Routes[i], m.routes[r.Name] = o, o
		}
	}
}

// Name is the name of the listener.
func (l *Listener) Name() string { return names.Listener(l.Bind, uint32(l.Port)) }

// manyNames is how many names of other servers a server lists one by one.
const manyNames = 100

// tlsNames returns the names of the TLS servers of the listener, in order. Those of
// AUTO_PASSTHROUGH are no hosts of requests.
func (l *Listener) tlsNames() []string {
	out := make([]string, 0, len(l.names))
	for name, of := range l.names {
		if of.Kind() != AutoPassthrough {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// allOthers are the names beside a server that covers none of many others.
var allOthers = []string{"*"}

// elsewhere returns those of the names of TLS servers that are not of s. Where there are many,
// all lists together would grow with the square of their number: then "*" stands for those
// that s does not cover, and so for hosts of nobody.
func (s *Server) elsewhere(names []string) []string {
	if s.Kind() != HTTPS {
		return nil
	}
	many := len(names)-len(s.Names) > manyNames && !s.has("*")
	if many && !slices.ContainsFunc(s.Names, func(name string) bool { return host.Name(name).IsWildcard() }) {
		return allOthers
	}
	var out []string
	if many {
		out = append(out, allOthers...)
	}
	for _, name := range names {
		if !s.has(name) && (!many || name != "*" && s.covers(host.Name(name))) {
			out = append(out, name)
		}
	}
	return out
}

// RoutesOf returns the name of a server's route configuration. The plaintext servers of
// the listener share one.
func (l *Listener) RoutesOf(s *Server) string {
	port, bind := s.Spec.GetPort(), s.Spec.GetBind()
	if s.Kind() == HTTPS {
		of := s.Gateway.Config
		return names.GatewayHTTPSRouteConfig(port.GetNumber(), port.GetName(), of.Name, of.Namespace, bind)
	}
	return names.GatewayHTTPRouteConfig(uint32(l.Port), bind)
}

// add lets a server share the listener; false if it cannot.
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

// shares says whether a server of kind s may join a listener whose first server is of
// kind first.
func shares(first, s ServerKind) bool {
	return first != Bytes && s != Bytes && (first != HTTP || s == HTTP)
}

// ServerNamed returns the TLS server that has a name as a host, nil for none.
func (l *Listener) ServerNamed(name string) *Server { return l.names[name] }

// IsTLS says whether the listener has a TLS server.
func (l *Listener) IsTLS() bool { return l.Servers[0].Kind().IsTLS() }
