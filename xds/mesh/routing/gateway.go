package routing

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
)

// Gateway is one Gateway object. It is never modified.
type Gateway struct {
	Config  *config.Config
	Spec    *networking.Gateway
	Servers []*Server
}

// NewGateway reads the hosts of the servers of a Gateway.
func NewGateway(c *config.Config) *Gateway {
	g := &Gateway{Config: c, Spec: c.Spec.(*networking.Gateway)}
	for _, spec := range g.Spec.GetServers() {
		s := &Server{Gateway: g, Spec: spec, Hosts: serverHosts(spec, c.Namespace)}
		for _, h := range s.Hosts {
			s.Names = append(s.Names, string(h.Name))
		}
		slices.Sort(s.Names)
		s.Names = slices.Compact(s.Names)
		g.Servers = append(g.Servers, s)
	}
	return g
}

// Name is "namespace/name", as VirtualServices refer to it.
func (g *Gateway) Name() string { return g.Config.Namespace + "/" + g.Config.Name }

// Server is one server of a Gateway, with its gateway. It is never modified.
type Server struct {
	Gateway *Gateway
	Spec    *networking.Server
	Hosts   []ServerHost
	// Names are the names of its hosts, each once, in order: what the clients of a server
	// of TLS ask for. "*" is any, and none.
	Names []string
}

// ServerHost is a host of a server, and the namespace that VirtualServices for
// it must be of, "*" for any.
type ServerHost struct {
	Namespace string
	Name      host.Name
}

// serverHosts reads the hosts of a server of a Gateway in a namespace.
func serverHosts(spec *networking.Server, own string) []ServerHost {
	var out []ServerHost
	for _, text := range spec.GetHosts() {
		namespace, name, ok := strings.Cut(text, "/")
		if !ok {
			namespace, name = "*", text
		}
		if namespace == "." {
			namespace = own
		}
		out = append(out, ServerHost{namespace, host.Name(strings.ToLower(name))})
	}
	return out
}

// Meet is the narrower of the host and a host of a VirtualService, where one covers
// the other.
func (o ServerHost) Meet(h host.Name) (host.Name, bool) {
	switch {
	case h.SubsetOf(o.Name):
		return h, true
	case o.Name.SubsetOf(h):
		return o.Name, true
	}
	return "", false
}

// Admits says whether the host is for VirtualServices of a namespace.
func (o ServerHost) Admits(vs *VirtualService) bool {
	return o.Namespace == "*" || o.Namespace == vs.Config.Namespace
}

// Port is the number of its port.
func (s *Server) Port() int { return int(s.Spec.GetPort().GetNumber()) }

// Protocol is that of its port.
func (s *Server) Protocol() discovery.Protocol {
	return discovery.ParseProtocol(s.Spec.GetPort().GetProtocol())
}

// ServerKind is what a server does with its connections.
type ServerKind int

// The kinds of servers. The protocol decides, and the mode of tls.
const (
	NotServed       ServerKind = iota // UDP, or TLS without settings
	HTTP                              // routes requests in plaintext
	Bytes                             // passes on what comes in plaintext
	HTTPS                             // ends TLS and routes requests
	TLSBytes                          // ends TLS and passes on what is in it
	Passthrough                       // passes TLS on, by the names that clients ask for
	AutoPassthrough                   // passes TLS on to the cluster that clients ask for
)

// IsTLS says whether clients begin with the handshake of TLS.
func (k ServerKind) IsTLS() bool { return k >= HTTPS }

// EndsTLS says whether the server needs a certificate.
func (k ServerKind) EndsTLS() bool { return k == HTTPS || k == TLSBytes }

// RoutesHTTP says whether http routes are for the server.
func (k ServerKind) RoutesHTTP() bool { return k == HTTP || k == HTTPS }

// Kind is what the server does.
func (s *Server) Kind() ServerKind {
	p, tls := s.Protocol(), s.Spec.GetTls()
	switch {
	case !p.IsServed():
		return NotServed
	case p.IsHTTP():
		return HTTP
	case tls == nil && p.IsTLS():
		return NotServed
	case tls == nil:
		return Bytes
	case tls.GetMode() == networking.ServerTLSSettings_PASSTHROUGH:
		return Passthrough
	case tls.GetMode() == networking.ServerTLSSettings_AUTO_PASSTHROUGH:
		return AutoPassthrough
	case p == discovery.HTTPS:
		return HTTPS
	}
	return TLSBytes
}

// Mode is how it takes TLS. It has a meaning where the server has TLS settings.
func (s *Server) Mode() networking.ServerTLSSettings_TLSmode { return s.Spec.GetTls().GetMode() }

// RoutesTCP says whether tcp routes are for the server: it takes connections as bytes, in
// plaintext or after it has ended their TLS.
func (s *Server) RoutesTCP() bool { return s.Kind() == Bytes || s.Kind() == TLSBytes }

// PassesTLS says whether the server passes TLS on as it comes, by the names that clients ask
// for and tls routes.
func (s *Server) PassesTLS() bool { return s.Kind() == Passthrough }

// PassesServices says whether the server passes TLS on to the services whose clusters
// clients ask for by name (names.SNICluster), without routes.
func (s *Server) PassesServices() bool { return s.Kind() == AutoPassthrough }

// AsksForSecret says whether the TLS of the server names a stored secret, as a credential or
// by the name of its authorities.
func (s *Server) AsksForSecret(name string) bool {
	const roots = "-cacert"
	base := func(name string) string { return strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], roots) }
	tls := s.Spec.GetTls()
	return slices.ContainsFunc(append([]string{tls.GetCredentialName(), tls.GetCaCertCredentialName()}, tls.GetCredentialNames()...), func(credential string) bool {
		return credential != "" && base(credential) == base(name)
	})
}

// HasHost says whether a host of the server covers one, of any namespace.
func (s *Server) HasHost(h host.Name) bool {
	return slices.ContainsFunc(s.Hosts, func(o ServerHost) bool { return h.SubsetOf(o.Name) })
}

// Serves says whether a host of the server is for a VirtualService and overlaps with a
// host of it.
func (s *Server) Serves(vs *VirtualService, h host.Name) bool {
	return slices.ContainsFunc(s.Hosts, func(o ServerHost) bool {
		_, meets := o.Meet(h)
		return meets && o.Admits(vs)
	})
}
