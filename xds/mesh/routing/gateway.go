package routing

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache/kube/ingress"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
)

// Gateway is one Gateway object. It is never modified.
type Gateway struct {
	Config  *config.Config
	Spec    *networking.Gateway
	Servers []*Server
	// Derived is set if it is derived from an Ingress, and not one that users wrote.
	Derived *ingress.Derived
}

// Key returns the key of the object that users wrote: the Gateway, or the Ingress that it is derived
// from.
func (g *Gateway) Key() config.Key {
	if g.Derived != nil {
		return g.Derived.From[0]
	}
	return g.Config.Key()
}

// NewGateway parses the hosts of a Gateway's servers. It leaves out those whose fields are
// refused, since other namespaces own them. A server may have none left: it serves nothing. derived
// is what becomes the Derived of the Gateway.
func NewGateway(c *config.Config, refused map[string]bool, derived *ingress.Derived) *Gateway {
	g := &Gateway{Config: c, Spec: c.Spec.(*networking.Gateway), Derived: derived}
	for i, spec := range g.Spec.GetServers() {
		s := &Server{Gateway: g, Spec: spec, Hosts: serverHosts(spec, c.Namespace, func(k int) bool {
			return refused[fmt.Sprintf("spec.servers[%d].hosts[%d]", i, k)]
		})}
		for k, h := range s.Hosts {
			s.Hosts[k].Derived = derived != nil
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
	// Names are the names of its hosts, each once, in order: the SNI names of the clients
	// of a TLS server. "*" matches any name, and none.
	Names []string
}

// ServerHost is a host of a server, and the namespace to which its VirtualServices must
// belong, "*" for any.
type ServerHost struct {
	Index     int // in the server's hosts
	Namespace string
	Name      host.Name
	// Derived says that the server is one of an Ingress: it has no other routes than those of
	// Ingresses.
	Derived bool
}

// serverHosts parses the hosts of a server of a Gateway in namespace own.
func serverHosts(spec *networking.Server, own string, refused func(int) bool) []ServerHost {
	var out []ServerHost
	for k, text := range spec.GetHosts() {
		if refused(k) {
			continue
		}
		namespace, name, ok := strings.Cut(text, "/")
		if !ok {
			namespace, name = "*", text
		}
		if namespace == "." {
			namespace = own
		}
		out = append(out, ServerHost{Index: k, Namespace: namespace, Name: host.Name(strings.ToLower(name))})
	}
	return out
}

// Overlap returns the narrower of the host and a VirtualService's host; false if neither
// covers the other.
func (o ServerHost) Overlap(h host.Name) (host.Name, bool) {
	switch {
	case h.SubsetOf(o.Name):
		return h, true
	case o.Name.SubsetOf(h):
		return o.Name, true
	}
	return "", false
}

// Admits says whether a VirtualService may use the host: by its namespace, and because users cannot
// refer to what is derived from an Ingress.
func (o ServerHost) Admits(vs *VirtualService) bool {
	if o.Derived && vs.Derived == nil {
		return false
	}
	return o.Namespace == "*" || o.Namespace == vs.Config.Namespace
}

// has says whether the server has exactly this name.
func (s *Server) has(name string) bool {
	_, found := slices.BinarySearch(s.Names, name)
	return found
}

// Narrower iterates over the names that cover a name more exactly than the server's own do, the
// most exact first: a TLS server that has one of these gets the clients that ask for the name.
func (s *Server) Narrower(name host.Name) iter.Seq[string] {
	return func(yield func(string) bool) {
		for n := range name.Covers() {
			if s.has(string(n)) || !yield(string(n)) {
				return
			}
		}
	}
}

// covers says whether a host of the server covers a name.
func (s *Server) covers(name host.Name) bool {
	return slices.ContainsFunc(s.Names, func(own string) bool { return name.SubsetOf(host.Name(own)) })
}

// Port is the number of the server's port.
func (s *Server) Port() int { return int(s.Spec.GetPort().GetNumber()) }

// Protocol is the protocol of the server's port.
func (s *Server) Protocol() discovery.Protocol {
	return discovery.ParseProtocol(s.Spec.GetPort().GetProtocol())
}

// ServerKind says what a server does with its connections.
type ServerKind int

// The kinds of servers. The protocol and the TLS mode decide.
const (
	NotServed       ServerKind = iota // UDP, TLS without settings, or no hosts
	HTTP                              // routes requests in plaintext
	Bytes                             // forwards TCP in plaintext
	HTTPS                             // terminates TLS and routes requests
	TLSBytes                          // terminates TLS and forwards TCP
	Passthrough                       // passes TLS on, by SNI name and tls routes
	AutoPassthrough                   // passes TLS on to the cluster that the SNI names
)

// IsTLS says whether clients begin with a TLS handshake.
func (k ServerKind) IsTLS() bool { return k >= HTTPS }

// TerminatesTLS says whether the server terminates TLS, and so needs a certificate.
func (k ServerKind) TerminatesTLS() bool { return k == HTTPS || k == TLSBytes }

// RoutesHTTP says whether the server uses http routes.
func (k ServerKind) RoutesHTTP() bool { return k == HTTP || k == HTTPS }

// Kind says what the server does.
func (s *Server) Kind() ServerKind {
	p, tls := s.Protocol(), s.Spec.GetTls()
	switch {
	case !p.IsServed() || len(s.Hosts) == 0:
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

// Mode is the server's TLS mode. It means something only if the server has TLS settings.
func (s *Server) Mode() networking.ServerTLSSettings_TLSmode { return s.Spec.GetTls().GetMode() }

// RoutesTCP says whether the server uses tcp routes: it forwards TCP in plaintext, or
// after it has terminated TLS.
func (s *Server) RoutesTCP() bool { return s.Kind() == Bytes || s.Kind() == TLSBytes }

// PassesTLS says whether the server passes TLS on unchanged, by SNI name and tls routes.
func (s *Server) PassesTLS() bool { return s.Kind() == Passthrough }

// PassesServices says whether the server passes TLS on to services without routes:
// clients put the name of a cluster (names.SNICluster) into the SNI.
func (s *Server) PassesServices() bool { return s.Kind() == AutoPassthrough }

// AsksForSecret says whether the server's TLS settings name a stored secret, as a
// credential or, with the suffix "-cacert", as its CA.
func (s *Server) AsksForSecret(name string) bool {
	const roots = "-cacert"
	base := func(name string) string { return strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], roots) }
	tls := s.Spec.GetTls()
	return slices.ContainsFunc(append([]string{tls.GetCredentialName(), tls.GetCaCertCredentialName()}, tls.GetCredentialNames()...), func(credential string) bool {
		return credential != "" && base(credential) == base(name)
	})
}

// HasHost says whether a host of the server, in any namespace, covers the given host.
func (s *Server) HasHost(h host.Name) bool {
	return slices.ContainsFunc(s.Hosts, func(o ServerHost) bool { return h.SubsetOf(o.Name) })
}

// Serves says whether a host of the server admits the VirtualService and overlaps with
// its host h.
func (s *Server) Serves(vs *VirtualService, h host.Name) bool {
	return slices.ContainsFunc(s.Hosts, func(o ServerHost) bool {
		_, meets := o.Overlap(h)
		return meets && o.Admits(vs)
	})
}
