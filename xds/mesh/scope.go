package mesh

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
)

// SidecarScope decides what a workload sees: its namespace and the Sidecar that
// applies. Without a Sidecar (nil) it sees everything that is exported to its
// namespace. Scopes are comparable: equal scopes see the same.
type SidecarScope struct {
	Namespace string
	Sidecar   *Sidecar
}

// EgressListener is one egress listener of a scope; the catch-all if no Sidecar
// applies. Port is 0 if it serves all ports that no other listener has, and of a
// socket.
type EgressListener struct {
	Index int
	Port  int
	// Socket is the Unix domain socket that it listens on, "unix://" and the path;
	// empty for none.
	Socket string
	// Protocol is the protocol of the port, Unsupported if it has none.
	Protocol discovery.Protocol
	// Bind is the address as given, empty for the default.
	Bind string
	// Uncaptured listeners have a socket of their own even where traffic is
	// captured.
	Uncaptured bool
}

// TakesHTTP says whether the listener, by the protocol of its port, routes requests by
// HTTP.
func (l EgressListener) TakesHTTP() bool { return l.Protocol.IsHTTP() || l.IsHTTPProxy() }

// IsHTTPProxy says whether clients call the listener as their HTTP proxy. They name the
// host and the port that they want, so the listener carries services of all ports.
func (l EgressListener) IsHTTPProxy() bool { return l.Protocol == discovery.HTTPProxy }

// Egress are the egress listeners of the scope. There is always one.
func (s SidecarScope) Egress() []EgressListener {
	if s.Sidecar == nil || len(s.Sidecar.Spec.GetEgress()) == 0 {
		return []EgressListener{{}}
	}
	var out []EgressListener
	for i, e := range s.Sidecar.Spec.GetEgress() {
		l := EgressListener{
			Index: i, Port: int(e.GetPort().GetNumber()), Bind: e.GetBind(),
			Protocol:   discovery.ParseProtocol(e.GetPort().GetProtocol()),
			Uncaptured: e.GetCaptureMode() == networking.CaptureMode_NONE,
		}
		if e.GetPort() != nil && l.Port == 0 {
			l.Socket, l.Uncaptured = l.Bind, true
		}
		out = append(out, l)
	}
	return out
}

// restricted says whether the scope sees less than all that is exported to its
// namespace.
func (s SidecarScope) restricted() bool {
	return s.Sidecar != nil && len(s.Sidecar.Spec.GetEgress()) > 0
}

// egressHosts is the hosts list of an egress listener: "namespace/name" each,
// "*" for any namespace, "." for the own, "~" before it to exclude.
type egressHosts struct {
	include, exclude []importedHost
}

type importedHost struct {
	namespace string
	host      host.Name
}

func parseEgressHosts(hosts []string) egressHosts {
	var out egressHosts
	for _, h := range hosts {
		ns, name, _ := strings.Cut(strings.ToLower(h), "/")
		if ns == "~" {
			if name != "*" {
				out.exclude = append(out.exclude, importedHost{"*", host.Name(name)})
			}
			continue
		}
		if rest, excluded := strings.CutPrefix(ns, "~"); excluded {
			out.exclude = append(out.exclude, importedHost{rest, host.Name(name)})
			continue
		}
		out.include = append(out.include, importedHost{ns, host.Name(name)})
	}
	return out
}

// covers says whether the entry imports a name of a namespace into a scope of
// namespace own; match compares the name with the entry.
func (i importedHost) covers(own, namespace string, matches func(host.Name) bool) bool {
	switch i.namespace {
	case "*":
	case ".":
		if namespace != own {
			return false
		}
	default:
		if i.namespace != namespace {
			return false
		}
	}
	return matches(i.host)
}

// importRank says how an egress listener imports a host of a namespace. Of several
// namespaces that have one host, the higher rank wins.
type importRank int

const (
	notImported importRank = iota
	ofAny                  // by an entry for any namespace
	ofNamespace            // by an entry that names the namespace
)

// imports ranks a name of a namespace; matches compares it with the hosts of entries.
// Entries that exclude must cover the name.
func (e egressHosts) imports(own, namespace string, name host.Name, matches func(host.Name) bool) importRank {
	for _, x := range e.exclude {
		if x.covers(own, namespace, name.SubsetOf) {
			return notImported
		}
	}
	rank := notImported
	for _, i := range e.include {
		switch {
		case !i.covers(own, namespace, matches):
		case i.namespace != "*":
			return ofNamespace
		default:
			rank = ofAny
		}
	}
	return rank
}

// importsService ranks how an egress listener imports a service. A listener that the
// scope does not have, which a recorded question of another scope may name, imports
// nothing.
func (s SidecarScope) importsService(listener int, h host.Name, namespace string) importRank {
	if !s.restricted() {
		return ofAny
	}
	if listener >= len(s.Sidecar.egress) {
		return notImported
	}
	return s.Sidecar.egress[listener].imports(s.Namespace, namespace, h, h.SubsetOf)
}

// importsVirtualService says whether an egress listener imports a VirtualService: one
// of its hosts must overlap with the imported hosts.
func (s SidecarScope) importsVirtualService(listener int, vs *VirtualService) bool {
	return s.importsRoutes(listener, vs.Config.Namespace, vs.Hosts)
}

func (s SidecarScope) importsRoutes(listener int, namespace string, hosts []host.Name) bool {
	if !s.restricted() {
		return true
	}
	if listener >= len(s.Sidecar.egress) {
		return false
	}
	for _, h := range hosts {
		if s.Sidecar.egress[listener].imports(s.Namespace, namespace, h, h.Matches) != notImported {
			return true
		}
	}
	return false
}

// Ingress returns the ingress listeners of the scope's Sidecar, if any.
func (s SidecarScope) Ingress() []*networking.IstioIngressListener {
	if s.Sidecar == nil {
		return nil
	}
	return s.Sidecar.Spec.GetIngress()
}
