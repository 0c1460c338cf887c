// Package claim says which hosts an object speaks for, and when the namespace that owns a
// host consents to that.
//
//	Of(object) -> Claim, with the owners of services -> Crossing, without Allows or Entitled -> a fault
package claim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
)

// A Claim is a host, or a pattern of hosts, that an object speaks for: what it says shapes
// requests for that host.
type Claim struct {
	// Field is the path of the host in the object.
	Field string
	// Host is complete and in lower case.
	Host host.Name
	// Within is the namespace whose routes alone a Gateway takes for the host; empty for all.
	Within string
	// Open is true of a pattern of a Gateway: it opens a port for the routes of others, and
	// takes no host from anybody.
	Open bool
}

// kinds are the plural names of the kinds whose objects speak for hosts.
var kinds = []string{"destinationrules", "gateways", "ingresses", "serviceentries", "virtualservices"}

// Kinds returns the plural names of the kinds whose objects speak for hosts, sorted.
//
// A Sidecar is none of them: its ingress names no host, and what its egress imports are reads
// of the workloads that it selects, which are of its own namespace.
func Kinds() []string { return slices.Clone(kinds) }

// Speaks says whether objects of a kind, by its plural name, speak for hosts.
func Speaks(plural string) bool { return slices.Contains(kinds, plural) }

// Of returns the hosts that an object speaks for, in the order of its fields. A VirtualService
// without hosts has none: whoever delegates to it speaks for theirs. A nil object has none.
func Of(c *config.Config) []Claim {
	if c == nil {
		return nil
	}
	var out []Claim
	add := func(field, name string) {
		out = append(out, Claim{Field: field, Host: host.Name(strings.ToLower(string(host.Resolve(name, c.Namespace, c.Domain))))})
	}
	switch spec := c.Spec.(type) {
	case *networking.VirtualService:
		for i, name := range spec.GetHosts() {
			add(fmt.Sprintf("spec.hosts[%d]", i), name)
		}
	case *networking.DestinationRule:
		add("spec.host", spec.GetHost())
	case *networking.ServiceEntry:
		for i, name := range spec.GetHosts() {
			out = append(out, Claim{Field: fmt.Sprintf("spec.hosts[%d]", i), Host: host.Name(strings.ToLower(name))})
		}
	case *networkingv1.IngressSpec:
		for i, rule := range spec.Rules {
			h := host.Name(strings.ToLower(cmp.Or(rule.Host, "*")))
			out = append(out, Claim{Field: fmt.Sprintf("spec.rules[%d].host", i), Host: h, Open: h == "*"})
		}
	case *networking.Gateway:
		for i, server := range spec.GetServers() {
			for k, name := range server.GetHosts() {
				field := fmt.Sprintf("spec.servers[%d].hosts[%d]", i, k)
				namespace, name, qualified := strings.Cut(name, "/")
				if !qualified {
					namespace, name = "", namespace
				}
				h := host.Name(strings.ToLower(name))
				out = append(out, Claim{Field: field, Host: h, Within: within(namespace, c.Namespace), Open: h.IsWildcard()})
			}
		}
	}
	return out
}

// within returns the namespace that a host of a Gateway is narrowed to, empty for none.
func within(written, own string) string {
	switch written {
	case ".":
		return own
	case "*":
		return ""
	}
	return written
}

// An Owner is the namespace that owns a host: the oldest service of that name is there.
type Owner struct {
	Host      host.Name
	Namespace string
	// Object is the object that the service is made from. It has no name if a registry made
	// the service from something else.
	Object config.Key
}

// String names the object, or says that a registry made the service.
func (o Owner) String() string {
	if o.Object.Name == "" {
		return "a service of a registry"
	}
	return o.Object.String()
}

// A Crossing is a claim for a host that another namespace owns.
type Crossing struct {
	Claim
	Owner Owner
}

// Crosses says whether a claim of an object in a namespace is a Crossing. A Gateway does not
// speak for a host for which it takes only the owner's routes, nor for those of its patterns.
func (c Claim) Crosses(namespace string, o Owner) bool {
	return o.Namespace != namespace && c.Within != o.Namespace && !c.Open && o.Host.SubsetOf(c.Host)
}
