package schema

import (
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portolan-mesh/portolan/storage/host"
)

// tcpServed and tlsServed are the fields of tcp and tls routes that are served.
func tcpServed() fields {
	return serve().with("match", streamMatchServed()).with("route", streamDestinationServed())
}

func tlsServed() fields {
	return serve().with("match", streamMatchServed("sniHosts")).with("route", streamDestinationServed())
}

func streamMatchServed(more ...string) fields {
	return serve(append(more, "destinationSubnets", "port", "gateways", "sourceLabels", "sourceNamespace")...)
}

func streamDestinationServed() fields {
	return serve("weight").with("destination", serve("host", "subset", "port"))
}

// streamMatch has the fields that the matches of tcp and tls routes share.
type streamMatch interface {
	routeMatch
	GetDestinationSubnets() []string
	GetSourceNamespace() string
}

func checkStreamMatch(c checker, m streamMatch) {
	each(c.at("destinationSubnets"), m.GetDestinationSubnets(), func(c checker, subnet string) {
		if _, err := netip.ParsePrefix(subnet); err != nil && !isIP(subnet) {
			c.fail("%q is neither an address nor a range of addresses such as 10.1.0.0/16", subnet)
		}
	})
	checkRouteMatch(c, m)
	if ns := m.GetSourceNamespace(); ns != "" && len(validation.IsDNS1123Label(ns)) > 0 {
		c.at("sourceNamespace").warn("%q cannot be a namespace: no connection comes from it", ns)
	}
}

func checkTCPRoute(c checker, r *networking.TCPRoute) {
	each(c.at("match"), r.GetMatch(), func(c checker, m *networking.L4MatchAttributes) { checkStreamMatch(c, m) })
	checkStreamDestinations(c.at("route"), r.GetRoute())
}

func checkTLSRoute(c checker, v *networking.VirtualService, r *networking.TLSRoute) {
	if len(r.GetMatch()) == 0 {
		c.at("match").fail("is missing: a tls route needs a match with sniHosts")
	}
	each(c.at("match"), r.GetMatch(), func(c checker, m *networking.TLSMatchAttributes) {
		checkStreamMatch(c, m)
		if len(m.GetSniHosts()) == 0 {
			c.at("sniHosts").fail("is missing: name the hosts that clients ask for, of the hosts of the VirtualService")
		}
		each(c.at("sniHosts"), m.GetSniHosts(), func(c checker, name string) { checkSNIHost(c, v, name) })
	})
	checkStreamDestinations(c.at("route"), r.GetRoute())
}

// checkSNIHost checks that a server name of a match is within the hosts of the
// VirtualService.
func checkSNIHost(c checker, v *networking.VirtualService, name string) {
	if isIP(name) {
		c.warn("is an address, and clients ask for no address by name: no connection matches")
		return
	}
	if name != "*" {
		if err := hostPattern(name); err != nil {
			c.failIf(err)
			return
		}
	}
	within := func(h string) bool { return host.Name(lower(name)).SubsetOf(host.Name(lower(h))) }
	if !slices.ContainsFunc(v.GetHosts(), within) {
		c.fail("%q is not within the hosts of the VirtualService, %s: add it there", name, strings.Join(v.GetHosts(), ", "))
	}
}

func checkStreamDestinations(c checker, destinations []*networking.RouteDestination) {
	if len(destinations) == 0 {
		c.fail("is missing: say where the connections go")
	}
	var weights []int32
	each(c, destinations, func(c checker, d *networking.RouteDestination) {
		checkDestination(c.at("destination"), d.GetDestination())
		c.at("weight").notNegative(d.GetWeight())
		weights = append(weights, d.GetWeight())
	})
	checkWeights(c, weights)
}

// checkReachableStreams warns of tcp routes after one that matches every connection, and of
// matches that an earlier route has, too.
func checkReachableStreams(c checker, routes []*networking.TCPRoute) {
	var earlier []placedStream
	for i, r := range routes {
		earlier = checkRepeated(c.index(i).at("match"), r.GetMatch(), earlier)
		all := len(r.GetMatch()) == 0 || slices.ContainsFunc(r.GetMatch(), func(m *networking.L4MatchAttributes) bool {
			return m == nil || !anySet(m)
		})
		if all && i < len(routes)-1 {
			c.report.warn(codeNeverUsed, c.index(i+1).path(), "and what follows are never used: %s takes every connection", c.index(i).path())
			return
		}
	}
}

// placedStream is a match of connections, and where it stands.
type placedStream struct {
	match proto.Message
	at    checker
}

// maxRepeated bounds how many matches a match is compared with.
const maxRepeated = 100

// checkRepeated warns of matches that are among the earlier ones, and adds the others to
// them.
func checkRepeated[M proto.Message](c checker, matches []M, earlier []placedStream) []placedStream {
	for i, m := range matches {
		at := c.index(i)
		first := slices.IndexFunc(earlier, func(e placedStream) bool { return proto.Equal(e.match, m) })
		if first >= 0 {
			at.neverUsed("is never used: %s takes its connections", earlier[first].at.path())
		} else if len(earlier) < maxRepeated {
			earlier = append(earlier, placedStream{m, at})
		}
	}
	return earlier
}
