package rbac

import (
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Exact matches a text that equals.
func Exact(text string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: text}}
}

// Prefix matches a text that begins with prefix, which must not be empty.
func Prefix(prefix string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}}
}

// Suffix matches a text that ends with suffix, which must not be empty.
func Suffix(suffix string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: suffix}}
}

// Regex matches a text that a regular expression matches as a whole.
func Regex(expression string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{
		SafeRegex: &matcherv3.RegexMatcher{Regex: expression},
	}}
}

// Present matches every text that is not empty.
func Present() *matcherv3.StringMatcher { return Regex(".+") }

// IgnoreCase makes a matcher of text ignore case, and returns it.
func IgnoreCase(m *matcherv3.StringMatcher) *matcherv3.StringMatcher {
	m.IgnoreCase = true
	return m
}

// Header matches the value of a header. Of several headers of one name Envoy takes any that matches;
// a gRPC server joins them by commas.
func Header(name string, value *matcherv3.StringMatcher) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: value}}
}

// HeaderPresent matches requests with a header.
func HeaderPresent(name string) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}
}

// CIDR is a range of addresses.
func CIDR(block netip.Prefix) *corev3.CidrRange {
	return &corev3.CidrRange{AddressPrefix: block.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(block.Bits()))}
}

// TokenMetadata is the namespace of the dynamic metadata in which the filter for tokens leaves
// the claims of a verified token, and TokenPayload is the key there: payload_in_metadata of its
// providers. Policies and routes read claims from nowhere else. (Istio: EnvoyJwtFilterName,
// EnvoyJwtFilterPayload.)
const (
	TokenMetadata = "envoy.filters.http.jwt_authn"
	TokenPayload  = "payload"
)

// Claim matches the value at a path in the claims of a verified token, as Metadata does.
func Claim(path []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	return Metadata(TokenMetadata, append([]string{TokenPayload}, path...), value)
}

// Metadata matches the value at a path in the dynamic metadata of a filter. It matches
// nothing if the path leads nowhere.
func Metadata(filter string, path []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	out := &matcherv3.MetadataMatcher{Filter: filter, Value: value}
	for _, key := range path {
		out.Path = append(out.Path, &matcherv3.MetadataMatcher_PathSegment{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: key}})
	}
	return out
}

// Text matches a value that is a text.
func Text(m *matcherv3.StringMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: m}}
}

// ListWith matches a value that is a list with an element that matches.
func ListWith(element *matcherv3.ValueMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_ListMatch{ListMatch: &matcherv3.ListMatcher{
		MatchPattern: &matcherv3.ListMatcher_OneOf{OneOf: element},
	}}}
}

// PresentValue matches every value.
func PresentValue() *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_PresentMatch{PresentMatch: true}}
}

// EitherValue matches what one of two matchers or more matches.
func EitherValue(values ...*matcherv3.ValueMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_OrMatch{OrMatch: &matcherv3.OrMatcher{ValueMatchers: values}}}
}
