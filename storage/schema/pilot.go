package schema

import (
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/config"
)

const (
	networkingGroup = "networking.istio.io"
	securityGroup   = "security.istio.io"
)

// The canonical kinds of the Pilot schemas: those under which stores and caches
// keep objects, whatever version they were written in. They are never written.
var (
	DestinationRule       = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "DestinationRule"}
	EnvoyFilter           = config.GroupVersionKind{Group: networkingGroup, Version: "v1alpha3", Kind: "EnvoyFilter"}
	Gateway               = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "Gateway"}
	ServiceEntry          = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "ServiceEntry"}
	Sidecar               = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "Sidecar"}
	VirtualService        = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "VirtualService"}
	WorkloadEntry         = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "WorkloadEntry"}
	WorkloadGroup         = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "WorkloadGroup"}
	AuthorizationPolicy   = config.GroupVersionKind{Group: securityGroup, Version: "v1", Kind: "AuthorizationPolicy"}
	PeerAuthentication    = config.GroupVersionKind{Group: securityGroup, Version: "v1", Kind: "PeerAuthentication"}
	RequestAuthentication = config.GroupVersionKind{Group: securityGroup, Version: "v1", Kind: "RequestAuthentication"}
)

// Pilot returns the kinds that configure the mesh, in the order of their groups
// and names.
func Pilot() Set {
	return NewSet(
		destinationRule(), envoyFilter(), gateway(), serviceEntry(), sidecar(),
		virtualService(), workloadEntry(), workloadGroup(),
		authorizationPolicy(), peerAuthentication(), requestAuthentication(),
	)
}

// definition is what the file of a kind says of it; M is its message.
type definition[M proto.Message] struct {
	kind              config.GroupVersionKind
	plural, shortName string
	newSpec           func() M
	// served are the fields of the spec that have an effect; stored says that the
	// whole kind is kept and has none yet.
	served fields
	stored bool
	// check finds the faults of a spec, at the path "spec".
	check func(checker, M)
}

// schema makes the Schema of a namespaced kind.
func (d definition[M]) schema() *Schema {
	return &Schema{
		GroupVersionKind: d.kind,
		Versions:         versions(d.kind),
		Plural:           d.plural,
		Singular:         lower(d.kind.Kind),
		ShortNames:       []string{d.shortName},
		NewSpec:          func() proto.Message { return d.newSpec() },
		Validate:         d.validate,
	}
}

func (d definition[M]) validate(c *config.Config) ([]string, error) {
	r := &report{}
	r.meta(c, false)
	spec, ok := c.Spec.(M)
	if !ok || !spec.ProtoReflect().IsValid() {
		r.at("spec").fail("is missing: %s needs one", d.kind.Kind)
		return r.warnings, r.faults.ErrorOrNil()
	}
	d.check(r.at("spec"), spec)
	if d.stored {
		r.warnings = append(r.warnings, d.kind.Kind+" is stored but not enforced yet")
	} else {
		r.at("spec").unserved(spec.ProtoReflect(), d.served)
	}
	return r.warnings, r.faults.ErrorOrNil()
}

// versions are those under which Istio serves a kind, the canonical one first.
func versions(kind config.GroupVersionKind) []string {
	switch {
	case kind.Version == "v1alpha3":
		return []string{"v1alpha3"}
	case kind.Group == securityGroup:
		return []string{"v1", "v1beta1"}
	default:
		return []string{"v1", "v1beta1", "v1alpha3"}
	}
}
