package generate

import (
	"iter"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// ResourceType describes a type of resources and how it is served.
type ResourceType struct {
	// Name is the short name: CDS, EDS, LDS, RDS, VHDS, SDS.
	Name      string
	Generator Generator
	// Inbound makes those resources of the type that belong to one sidecar's workload:
	// they may read its addresses and the services that it serves. They are few. They are
	// built for each proxy and inserted among those of its class. Affected is called only
	// with a Whole delta, and its reads are recorded. Nil means none.
	Inbound Generator
	// Server makes, as Inbound does for a sidecar, the resources of one gRPC server, by the names
	// that it requests; nil for none.
	Server Generator
	// SelfDiscovery: Inbound applies to sidecars and gateways with SelfDiscovery, instead
	// of to all sidecars.
	SelfDiscovery bool
	// Needed: each resource belongs to one proxy, even if others have an equal one. A
	// proxy has exactly those that its resources of other types need, and
	// Generator.Affected is not used. The type comes after those types.
	Needed bool
	// Alike: proxies for which a Needed type would be built from the same share one resource.
	Alike bool
	// Machine: Inbound applies to proxies of all types: its resources are for the agent of the
	// proxy's machine.
	Machine bool
	// Proxyless makes the resources of gRPC clients instead; nil for none.
	Proxyless Generator
	// Full: clients may request the whole type; see protocol.Type.
	Full bool
	// Otherwise makes another form of a resource, nil if it has none, see protocol.Type; nil for
	// none of the type.
	Otherwise func(name string) proto.Message
	// Turn says when a resource changes beside others of the type, see delivery.Type: the number of
	// its turn, and the form for now, nil for what it is to be; nil for changes at once.
	Turn func(has, wants *anypb.Any) (number int, interim proto.Message)
	// Needs are the types that resources of this type may need, and the kinds of need,
	// without names.
	Needs []resource.Need
	// Scoped: the resources live within those of another type, which has a need of kind
	// Within. Their names begin with the name of such a resource and a slash.
	Scoped bool
}

// Needing returns the types whose resources make a client request those of a type: they
// wait for these, or contain them.
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

// Own returns the generator of a workload's own resources for a proxy, nil for none.
func (t ResourceType) Own(proxy *discovery.Proxy) Generator {
	switch {
	case t.Needed && proxy.Type != discovery.Proxyless:
		return t.Generator
	case t.SelfDiscovery && !proxy.SelfDiscovery:
		return nil
	}
	return t.own(proxy.Type)
}

// own returns the generator of a workload's own resources for proxies of a type, nil for none.
func (t ResourceType) own(kind discovery.ProxyType) Generator {
	switch {
	case t.Machine:
		return t.Inbound
	case kind == discovery.Proxyless:
		return t.Server
	case kind == discovery.Sidecar, kind == discovery.Router && t.SelfDiscovery:
		return t.Inbound
	}
	return nil
}

// For returns the generator of shared resources for proxies of a type.
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
// types. It includes those of a workload's own resources, also of Needed ones.
func For(types []ResourceType, kind discovery.ProxyType) []Generator {
	var out []Generator
	for _, t := range types {
		out = append(out, shared{t.For(kind)})
		if own := t.own(kind); own != nil {
			out = append(out, own)
		}
		if t.Needed && kind != discovery.Proxyless {
			out = append(out, t.Generator)
		}
	}
	return out
}

// shared marks a generator of resources that the proxies of a class share.
type shared struct{ Generator }

// Unwrap returns the generator.
func (s shared) Unwrap() Generator { return s.Generator }

// nothing is the generator of a type that a proxy has no shared resources of.
type nothing struct{ typeURL string }

// TypeURL implements Generator.
func (n nothing) TypeURL() string { return n.typeURL }

// Affected implements Generator.
func (nothing) Affected(*mesh.View, mesh.Delta) iter.Seq[string] { return func(func(string) bool) {} }

// Build implements Generator.
func (nothing) Build(*mesh.View, string) (proto.Message, []resource.Need, error) {
	return nil, nil, nil
}
