package rbac

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	templatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// Permission is a condition on what a request asks for.
type Permission = rbacv3.Permission

// PermissionAny permits everything.
func PermissionAny() *Permission {
	return &Permission{Rule: &rbacv3.Permission_Any{Any: true}}
}

// PermissionAnd matches if all of the permissions match. There must be one at least.
func PermissionAnd(all []*Permission) *Permission {
	return &Permission{Rule: &rbacv3.Permission_AndRules{AndRules: &rbacv3.Permission_Set{Rules: all}}}
}

// PermissionOr matches if one of the permissions matches. There must be one at least.
func PermissionOr(either []*Permission) *Permission {
	return &Permission{Rule: &rbacv3.Permission_OrRules{OrRules: &rbacv3.Permission_Set{Rules: either}}}
}

// PermissionNot matches if the permission does not.
func PermissionNot(p *Permission) *Permission {
	return &Permission{Rule: &rbacv3.Permission_NotRule{NotRule: p}}
}

// PermissionHeader matches a header.
func PermissionHeader(m *routev3.HeaderMatcher) *Permission {
	return &Permission{Rule: &rbacv3.Permission_Header{Header: m}}
}

// PermissionPath matches the path without the query.
func PermissionPath(m *matcherv3.StringMatcher) *Permission {
	return &Permission{Rule: &rbacv3.Permission_UrlPath{UrlPath: &matcherv3.PathMatcher{Rule: &matcherv3.PathMatcher_Path{Path: m}}}}
}

// PermissionTemplate matches the path without the query by a URI template of Envoy, in which
// "*" is one segment and "**" is the rest.
func PermissionTemplate(template string) *Permission {
	return &Permission{Rule: &rbacv3.Permission_UriTemplate{UriTemplate: &corev3.TypedExtensionConfig{
		Name: "uri-template", TypedConfig: message.Pack(&templatev3.UriTemplateMatchConfig{PathTemplate: template}),
	}}}
}

// PermissionIP matches the address to which the client connected.
func PermissionIP(block *corev3.CidrRange) *Permission {
	return &Permission{Rule: &rbacv3.Permission_DestinationIp{DestinationIp: block}}
}

// PermissionPort matches the port to which the client connected.
func PermissionPort(port uint32) *Permission {
	return &Permission{Rule: &rbacv3.Permission_DestinationPort{DestinationPort: port}}
}

// PermissionServerName matches the server name of a TLS client, which is empty without one.
func PermissionServerName(m *matcherv3.StringMatcher) *Permission {
	return &Permission{Rule: &rbacv3.Permission_RequestedServerName{RequestedServerName: m}}
}

// PermissionMetadata matches dynamic metadata.
func PermissionMetadata(m *matcherv3.MetadataMatcher) *Permission {
	return &Permission{Rule: &rbacv3.Permission_SourcedMetadata{SourcedMetadata: &rbacv3.SourcedMetadata{MetadataMatcher: m}}}
}
