package simulate

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	templatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// attributes are what RBAC filters know of a request or a connection.
type attributes struct {
	request Request
	// routed is the request by which the route is chosen. Filters may change the request and let
	// the route be.
	routed Request
	// connection: there is no request, only a connection.
	connection bool
	// identity is what the client's certificate proves, empty for none. encrypted says that
	// the proxy ends TLS.
	// unnamed says that the identity is not known.
	identity           string
	encrypted, unnamed bool
	// undecided: a filter does not know whether it refuses, and none has refused so far.
	undecided bool
	// serverName is the SNI that the TLS inspector found.
	serverName string
}

func (a attributes) policy(p *rbacv3.Policy) (bool, error) {
	if p.GetCondition() != nil || p.GetCheckedCondition() != nil {
		return false, fmt.Errorf("simulation of the condition %v", p.GetCondition())
	}
	if ok, err := anyOf(p.GetPermissions(), a.permission); !ok || err != nil {
		return false, err
	}
	return anyOf(p.GetPrincipals(), a.principal)
}

// anyOf says whether one of a list matches. A match counts whatever is not known of the others.
func anyOf[T any](list []T, matches func(T) (bool, error)) (bool, error) {
	var unknown error
	for _, v := range list {
		ok, err := matches(v)
		if ok {
			return true, nil
		}
		unknown = cmp.Or(unknown, err)
	}
	return false, unknown
}

func allOf[T any](list []T, matches func(T) (bool, error)) (bool, error) {
	none, err := anyOf(list, not(matches))
	return !none && err == nil, err
}

func not[T any](matches func(T) (bool, error)) func(T) (bool, error) {
	return func(v T) (bool, error) {
		ok, err := matches(v)
		return !ok && err == nil, err
	}
}

func (a attributes) permission(p *rbacv3.Permission) (bool, error) {
	switch rule := p.GetRule().(type) {
	case *rbacv3.Permission_Any:
		return rule.Any, nil
	case *rbacv3.Permission_AndRules:
		return allOf(rule.AndRules.GetRules(), a.permission)
	case *rbacv3.Permission_OrRules:
		return anyOf(rule.OrRules.GetRules(), a.permission)
	case *rbacv3.Permission_NotRule:
		return not(a.permission)(rule.NotRule)
	case *rbacv3.Permission_DestinationIp:
		return within(rule.DestinationIp, a.request.Address), nil
	case *rbacv3.Permission_DestinationPort:
		return int(rule.DestinationPort) == a.request.Port, nil
	case *rbacv3.Permission_RequestedServerName:
		return stringMatches(rule.RequestedServerName, a.serverName)
	case *rbacv3.Permission_SourcedMetadata:
		return a.metadata(rule.SourcedMetadata)
	case *rbacv3.Permission_Header, *rbacv3.Permission_UrlPath, *rbacv3.Permission_UriTemplate:
		if a.connection {
			return false, nil
		}
	}
	switch rule := p.GetRule().(type) {
	case *rbacv3.Permission_Header:
		return headerMatches(rule.Header, a.request)
	case *rbacv3.Permission_UrlPath:
		return stringMatches(rule.UrlPath.GetPath(), a.path())
	case *rbacv3.Permission_UriTemplate:
		return templateMatches(rule.UriTemplate, a.path())
	}
	return false, fmt.Errorf("simulation of the permission %T", p.GetRule())
}

