// Package rbac makes the parts of Envoy's RBAC messages.
//
// A policy matches a request if one of its permissions (permission.go) matches what the
// request asks for, and one of its principals (principal.go) matches who sends it. Both
// are built from matchers of text, addresses, headers and metadata (match.go):
//
//	rbac.Policy(
//		[]*rbac.Permission{rbac.PermissionPath(rbac.Prefix("/api/"))},
//		[]*rbac.Principal{rbac.PrincipalName(rbac.Exact("spiffe://cluster.local/ns/shop/sa/web"))},
//	)
package rbac
