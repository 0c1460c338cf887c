package rbac

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// Principal is a condition on who sends a request.
type Principal = rbacv3.Principal

// Policy matches if one of the permissions and one of the principals matches. There must be
// one of each at least.
func Policy(permissions []*Permission, principals []*Principal) *rbacv3.Policy {
	return &rbacv3.Policy{Permissions: permissions, Principals: principals}
}

// Never is a policy that matches nothing.
func Never() *rbacv3.Policy {
	return Policy([]*Permission{PermissionNot(PermissionAny())}, []*Principal{PrincipalNot(PrincipalAny())})
}

// PrincipalAny is everybody.
func PrincipalAny() *Principal {
	return &Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
}

// PrincipalAnd matches if all of the principals match. There must be one at least.
func PrincipalAnd(all []*Principal) *Principal {
	return &Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: all}}}
}

// PrincipalOr matches if one of the principals matches. There must be one at least.
func PrincipalOr(either []*Principal) *Principal {
	return &Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: &rbacv3.Principal_Set{Ids: either}}}
}

// PrincipalNot matches if the principal does not.
func PrincipalNot(p *Principal) *Principal {
	return &Principal{Identifier: &rbacv3.Principal_NotId{NotId: p}}
}

// PrincipalName matches a name in the verified certificate of the client: a URI, else a DNS
// name, else the subject. It matches nobody without a certificate unless m matches the empty
// text, and nobody in plaintext.
func PrincipalName(m *matcherv3.StringMatcher) *Principal {
	return &Principal{Identifier: &rbacv3.Principal_Authenticated_{Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: m}}}
}

// PrincipalDirectIP matches the address from which the client connected.
func PrincipalDirectIP(block *corev3.CidrRange) *Principal {
	return &Principal{Identifier: &rbacv3.Principal_DirectRemoteIp{DirectRemoteIp: block}}
}

// PrincipalRemoteIP matches the address that x-forwarded-for or the PROXY protocol gives, as
// far as the listener believes them.
func PrincipalRemoteIP(block *corev3.CidrRange) *Principal {
	return &Principal{Identifier: &rbacv3.Principal_RemoteIp{RemoteIp: block}}
}

// PrincipalHeader matches a header.
func PrincipalHeader(m *routev3.HeaderMatcher) *Principal {
	return &Principal{Identifier: &rbacv3.Principal_Header{Header: m}}
}

// PrincipalMetadata matches dynamic metadata.
func PrincipalMetadata(m *matcherv3.MetadataMatcher) *Principal {
	return &Principal{Identifier: &rbacv3.Principal_SourcedMetadata{SourcedMetadata: &rbacv3.SourcedMetadata{MetadataMatcher: m}}}
}
