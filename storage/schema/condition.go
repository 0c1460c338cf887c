package schema

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/spelling"
)

// Attribute is what a condition of an AuthorizationPolicy is about: its key without the names
// in brackets.
// https://istio.io/latest/docs/reference/config/security/conditions/
type Attribute string

// The attributes. Names in brackets follow a header, a claim and a filter's metadata.
const (
	SourceIP             Attribute = "source.ip"
	RemoteIP             Attribute = "remote.ip"
	SourceNamespace      Attribute = "source.namespace"
	SourcePrincipal      Attribute = "source.principal"
	SourceServiceAccount Attribute = "source.serviceAccount"
	SourceTrustDomain    Attribute = "source.trustDomain"
	RequestHeader        Attribute = "request.headers"
	RequestPrincipal     Attribute = "request.auth.principal"
	RequestAudiences     Attribute = "request.auth.audiences"
	RequestPresenter     Attribute = "request.auth.presenter"
	RequestClaim         Attribute = "request.auth.claims"
	DestinationIP        Attribute = "destination.ip"
	DestinationPort      Attribute = "destination.port"
	ConnectionSNI        Attribute = "connection.sni"
	// FilterMetadata is the dynamic metadata of a filter of Envoy, whose name is the first of
	// the names.
	FilterMetadata Attribute = "experimental.envoy.filters"
)

// plainAttributes are those without names.
func plainAttributes() []Attribute {
	return []Attribute{
		SourceIP, RemoteIP, SourceNamespace, SourcePrincipal, SourceServiceAccount, SourceTrustDomain,
		RequestPrincipal, RequestAudiences, RequestPresenter, DestinationIP, DestinationPort, ConnectionSNI,
	}
}

// replacedAttributes are the keys of Istio's first API about the workload itself.
func replacedAttributes() []string {
	return []string{"destination.namespace", "destination.labels", "destination.name", "destination.user"}
}

// ParseCondition splits the key of a condition into its attribute and the names in brackets:
// request.auth.claims[a][b] is RequestClaim with a and b. It fails on unknown keys.
func ParseCondition(key string) (Attribute, []string, error) {
	if slices.Contains(plainAttributes(), Attribute(key)) {
		return Attribute(key), nil, nil
	}
	begin, rest, _ := strings.Cut(key, "[")
	names, ok := bracketed("[" + rest)
	switch a := Attribute(begin); {
	case a == RequestHeader || a == RequestClaim:
		if !ok || a == RequestHeader && len(names) > 1 {
			return "", nil, fmt.Errorf("%q needs a name in brackets, as in %s[name]", key, a)
		}
		if a == RequestHeader && !headerToken.MatchString(strings.TrimPrefix(names[0], ":")) {
			return "", nil, fmt.Errorf("%q is not the name of an HTTP header", names[0])
		}
		return a, names, nil
	case strings.HasPrefix(begin, string(FilterMetadata)+"."):
		if !ok || len(names) > 1 || begin == string(FilterMetadata)+"." {
			return "", nil, fmt.Errorf("%q needs the name of a filter and one key in brackets, as in %s.http.rbac[key]", key, FilterMetadata)
		}
		return FilterMetadata, append([]string{strings.TrimPrefix(begin, "experimental.")}, names...), nil
	}
	if slices.Contains(replacedAttributes(), begin) {
		return "", nil, fmt.Errorf("%q is no key: put the policy into the namespace of the workloads and select them by labels", key)
	}
	if meant := spelling.Nearest(begin, conditionNames()); meant != "" {
		return "", nil, fmt.Errorf("unknown key %q: did you mean %s?", key, strings.Replace(key, begin, meant, 1))
	}
	return "", nil, fmt.Errorf("unknown key %q: use one of %s", key, strings.Join(conditionKeys(), ", "))
}

// conditionNames lists the keys without what is in brackets.
func conditionNames() []string {
	var out []string
	for _, key := range conditionKeys() {
		name, _, _ := strings.Cut(key, "[")
		out = append(out, name)
	}
	return out
}

// conditionKeys lists the keys as an error names them.
func conditionKeys() []string {
	out := []string{string(RequestHeader) + "[name]", string(RequestClaim) + "[name]", string(FilterMetadata) + ".name[key]"}
	for _, a := range plainAttributes() {
		out = append(out, string(a))
	}
	slices.Sort(out)
	return out
}

// bracketed splits "[a][b]" into a and b; false for any other form.
func bracketed(text string) ([]string, bool) {
	inner, ok := strings.CutPrefix(text, "[")
	if !ok || !strings.HasSuffix(inner, "]") {
		return nil, false
	}
	names := strings.Split(strings.TrimSuffix(inner, "]"), "][")
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "[]") {
			return nil, false
		}
	}
	return names, true
}

// ParseBlock parses an address or a range of addresses.
func ParseBlock(text string) (netip.Prefix, error) {
	block, err := netip.ParsePrefix(text)
	if !strings.Contains(text, "/") {
		var ip netip.Addr
		ip, err = netip.ParseAddr(text)
		block = netip.PrefixFrom(ip.WithZone(""), ip.BitLen())
	}
	switch {
	case err != nil || strings.Contains(text, "%"):
		return netip.Prefix{}, fmt.Errorf("%q is not an IP address or range, such as 10.1.2.3 or 10.1.0.0/16", text)
	case block.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q is an IPv4 address within IPv6: write it as IPv4", text)
	}
	return block.Masked(), nil
}

// IsPathTemplate says whether a path of an AuthorizationPolicy is a template: {*} stands for
// one segment, and {**} for the rest.
func IsPathTemplate(path string) bool {
	return strings.Contains(path, matchOne) || strings.Contains(path, matchRest)
}

const matchOne, matchRest = "{*}", "{**}"

// EnvoyPathTemplate returns a template in the syntax of Envoy's URI templates. It fails on
// those that Envoy refuses.
func EnvoyPathTemplate(path string) (string, error) {
	segments := strings.Split(path, "/")
	if segments[0] != "" {
		return "", errors.New("must begin with /")
	}
	for i, segment := range segments[1:] {
		last := i == len(segments)-2
		switch {
		case segment == matchOne || segment == matchRest:
		case segment == "" && last:
		case segment == "":
			return "", errors.New("has an empty segment: a template has text, {*} or {**} between slashes")
		case strings.ContainsAny(segment, "*{}"):
			return "", fmt.Errorf("has the segment %q: a template has {*} and {**} as whole segments, and no other wildcards", segment)
		case !templateLiteral.MatchString(segment):
			return "", fmt.Errorf("has the segment %q: a template has letters, digits, - . _ ~ %% ! $ & ' ( ) + , ; : @ =", segment)
		}
	}
	if rest := strings.Index(path, matchRest); rest >= 0 && strings.Contains(path[rest+1:], "{*") {
		return "", errors.New("has an operator after {**}: {**} must be the last one")
	}
	return strings.NewReplacer(matchOne, "*", matchRest, "**").Replace(path), nil
}

// templateLiteral is what Envoy takes as text in a template.
var templateLiteral = regexp.MustCompile(`^[a-zA-Z0-9\-._~%!$&'()+,;:@=]+$`)
