package schema

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
)

// meshGateway stands for all sidecars among the gateways of a VirtualService.
const meshGateway = "mesh"

func virtualService() *Schema {
	return definition[*networking.VirtualService]{
		kind: VirtualService, plural: "virtualservices", shortName: "vs",
		codec:  config.Protobuf[networking.VirtualService](),
		served: virtualServiceServed(),
		check:  checkVirtualService,
	}.schema()
}

func virtualServiceServed() fields {
	match := serve("name", "uri", "scheme", "method", "authority", "headers", "withoutHeaders", "queryParams",
		"ignoreUriCase", "port", "gateways", "sourceLabels", "sourceNamespace", "statPrefix")
	destination := serve("weight", "headers").with("destination", serve("host", "subset", "port"))
	return serve("hosts", "gateways", "exportTo").
		with("http", serve("name", "redirect", "directResponse", "delegate", "rewrite", "timeout", "retries", "headers",
			"mirror", "mirrors", "mirrorPercent", "mirrorPercentage", "corsPolicy").
			with("match", match).with("route", destination).with("fault", faultServed())).
		with("tcp", tcpServed()).with("tls", tlsServed())
}

func checkVirtualService(c checker, v *networking.VirtualService) {
	checkHosts(c.at("hosts"), v)
	each(c.at("gateways"), v.Gateways, checkGatewayName)
	warnDuplicates(c.at("gateways"), v.Gateways)
	c.at("exportTo").exportTo(v.ExportTo)
	if len(v.Http) == 0 && len(v.Tcp) == 0 && len(v.Tls) == 0 {
		c.at("http").fail("is missing: a VirtualService needs at least one route")
	}
	each(c.at("http"), v.Http, func(c checker, r *networking.HTTPRoute) { checkHTTPRoute(c, v, r) })
	if isDelegate(v) {
		return // a delegate has http routes only, and which of its matches count depends on the routes that delegate to it
	}
	checkReachable(c.at("http"), v.Http)
	each(c.at("tcp"), v.Tcp, checkTCPRoute)
	checkReachableStreams(c.at("tcp"), v.Tcp)
	each(c.at("tls"), v.Tls, func(c checker, r *networking.TLSRoute) { checkTLSRoute(c, v, r) })
}

// isDelegate says whether a VirtualService has no hosts of its own.
func isDelegate(v *networking.VirtualService) bool { return len(v.Hosts) == 0 }

// ofSidecars says whether the routes of a VirtualService apply to sidecars.
func ofSidecars(v *networking.VirtualService) bool {
	return len(v.GetGateways()) == 0 || slices.Contains(v.GetGateways(), meshGateway)
}

func checkHosts(c checker, v *networking.VirtualService) {
	if isDelegate(v) {
		checkDelegate(c, v)
		return
	}
	sidecars := ofSidecars(v)
	var earlier distinctHosts
	each(c, v.Hosts, func(c checker, h string) {
		err := hostPattern(h)
		switch {
		case h == "*" && sidecars:
			c.fail(`"*" cannot be routed by sidecars: name hosts, or gateways without "mesh"`)
		case err != nil && !isIP(h):
			c.failIf(err)
		default:
			c.shortName(h)
			if e := earlier.add(h); e != "" {
				c.fail("%q overlaps with %q: the hosts of one VirtualService are distinct", h, e)
			}
		}
	})
}

// distinctHosts finds hosts that overlap. The cost for a host does not grow with their
// number.
type distinctHosts struct {
	list []string
	at   map[host.Name]int // the hosts
	// covered has, for each pattern, the first host that it covers.
	covered map[host.Name]int
}

// add adds a host, and returns the first earlier host that it overlaps with, empty if there
// is none.
func (d *distinctHosts) add(h string) string {
	if d.at == nil {
		d.at, d.covered = map[host.Name]int{}, map[host.Name]int{}
	}
	name, n := host.Name(lower(h)), len(d.list)
	first := n
	for pattern := range name.Covers() {
		if i, ok := d.at[pattern]; ok {
			first = min(first, i)
		}
	}
	if i, ok := d.covered[name]; ok {
		first = min(first, i)
	}
	d.list = append(d.list, h)
	if first < n {
		return d.list[first]
	}
	d.at[name] = n
	for pattern := range name.Covers() {
		if _, ok := d.covered[pattern]; !ok {
			d.covered[pattern] = n
		}
	}
	return ""
}

