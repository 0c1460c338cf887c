package policy

import (
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
)

type permissionClause = clause[*rbac.Permission]

// operation returns the clauses of an operation, nil is any operation.
func operation(o *security.Operation) []permissionClause {
	return []permissionClause{
		{"hosts", o.GetHosts(), o.GetNotHosts(), ofMessages, hostOf},
		{"methods", o.GetMethods(), o.GetNotMethods(), ofMessages, method},
		{"paths", o.GetPaths(), o.GetNotPaths(), knowsPath, path},
		{"ports", o.GetPorts(), o.GetNotPorts(), everywhere, port},
	}
}

// text matches a value that is exact, "prefix*", "*suffix" or "*", which is any text but the
// empty one.
func text(value string) *matcherv3.StringMatcher {
	prefix, isPrefix := strings.CutSuffix(value, "*")
	suffix, isSuffix := strings.CutPrefix(value, "*")
	switch {
	case value == "*":
		return rbac.Present()
	case isSuffix:
		return rbac.Suffix(suffix)
	case isPrefix:
		return rbac.Prefix(prefix)
	}
	return rbac.Exact(value)
}

func header(name, value string) *routev3.HeaderMatcher {
	if value == "*" {
		return rbac.HeaderPresent(name)
	}
	return rbac.Header(name, text(value))
}

func hostOf(value string) (*rbac.Permission, bool) {
	const authority = ":authority"
	if value == "*" {
		return rbac.PermissionHeader(rbac.HeaderPresent(authority)), true
	}
	return rbac.PermissionHeader(rbac.Header(authority, rbac.IgnoreCase(text(value)))), true
}

func method(value string) (*rbac.Permission, bool) {
	return rbac.PermissionHeader(header(":method", value)), true
}

func path(value string) (*rbac.Permission, bool) {
	if !schema.IsPathTemplate(value) {
		return rbac.PermissionPath(text(value)), true
	}
	template, err := schema.EnvoyPathTemplate(value)
	if err != nil {
		return nil, false
	}
	return rbac.PermissionTemplate(template), true
}

// knowsPath says who knows a path: gRPC servers have no templates.
func knowsPath(p platform, value string) bool {
	return ofRequests(p, value) || p == calls && !schema.IsPathTemplate(value)
}

func port(value string) (*rbac.Permission, bool) {
	n, err := strconv.ParseUint(value, 10, 16)
	return rbac.PermissionPort(uint32(n)), err == nil
}

func destinationIP(value string) (*rbac.Permission, bool) {
	block, err := schema.ParseBlock(value)
	return rbac.PermissionIP(rbac.CIDR(block)), err == nil
}

func serverName(value string) (*rbac.Permission, bool) {
	return rbac.PermissionServerName(text(value)), true
}

// filterMetadata matches the metadata of a filter: a text, or, for a value in brackets, a list
// with that text.
func filterMetadata(filter string, path []string) func(string) (*rbac.Permission, bool) {
	return func(value string) (*rbac.Permission, bool) {
		if inner, ok := bracketed(value); ok {
			return rbac.PermissionMetadata(rbac.Metadata(filter, path, rbac.ListWith(rbac.Text(text(inner))))), true
		}
		return rbac.PermissionMetadata(rbac.Metadata(filter, path, rbac.Text(text(value)))), true
	}
}

func bracketed(value string) (string, bool) {
	if !strings.HasPrefix(value, "[") || !strings.HasSuffix(value, "]") {
		return "", false
	}
	return strings.Trim(value, "[]"), true
}
