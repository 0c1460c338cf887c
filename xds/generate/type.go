package generate

import (
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// ResourceType is a type of resources and how it is served.
type ResourceType struct {
	// Name is the short name: CDS, EDS, LDS, RDS, VHDS, SDS.
	Name      string
	Generator Generator
	// Inbound makes those resources of the type that are a workload's own, of a
	// sidecar: they may read its addresses and the services that it serves. They are
	// few, built for each proxy and inserted among those of its class. Affected is
	// asked with a Whole delta only, and what it reads is recorded. Nil for none.
	Inbound Generator
	// SelfDiscovery: Inbound is of the sidecars and gateways that discover themselves,
	// instead of all sidecars.
	SelfDiscovery bool
	// Needed: each resource is one proxy's own, also where others have the same. A proxy
	// has exactly those that its resources of other types need, and Generator is never
	// asked which there are. The type comes after those.
	Needed bool
	// Proxyless makes what gRPC clients get instead; nil for nothing.
	Proxyless Generator
	// Full types may be asked for as a whole; see protocol.Type.
	Full bool
	// Needs are the types that resources of this one may need, and in which way. They
	// have no names.
	Needs []resource.Need
	// Scoped types are of resources that live within those of another type, which has a
	// need of kind Within: their names begin with the names of these and a slash.
	Scoped bool
}

// Needing are the URLs of the types whose resources make a client request those of a
// type: they wait for these, or these live within them.
func Needing(types []ResourceType, typeURL string) []string {
	var out []string
	for _, t := range types {
		for _, n := range t.Needs {
			if n.TypeURL == typeURL && n.Requests() {
				out = append(out, t.Generator.TypeURL())
			}
		}
	}
	return out
}

// Own is the generator of what is the own of a proxy's workload, nil for none.
func (t ResourceType) Own(proxy *discovery.Proxy) Generator {
	switch {
	case t.Needed && proxy.Type != discovery.Proxyless:
		return t.Generator
	case t.SelfDiscovery && !proxy.SelfDiscovery, !t.own(proxy.Type):
		return nil
	}
	return t.Inbound
}

// own says whether proxies of a type may have own resources.
func (t ResourceType) own(kind discovery.ProxyType) bool {
	return t.Inbound != nil && (kind == discovery.Sidecar || kind == discovery.Router && t.SelfDiscovery)
}

// For is the generator for proxies of a type.
func (t ResourceType) For(kind discovery.ProxyType) Generator {
	switch {
	case kind != discovery.Proxyless && !t.Needed:
		return t.Generator
	case t.Proxyless == nil:
		return nothing{t.Generator.TypeURL()}
	}
	return t.Proxyless
}

// For returns the generators of all types for proxies of a type, in the order of the
// types. Those of a workload's own resources are among them.
func For(types []ResourceType, kind discovery.ProxyType) []Generator {
	var out []Generator
	for _, t := range types {
		out = append(out, t.For(kind))
		if t.own(kind) {
			out = append(out, t.Inbound)
		}
	}
	return out
}

// nothing is the generator of a type that some proxies have none of.
type nothing struct{ typeURL string }

// TypeURL implements Generator.
func (n nothing) TypeURL() string { return n.typeURL }

// Affected implements Generator.
func (nothing) Affected(*mesh.View, mesh.Delta) iter.Seq[string] { return func(func(string) bool) {} }

// Build implements Generator.
func (nothing) Build(*mesh.View, string) (proto.Message, []resource.Need, error) {
	return nil, nil, nil
}