func checkDelegate(c checker, v *networking.VirtualService) {
	if len(v.Gateways) > 0 || len(v.Tcp) > 0 || len(v.Tls) > 0 || len(v.Http) == 0 {
		c.fail("is missing: only a delegate has no hosts, and it has http routes but no gateways, tcp or tls")
	}
}

// checkGatewayName checks "mesh", "name", "namespace/name", "./name" and the
// old form name.namespace.svc.domain.
func checkGatewayName(c checker, name string) {
	namespace, rest, ok := strings.Cut(name, "/")
	if !ok {
		c.failIf(hostName(name))
		return
	}
	if namespace == "" {
		c.fail("lacks a namespace before the slash")
	} else if namespace != "." {
		c.namespace(namespace)
	}
	c.failIf(hostName(rest))
}

func checkHTTPRoute(c checker, v *networking.VirtualService, r *networking.HTTPRoute) {
	checkAction(c, v, r)
	each(c.at("match"), r.GetMatch(), func(c checker, m *networking.HTTPMatchRequest) {
		checkHTTPMatch(c, m)
		if ofSidecars(v) {
			c.at("headers").refuseClaims(m.GetHeaders())
			c.at("withoutHeaders").refuseClaims(m.GetWithoutHeaders())
		}
	})
	checkDestinations(c.at("route"), r.GetRoute())
	checkRedirect(c.at("redirect"), r, isDelegate(v))
	checkDirectResponse(c.at("directResponse"), r.GetDirectResponse())
	checkRewrite(c, r)
	c.at("timeout").duration(r.GetTimeout())
	checkFault(c.at("fault"), r.GetFault())
	checkMirrors(c, r)
	checkCORS(c.at("corsPolicy"), r)
	checkRetries(c.at("retries"), r.GetRetries())
	checkTryTime(c.at("retries", "perTryTimeout"), r)
	c.at("headers").headers(r.GetHeaders())
}

// checkAction checks that a route does one thing.
func checkAction(c checker, v *networking.VirtualService, r *networking.HTTPRoute) {
	var set []string
	if len(r.GetRoute()) > 0 {
		set = append(set, "route")
	}
	if r.GetRedirect() != nil {
		set = append(set, "redirect")
	}
	if r.GetDirectResponse() != nil {
		set = append(set, "directResponse")
	}
	if r.GetDelegate() != nil {
		set = append(set, "delegate")
		if isDelegate(v) {
			c.at("delegate").fail("a delegate cannot delegate: leave it out")
		}
	}
	switch {
	case len(set) == 0:
		c.fail("does nothing: set one of route, redirect, directResponse")
	case len(set) > 1:
		c.fail("has %s: set one of them", strings.Join(set, " and "))
	case set[0] != "route" && set[0] != "delegate" && r.GetRewrite() != nil:
		c.at("rewrite").fail("has nothing to rewrite: it goes with route, not with %s", set[0])
	case set[0] == "redirect" && r.GetFault() != nil:
		c.at("fault").fail("does not go with redirect")
	}
}

func checkDestinations(c checker, destinations []*networking.HTTPRouteDestination) {
	var weights []int32
	each(c, destinations, func(c checker, d *networking.HTTPRouteDestination) {
		checkDestination(c.at("destination"), d.GetDestination())
		c.at("weight").notNegative(d.GetWeight())
		c.at("headers").headers(d.GetHeaders())
		weights = append(weights, d.GetWeight())
	})
	checkWeights(c, weights)
}

// checkWeights checks the weights of the destinations of a route.
func checkWeights(c checker, weights []int32) {
	if len(weights) < 2 {
		return
	}
	total := int64(0)
	for _, w := range weights {
		total += int64(w)
	}
	const maxTotal = 1<<32 - 1 // Envoy's limit
	if total == 0 {
		c.fail("has only weights of 0: give at least one destination a share")
	}
	if total > maxTotal {
		c.fail("has weights that add up to %d: %d is the limit", total, maxTotal)
	}
}

func checkDestination(c checker, d *networking.Destination) {
	switch h := d.GetHost(); {
	case h == "*":
		c.at("host").fail(`"*" is no destination: name a host`)
	case !isIP(h):
		c.at("host").failIf(hostPattern(h))
		c.at("host").shortName(h)
	}
	if d.GetSubset() != "" {
		c.at("subset").dnsLabel(lower(d.GetSubset()))
	}
	if d.GetPort() != nil {
		c.at("port", "number").port(d.GetPort().GetNumber())
	}
}
