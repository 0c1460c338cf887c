package schema

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
)

func envoyFilter() *Schema {
	return definition[*networking.EnvoyFilter]{
		kind: EnvoyFilter, plural: "envoyfilters", shortName: "ef",
		codec:  config.Protobuf[networking.EnvoyFilter](),
		served: envoyFilterFields,
		check:  checkEnvoyFilter,
	}.schema()
}

var envoyFilterFields = serve("workloadSelector", "targetRefs", "priority").with("configPatches",
	serve("applyTo", "patch").with("match", serve("context", "proxy", "listener", "routeConfiguration", "cluster")))

// checkEnvoyFilter checks what can be said without Envoy's API: who applies patches checks their
// values.
func checkEnvoyFilter(c checker, f *networking.EnvoyFilter) {
	c.at("workloadSelector").selector(f.WorkloadSelector)
	if f.WorkloadSelector != nil && len(f.TargetRefs) > 0 {
		c.at("workloadSelector").fail("excludes targetRefs: set one of the two")
	}
	each(c.at("targetRefs"), f.TargetRefs, checker.targetRef)
	each(c.at("configPatches"), f.ConfigPatches, func(c checker, p *networking.EnvoyFilter_EnvoyConfigObjectPatch) {
		if p.GetApplyTo() == networking.EnvoyFilter_INVALID {
			c.at("applyTo").fail("is missing: say what is patched")
		}
		checkPatchMatch(c, p)
		checkPatchOperation(c, p)
		operation := p.GetPatch().GetOperation()
		switch {
		case p.GetPatch() == nil:
			c.at("patch").fail("is missing: say how it is changed")
		case operation == networking.EnvoyFilter_Patch_INVALID:
			c.at("patch", "operation").fail("is missing: say how it is changed")
		case operation != networking.EnvoyFilter_Patch_REMOVE && p.GetPatch().GetValue() == nil:
			c.at("patch", "value").fail("is missing: operation %s needs one", operation)
		case operation != networking.EnvoyFilter_Patch_REMOVE:
			checkPatchedSecurity(c, p)
		}
	})
}

// securityFilters are the filters of Envoy, of HTTP and of TCP, that decide who may do
// what: parts of the names of filters and of the types of their configuration.
var securityFilters = []string{"jwt_authn", "rbac", "ext_authz"}

// checkPatchedSecurity reports a patch that adds or configures a filter of security or
// a transport socket. A patch that removes one leaves nothing less secure.
func checkPatchedSecurity(c checker, p *networking.EnvoyFilter_EnvoyConfigObjectPatch) {
	const risk = "configures %s, which is not served yet: %s"
	const denied = "what it would deny is let through"
	switch name, matched := PatchedSecurity(p); {
	case name == "":
	case matched:
		c.at("match").insecure(risk, name, denied)
	case isTransportSocket(name):
		c.at("patch", "value").insecure(risk, name, "connections are neither encrypted nor authenticated by it")
	default:
		c.at("patch", "value").insecure(risk, name, denied)
	}
}

// PatchedSecurity returns the filter of security or the transport socket that a patch adds or
// configures, empty for none. matched says that the patch matches it, and does not have it in its
// value. Such a patch is not served yet, and has no effect.
func PatchedSecurity(p *networking.EnvoyFilter_EnvoyConfigObjectPatch) (name string, matched bool) {
	if p.GetPatch().GetOperation() == networking.EnvoyFilter_Patch_REMOVE {
		return "", false
	}
	filter := p.GetMatch().GetListener().GetFilterChain().GetFilter()
	for _, name := range []string{filter.GetName(), filter.GetSubFilter().GetName()} {
		if isSecurityFilter(name) {
			return name, true
		}
	}
	return securityIn(structpb.NewStructValue(p.GetPatch().GetValue())), false
}

// securityIn finds a filter of security or a transport socket in a value of a patch:
// as the name of something, as its type, as the key of its configuration per route, or
// as a field.
func securityIn(v *structpb.Value) string {
	for _, one := range v.GetListValue().GetValues() {
		if found := securityIn(one); found != "" {
			return found
		}
	}
	members := v.GetStructValue().GetFields()
	for _, name := range sortedKeys(members) {
		text := members[name].GetStringValue()
		switch {
		case isTransportSocket(name), isSecurityFilter(name):
			return name
		case name == "name" && isSecurityFilter(text), isType(name) && isSecurityFilter(text):
			return text
		}
		if found := securityIn(members[name]); found != "" {
			return found
		}
	}
	return ""
}

// isType says whether a field holds the type of a configuration.
func isType(field string) bool {
	return slices.Contains([]string{"@type", "type_url", "typeUrl"}, field)
}

// isTransportSocket says whether a field of a listener or a cluster configures its
// transport sockets.
func isTransportSocket(field string) bool {
	return slices.Contains([]string{"transport_socket", "transportSocket", "transport_socket_matches", "transportSocketMatches"}, field)
}

// isSecurityFilter says whether a name of a filter, or of the type of its configuration,
// is one of security: envoy.filters.http.rbac, or
// type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC.
func isSecurityFilter(name string) bool {
	name = name[strings.LastIndexByte(name, '/')+1:]
	return strings.HasPrefix(name, "envoy.") && slices.ContainsFunc(strings.Split(name, "."), func(part string) bool {
		return slices.Contains(securityFilters, part)
	})
}
