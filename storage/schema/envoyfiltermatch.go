package schema

import (
	"regexp"
	"slices"

	networking "istio.io/api/networking/v1alpha3"
)

// What patches apply to, and what Envoy's API calls an order.
var (
	patchedInListeners = []networking.EnvoyFilter_ApplyTo{
		networking.EnvoyFilter_LISTENER, networking.EnvoyFilter_FILTER_CHAIN, networking.EnvoyFilter_NETWORK_FILTER,
		networking.EnvoyFilter_HTTP_FILTER, networking.EnvoyFilter_LISTENER_FILTER,
	}
	patchedInRoutes = []networking.EnvoyFilter_ApplyTo{
		networking.EnvoyFilter_ROUTE_CONFIGURATION, networking.EnvoyFilter_VIRTUAL_HOST, networking.EnvoyFilter_HTTP_ROUTE,
	}
)

// maxProxyVersion bounds the expression for versions of proxies. (Istio: proxyMatch.)
const maxProxyVersion = 1024

// checkPatchMatch checks that what a patch matches goes with what it applies to.
// https://github.com/istio/istio/blob/1.28.0/pkg/config/validation/envoyfilter/envoyfilter.go
func checkPatchMatch(c checker, p *networking.EnvoyFilter_EnvoyConfigObjectPatch) {
	m, to := p.GetMatch(), p.GetApplyTo()
	c = c.at("match")
	if version := m.GetProxy().GetProxyVersion(); len(version) > maxProxyVersion {
		c.at("proxy", "proxyVersion").fail("has %d characters: %d are the limit", len(version), maxProxyVersion)
	} else if _, err := regexp.Compile(version); err != nil {
		c.at("proxy", "proxyVersion").fail("is no regular expression: %v", err)
	}
	if m.GetContext() == networking.EnvoyFilter_WAYPOINT {
		c.at("context").notServed("%s is not served yet and has no effect", m.GetContext())
	}
	switch {
	case m.GetObjectTypes() == nil || to == networking.EnvoyFilter_INVALID:
	case m.GetWaypoint() != nil:
		if m.GetContext() != networking.EnvoyFilter_WAYPOINT {
			c.at("waypoint").fail("goes with context WAYPOINT only")
		}
	case slices.Contains(patchedInListeners, to):
		if m.GetListener() == nil {
			c.fail("must be of a listener for applyTo %s", to)
		}
	case slices.Contains(patchedInRoutes, to):
		if m.GetRouteConfiguration() == nil {
			c.fail("must be of a routeConfiguration for applyTo %s", to)
		}
	case to == networking.EnvoyFilter_CLUSTER:
		if m.GetCluster() == nil {
			c.fail("must be of a cluster for applyTo %s", to)
		}
	default:
		c.warn("of listeners, routes or clusters has no effect for applyTo %s", to)
	}
	if l := m.GetListener(); l != nil {
		checkListenerMatch(c.at("listener"), l, to)
	}
}

func checkListenerMatch(c checker, l *networking.EnvoyFilter_ListenerMatch, to networking.EnvoyFilter_ApplyTo) {
	if l.GetPortName() != "" {
		c.at("portName").warn("has no effect: name the port by portNumber")
	}
	if l.GetListenerFilter() != "" && to != networking.EnvoyFilter_LISTENER_FILTER {
		c.at("listenerFilter").warn("has an effect for applyTo LISTENER_FILTER only")
	}
	if l.GetFilterChain() != nil && (to == networking.EnvoyFilter_LISTENER || to == networking.EnvoyFilter_LISTENER_FILTER) {
		c.at("filterChain").warn("has no effect for applyTo %s", to)
	}
	filter := l.GetFilterChain().GetFilter()
	if filter == nil {
		return
	}
	c = c.at("filterChain", "filter")
	if to == networking.EnvoyFilter_FILTER_CHAIN {
		c.warn("has no effect for applyTo %s", to)
	}
	c.at("name").required(filter.GetName())
	if filter.GetSubFilter() == nil {
		return
	}
	manager := []string{"envoy.filters.network.http_connection_manager", "envoy.http_connection_manager"}
	switch {
	case to != networking.EnvoyFilter_HTTP_FILTER:
		c.at("subFilter").fail("goes with applyTo HTTP_FILTER only")
	case filter.GetName() != "" && !slices.Contains(manager, filter.GetName()):
		c.at("subFilter").fail("needs filter.name %s: HTTP filters are in that", manager[0])
	}
	c.at("subFilter", "name").required(filter.GetSubFilter().GetName())
}

// checkPatchOperation warns of a patch that changes nothing.
func checkPatchOperation(c checker, p *networking.EnvoyFilter_EnvoyConfigObjectPatch) {
	to, operation := p.GetApplyTo(), p.GetPatch().GetOperation()
	if to == networking.EnvoyFilter_INVALID || operation == networking.EnvoyFilter_Patch_INVALID {
		return
	}
	if !hasPatchEffect(to, operation) {
		c.at("patch", "operation").warn("%s has no effect for applyTo %s", operation, to)
		return
	}
	listener := p.GetMatch().GetListener()
	filter := listener.GetFilterChain().GetFilter()
	asked, field := filter.GetName(), "match.listener.filterChain.filter"
	switch to {
	case networking.EnvoyFilter_HTTP_FILTER:
		asked, field = filter.GetSubFilter().GetName(), field+".subFilter"
	case networking.EnvoyFilter_LISTENER_FILTER:
		asked, field = listener.GetListenerFilter(), "match.listener.listenerFilter"
	case networking.EnvoyFilter_NETWORK_FILTER:
	default:
		asked = "any"
	}
	removes := operation == networking.EnvoyFilter_Patch_REMOVE || operation == networking.EnvoyFilter_Patch_REPLACE
	merges := operation == networking.EnvoyFilter_Patch_MERGE || operation == networking.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST
	if asked == "" && (removes || merges && to == networking.EnvoyFilter_HTTP_FILTER) {
		c.at("patch", "operation").warn("%s has no effect without a filter: name it in %s", operation, field)
	}
	if p.GetPatch().GetFilterClass() != networking.EnvoyFilter_Patch_UNSPECIFIED && (to != networking.EnvoyFilter_HTTP_FILTER || operation != networking.EnvoyFilter_Patch_ADD) {
		c.at("patch", "filterClass").warn("has an effect for applyTo HTTP_FILTER and operation ADD only")
	}
}

// hasPatchEffect says whether an operation does something to what it applies to. INSERT_BEFORE and
// the like are ADD for what has no order.
func hasPatchEffect(to networking.EnvoyFilter_ApplyTo, operation networking.EnvoyFilter_Patch_Operation) bool {
	merges := operation == networking.EnvoyFilter_Patch_MERGE || operation == networking.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST
	replaces := operation == networking.EnvoyFilter_Patch_REPLACE
	switch to {
	case networking.EnvoyFilter_ROUTE_CONFIGURATION:
		return merges
	case networking.EnvoyFilter_BOOTSTRAP: // (Istio: pkg/bootstrap merges all of them.)
		return operation == networking.EnvoyFilter_Patch_MERGE
	case networking.EnvoyFilter_EXTENSION_CONFIG:
		return !merges && operation != networking.EnvoyFilter_Patch_REMOVE
	case networking.EnvoyFilter_LISTENER, networking.EnvoyFilter_FILTER_CHAIN, networking.EnvoyFilter_CLUSTER, networking.EnvoyFilter_HTTP_ROUTE:
		return !replaces
	}
	return true
}
