package schema

import (
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/config"
)

const (
	networkingGroup = "networking.istio.io"
	securityGroup   = "security.istio.io"
	telemetryGroup  = "telemetry.istio.io"
	extensionsGroup = "extensions.istio.io"
	portolanGroup   = "portolan.io"
	ingressGroup    = "networking.k8s.io"
)

// The canonical kinds of the Pilot schemas. Stores and caches keep objects under them,
// whatever version a document has. These variables are never modified.
var (
	DestinationRule       = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "DestinationRule"}
	EnvoyFilter           = config.GroupVersionKind{Group: networkingGroup, Version: "v1alpha3", Kind: "EnvoyFilter"}
	Gateway               = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "Gateway"}
	ServiceEntry          = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "ServiceEntry"}
	ProxyConfig           = config.GroupVersionKind{Group: networkingGroup, Version: "v1beta1", Kind: "ProxyConfig"}
	Sidecar               = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "Sidecar"}
	VirtualService        = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "VirtualService"}
	WorkloadEntry         = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "WorkloadEntry"}
	WorkloadGroup         = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: "WorkloadGroup"}
	AuthorizationPolicy   = config.GroupVersionKind{Group: securityGroup, Version: "v1", Kind: "AuthorizationPolicy"}
	PeerAuthentication    = config.GroupVersionKind{Group: securityGroup, Version: "v1", Kind: "PeerAuthentication"}
	RequestAuthentication = config.GroupVersionKind{Group: securityGroup, Version: "v1", Kind: "RequestAuthentication"}
	Telemetry             = config.GroupVersionKind{Group: telemetryGroup, Version: "v1", Kind: "Telemetry"}
	Secret                = config.GroupVersionKind{Version: "v1", Kind: "Secret"}
	JoinToken             = config.GroupVersionKind{Group: portolanGroup, Version: "v1", Kind: "JoinToken"}
	TokenIssuer           = config.GroupVersionKind{Group: portolanGroup, Version: "v1", Kind: "TokenIssuer"}
	WasmPlugin            = config.GroupVersionKind{Group: extensionsGroup, Version: "v1alpha1", Kind: "WasmPlugin"}
	PeerPhase             = config.GroupVersionKind{Group: portolanGroup, Version: "v1", Kind: "PeerPhase"}
	HostGrant             = config.GroupVersionKind{Group: portolanGroup, Version: "v1", Kind: "HostGrant"}
	KeySet                = config.GroupVersionKind{Group: portolanGroup, Version: "v1", Kind: "KeySet"}
	MeshConfig            = config.GroupVersionKind{Group: portolanGroup, Version: "v1", Kind: "MeshConfig"}
	RevokedIdentity       = config.GroupVersionKind{Group: portolanGroup, Version: "v1", Kind: "RevokedIdentity"}

	// Kubernetes' own kinds that Gateways and VirtualServices are derived from.
	Ingress      = config.GroupVersionKind{Group: ingressGroup, Version: "v1", Kind: "Ingress"}
	IngressClass = config.GroupVersionKind{Group: ingressGroup, Version: "v1", Kind: "IngressClass"}

	// Objects about access: who may connect, and what each user may do.
	Role        = config.GroupVersionKind{Group: portolanGroup, Version: "v1", Kind: "Role"}
	RoleBinding = config.GroupVersionKind{Group: portolanGroup, Version: "v1", Kind: "RoleBinding"}
	User        = config.GroupVersionKind{Group: portolanGroup, Version: "v1", Kind: "User"}
)

// Pilot returns the kinds that configure the mesh and say who may come in, in the order of
// their groups and names.
func Pilot() Set {
	return NewSet(
		secretKind(),
		destinationRule(), envoyFilter(), gateway(), proxyConfig(), serviceEntry(), sidecar(),
		virtualService(), workloadEntry(), workloadGroup(),
		authorizationPolicy(), peerAuthentication(), requestAuthentication(),
		telemetry(), wasmPlugin(),
		ingress(), ingressClass(),
		joinToken(), tokenIssuer(), revokedIdentity(), peerPhase(), keySet(), hostGrant(), meshConfig(),
		roleKind(), roleBinding(), userKind(),
	)
}

// definition describes a kind in the kind's own file; S is the type of its specs.
type definition[S any] struct {
	kind config.GroupVersionKind
	// shortName is empty if Istio has none.
	plural, shortName string
	codec             config.Codec
	// served are the fields of the spec that have an effect.
	served fields
	// check reports the faults of a spec. Its checker is at the Path of the codec.
	check func(checker, S)
}

// schema makes the Schema of a namespaced kind.
func (d definition[S]) schema() *Schema {
	s := &Schema{
		GroupVersionKind: d.kind,
		Versions:         versions(d.kind),
		Plural:           d.plural,
		Singular:         lower(d.kind.Kind),
		Codec:            d.codec,
		Check:            d.validate,
	}
	if d.shortName != "" {
		s.ShortNames = []string{d.shortName}
	}
	return s
}

func (d definition[S]) validate(c *config.Config, r *Report) {
	d.check(r.spec(), c.Spec.(S))
	if m, ok := c.Spec.(proto.Message); ok {
		r.spec().unserved(m.ProtoReflect(), d.served)
	} else {
		r.spec().unservedOfStruct(c.Spec, d.served)
	}
}

// versions returns the API versions under which a kind is served, the canonical one first.
// Kinds of Istio have their older versions too.
func versions(kind config.GroupVersionKind) []string {
	switch {
	case kind.Version != "v1":
	case kind.Group == networkingGroup:
		return []string{"v1", "v1beta1", "v1alpha3"}
	case kind.Group == securityGroup:
		return []string{"v1", "v1beta1"}
	case kind.Group == telemetryGroup:
		return []string{"v1", "v1alpha1"}
	}
	return []string{kind.Version}
}
