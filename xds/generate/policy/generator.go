package policy

import (
	"iter"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	"google.golang.org/protobuf/proto"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Generator makes the content of the slots, from the policies that are for the workload.
type Generator struct{}

var _ generate.Generator = Generator{}

// TypeURL implements generate.Generator.
func (Generator) TypeURL() string { return resource.ExtensionType }

// Affected implements generate.Generator. It yields none: listeners need what is in their slots.
func (Generator) Affected(*mesh.View, mesh.Delta) iter.Seq[string] { return func(func(string) bool) {} }

// Build implements generate.Generator.
func (Generator) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	slot, ok := find(name)
	if !ok {
		return nil, nil, nil
	}
	content, needs := slot.content(v)
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: message.Pack(content)}, needs, nil
}

// Otherwise makes a content of a slot that refuses everything, nil for a name that is no slot's.
func Otherwise(name string) proto.Message {
	slot, ok := find(name)
	if !ok {
		return nil
	}
	content := proto.Message(envoy.RefuseRequests())
	if slot.tcp {
		content = envoy.RefuseConnections()
	}
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: message.Pack(content)}
}

// content makes the filter of a slot, and its needs.
func (s Slot) content(v *mesh.View) (proto.Message, []resource.Need) {
	if s.does == verifies {
		// A route of a gateway may match what a token says, so it is chosen again. (Istio: BuildHTTP.)
		return Tokens(v.OwnTokenRules(), v.Keys, v.Shape().Type == discovery.Router), nil
	}
	policies, o := v.OwnPolicies(), OptionsOf(v)
	switch {
	case s.action == security.AuthorizationPolicy_CUSTOM:
		return s.custom(v, policies, o)
	case s.tcp:
		return Network(policies, s.action, o), nil
	}
	return HTTP(policies, s.action, o), nil
}

// GRPC makes the filter of a slot for a gRPC server; nil if it has nothing to enforce. Such a
// server verifies no tokens. It asks nobody, and refuses what CUSTOM policies match.
func (s Slot) GRPC(v *mesh.View) *httprbacv3.RBAC {
	if s.does != 0 {
		return nil
	}
	return GRPC(v.OwnPolicies(), s.action, OptionsOf(v))
}

// OptionsOf returns what translation needs of the mesh.
func OptionsOf(v *mesh.View) Options {
	return Options{
		TrustDomains: append([]string{v.Mesh(mesh.TrustDomain).GetTrustDomain()}, v.Mesh(mesh.TrustDomainAliases).GetTrustDomainAliases()...),
	}
}
