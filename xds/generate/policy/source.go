package policy

import (
	"regexp"
	"strings"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
)

type principalClause = clause[*rbac.Principal]

// source returns the clauses of a source in a policy of a namespace; nil is any source.
func source(s *security.Source, namespace string, domains []string) []principalClause {
	return []principalClause{
		{"principals", withAliases(s.GetPrincipals(), domains), withAliases(s.GetNotPrincipals(), domains), everywhere, principal},
		{"requestPrincipals", s.GetRequestPrincipals(), s.GetNotRequestPrincipals(), ofRequests, requestPrincipal},
		{"serviceAccounts", s.GetServiceAccounts(), s.GetNotServiceAccounts(), everywhere, serviceAccount(namespace)},
		{"namespaces", s.GetNamespaces(), s.GetNotNamespaces(), everywhere, namespaceOf},
		{"trustDomains", s.GetTrustDomains(), s.GetNotTrustDomains(), everywhere, trustDomain},
		{"remoteIpBlocks", s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks(), ofEnvoy, remoteIP},
		{"ipBlocks", s.GetIpBlocks(), s.GetNotIpBlocks(), everywhere, directIP},
	}
}

// spiffe begins the URI of a workload in its certificate. No other name in a certificate
// begins so.
const spiffe = "spiffe://"

func principal(value string) (*rbac.Principal, bool) {
	if suffix, ok := strings.CutPrefix(value, "*"); ok && suffix != "" {
		return rbac.PrincipalName(rbac.Regex(spiffe + ".*" + regexp.QuoteMeta(suffix))), true
	}
	return rbac.PrincipalName(text(spiffe + value)), true
}

func namespaceOf(value string) (*rbac.Principal, bool) {
	return rbac.PrincipalName(rbac.Regex(spiffe + ".+/ns/" + segment(value) + "/.*")), true
}

func trustDomain(value string) (*rbac.Principal, bool) {
	return rbac.PrincipalName(rbac.Regex(spiffe + segment(value) + "/.*")), true
}

// segment is the regular expression of a value within slashes.
func segment(value string) string {
	prefix, isPrefix := strings.CutSuffix(value, "*")
	suffix, isSuffix := strings.CutPrefix(value, "*")
	switch {
	case value == "*":
		return "[^/]+"
	case isSuffix:
		return "[^/]*" + regexp.QuoteMeta(suffix)
	case isPrefix:
		return regexp.QuoteMeta(prefix) + "[^/]*"
	}
	return regexp.QuoteMeta(value)
}

// serviceAccount matches "namespace/account", or an account of the policy's namespace.
func serviceAccount(namespace string) func(string) (*rbac.Principal, bool) {
	return func(value string) (*rbac.Principal, bool) {
		of, account, ok := strings.Cut(value, "/")
		if !ok {
			of, account = namespace, value
		}
		return rbac.PrincipalName(rbac.Regex(spiffe + ".+/ns/" + regexp.QuoteMeta(of) + "/(.+/|)sa/" + regexp.QuoteMeta(account) + "(/.+)?")), true
	}
}

func directIP(value string) (*rbac.Principal, bool) {
	block, err := schema.ParseBlock(value)
	return rbac.PrincipalDirectIP(rbac.CIDR(block)), err == nil
}

func remoteIP(value string) (*rbac.Principal, bool) {
	block, err := schema.ParseBlock(value)
	return rbac.PrincipalRemoteIP(rbac.CIDR(block)), err == nil
}

// requestPrincipal matches "issuer/subject". A subject has no slash, so the last one is
// between the two: else a subject "b/c" of issuer "a" could pass for subject "c" of "a/b".
// "issuer/*" is every subject of this issuer alone.
func requestPrincipal(value string) (*rbac.Principal, bool) {
	prefix, isPrefix := strings.CutSuffix(value, "*")
	suffix, isSuffix := strings.CutPrefix(value, "*")
	if issuer, one := Issuer(value); one && isPrefix {
		return tokenOf(rbac.Exact(issuer), rbac.Present()), true
	}
	switch {
	case value == "*":
		return tokenOf(rbac.Present(), rbac.Present()), true
	case isSuffix:
		if !strings.Contains(suffix, "/") {
			return tokenOf(rbac.Present(), rbac.Suffix(suffix)), true
		}
		issuer, subject := splitLast(suffix)
		return tokenOf(text("*"+issuer), rbac.Exact(subject)), true
	case isPrefix && !strings.Contains(prefix, "/"):
		return tokenOf(rbac.Prefix(prefix), rbac.Present()), true
	case isPrefix:
		issuer, subject := splitLast(prefix)
		return rbac.PrincipalOr([]*rbac.Principal{
			tokenOf(rbac.Prefix(prefix), rbac.Present()), tokenOf(rbac.Exact(issuer), rbac.Prefix(subject)),
		}), true
	}
	issuer, subject := splitLast(value)
	return tokenOf(rbac.Exact(issuer), rbac.Exact(subject)), true
}

// Issuer returns the issuer whose tokens alone a value of requestPrincipals matches: "issuer/subject"
// and "issuer/*". It is false for a value that matches tokens of several.
func Issuer(value string) (string, bool) {
	issuer, subject := splitLast(value)
	return issuer, !strings.HasPrefix(value, "*") && (subject == "*" || !strings.HasSuffix(value, "*"))
}

// splitLast cuts a text at its last slash; without one, nothing is after it.
func splitLast(s string) (before, after string) {
	if i := strings.LastIndexByte(s, '/'); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

// tokenOf matches a verified token by its issuer and its subject.
func tokenOf(issuer, subject *matcherv3.StringMatcher) *rbac.Principal {
	return rbac.PrincipalAnd([]*rbac.Principal{
		rbac.PrincipalMetadata(rbac.Claim([]string{"iss"}, rbac.Text(issuer))),
		rbac.PrincipalMetadata(rbac.Claim([]string{"sub"}, rbac.Text(subject))),
	})
}

// claim matches a claim of a verified token: a text, or a list with that text.
func claim(names ...string) func(string) (*rbac.Principal, bool) {
	return func(value string) (*rbac.Principal, bool) {
		is := rbac.Text(text(value))
		return rbac.PrincipalMetadata(rbac.Claim(names, rbac.EitherValue(rbac.ListWith(is), is))), true
	}
}

func requestHeader(name string) func(string) (*rbac.Principal, bool) {
	return func(value string) (*rbac.Principal, bool) { return rbac.PrincipalHeader(header(name, value)), true }
}

// knowsHeader says who knows a header: gRPC servers refuse some names, and never see others.
func knowsHeader(name string) func(platform, string) bool {
	name = strings.ToLower(name)
	hidden := strings.HasPrefix(name, "grpc-") || strings.HasSuffix(name, "-bin") || name == ":scheme" || name == "te"
	return func(p platform, _ string) bool { return p == requests || p == calls && !hidden }
}
