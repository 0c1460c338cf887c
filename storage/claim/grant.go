package claim

import (
	"slices"

	"github.com/portolan-mesh/portolan/storage/host"
)

// HostGrant lets objects of other namespaces speak for hosts that its own namespace owns. It
// has the shape of the ReferenceGrant of the Gateway API.
type HostGrant struct {
	// From are the objects that may speak for the hosts: those that one of the entries names.
	From []From `json:"from,omitempty"`
	// To are the hosts.
	To []To `json:"to,omitempty"`
}

// From names the objects of a kind in a namespace.
type From struct {
	// Kind is as in the objects, such as VirtualService.
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// To names hosts.
type To struct {
	// Hosts are names and patterns such as *.shop.example, or * for all hosts of the namespace.
	Hosts []string `json:"hosts,omitempty"`
}

// Allows says whether the grant lets objects of a kind in a namespace speak for a host.
func (g *HostGrant) Allows(kind, namespace string, h host.Name) bool {
	return slices.Contains(g.From, From{kind, namespace}) && g.Names(h)
}

// Names says whether the hosts of the grant cover a host.
func (g *HostGrant) Names(h host.Name) bool {
	return slices.ContainsFunc(g.To, func(to To) bool { return Covers(to.Hosts, h) })
}

// Covers says whether one of some patterns covers a host, or a whole pattern of hosts.
func Covers(patterns []string, h host.Name) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return h.SubsetOf(host.Name(p)) })
}