func (a attributes) principal(p *rbacv3.Principal) (bool, error) {
	switch id := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return id.Any, nil
	case *rbacv3.Principal_AndIds:
		return allOf(id.AndIds.GetIds(), a.principal)
	case *rbacv3.Principal_OrIds:
		return anyOf(id.OrIds.GetIds(), a.principal)
	case *rbacv3.Principal_NotId:
		return not(a.principal)(id.NotId)
	case *rbacv3.Principal_Authenticated_:
		name := id.Authenticated.GetPrincipalName()
		if !a.encrypted || name == nil {
			return a.encrypted, nil
		}
		return a.proves(name)
	case *rbacv3.Principal_DirectRemoteIp:
		return within(id.DirectRemoteIp, a.request.Source), nil
	case *rbacv3.Principal_RemoteIp:
		return within(id.RemoteIp, cmp.Or(a.request.Origin, a.request.Source)), nil
	case *rbacv3.Principal_Header:
		if a.connection {
			return false, nil
		}
		return headerMatches(id.Header, a.request)
	case *rbacv3.Principal_SourcedMetadata:
		return a.metadata(id.SourcedMetadata)
	}
	return false, fmt.Errorf("simulation of the principal %T", p.GetIdentifier())
}

// path is the path without query and fragment.
func (a attributes) path() string {
	path, _, _ := strings.Cut(a.request.Path, "?")
	path, _, _ = strings.Cut(path, "#")
	return path
}

// within says whether a range contains an address.
func within(block *corev3.CidrRange, address string) bool {
	ip, err := netip.ParseAddr(address)
	own, ownErr := netip.ParseAddr(block.GetAddressPrefix())
	return err == nil && ownErr == nil && netip.PrefixFrom(own, int(block.GetPrefixLen().GetValue())).Contains(ip.Unmap())
}

// literal are the characters of a path that an operator of a URI template matches.
// Envoy: source/extensions/path/uri_template_lib/uri_template_internal.cc
const literal = `a-zA-Z0-9\-._~%!$&'()+,;:@=`

// templateMatches matches a path by a URI template with "*" and "**".
func templateMatches(extension *corev3.TypedExtensionConfig, path string) (bool, error) {
	config := &templatev3.UriTemplateMatchConfig{}
	if err := extension.GetTypedConfig().UnmarshalTo(config); err != nil {
		return false, err
	}
	segments := strings.Split(config.GetPathTemplate(), "/")
	for i, s := range segments {
		switch s {
		case "*":
			segments[i] = "[" + literal + "]+"
		case "**":
			segments[i] = "[" + literal + "/]*"
		default:
			segments[i] = regexp.QuoteMeta(s)
		}
	}
	return fullMatch(strings.Join(segments, "/"), path)
}

// metadata matches the dynamic metadata of a filter.
func (a attributes) metadata(from *rbacv3.SourcedMetadata) (bool, error) {
	if from.GetMetadataSource() != rbacv3.MetadataSource_DYNAMIC {
		return false, fmt.Errorf("simulation of metadata that is %s", from.GetMetadataSource())
	}
	return a.request.metadataMatches(from.GetMetadataMatcher())
}

func (r Request) metadataMatches(m *matcherv3.MetadataMatcher) (bool, error) {
	var value any = r.Metadata[m.GetFilter()]
	for _, segment := range m.GetPath() {
		fields, _ := value.(map[string]any)
		value = fields[segment.GetKey()]
	}
	ok, err := valueMatches(m.GetValue(), value)
	return ok != m.GetInvert() && err == nil, err
}

// valueMatches matches a value of metadata; nil is none.
func valueMatches(m *matcherv3.ValueMatcher, value any) (bool, error) {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_StringMatch:
		text, ok := value.(string)
		if !ok {
			return false, nil
		}
		return stringMatches(p.StringMatch, text)
	case *matcherv3.ValueMatcher_ListMatch:
		list, _ := value.([]any)
		return anyOf(list, func(v any) (bool, error) { return valueMatches(p.ListMatch.GetOneOf(), v) })
	case *matcherv3.ValueMatcher_PresentMatch:
		return (value != nil) == p.PresentMatch, nil
	case *matcherv3.ValueMatcher_OrMatch:
		return anyOf(p.OrMatch.GetValueMatchers(), func(m *matcherv3.ValueMatcher) (bool, error) { return valueMatches(m, value) })
	}
	return false, fmt.Errorf("simulation of the value match %T", m.GetMatchPattern())
}
