package schema

import (
	"strings"

	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
)

func hostGrant() *Schema {
	s := definition[*claim.HostGrant]{
		kind: HostGrant, plural: "hostgrants",
		codec:  config.JSON[claim.HostGrant](),
		served: fields{}.with("from", serve("kind", "namespace")).with("to", serve("hosts")),
		check:  checkHostGrant,
	}.schema()
	s.Internal = true
	return s
}

// speaking are the kinds whose objects speak for hosts.
func speaking() []string {
	return []string{VirtualService.Kind, DestinationRule.Kind, ServiceEntry.Kind, Gateway.Kind, Ingress.Kind}
}

func checkHostGrant(c checker, g *claim.HostGrant) {
	if len(g.From) == 0 {
		c.at("from").fail("is missing: name the kind and the namespace of the objects that may speak for the hosts")
	}
	each(c.at("from"), g.From, func(c checker, from claim.From) {
		c.at("kind").required(from.Kind)
		c.at("kind").oneOf(from.Kind, speaking()...)
		c.at("namespace").required(from.Namespace)
		if from.Namespace != "" {
			c.at("namespace").namespace(from.Namespace)
		}
		if from.Namespace == c.report.object.Namespace {
			c.at("namespace").warn("is the namespace of the HostGrant, whose objects need no consent")
		}
	})
	unique(c.at("from"), g.From, func(from claim.From) claim.From { return from })
	if len(g.To) == 0 {
		c.at("to").fail("is missing: name the hosts, or %q for all that the namespace owns", "*")
	}
	each(c.at("to"), g.To, func(c checker, to claim.To) {
		if len(to.Hosts) == 0 {
			c.at("hosts").fail("is missing: name the hosts, or %q for all that the namespace owns", "*")
		}
		each(c.at("hosts"), to.Hosts, checker.wholeHost)
	})
}

// wholeHost checks a host or a pattern of hosts in an object of Portolan, which has no short
// names.
func (c checker) wholeHost(name string) {
	switch err := hostPattern(name); {
	case err != nil:
		c.fail("%v", err)
	case name != lower(name):
		c.fail("%q has capital letters, and hosts are compared in small ones: write %s", name, lower(name))
	case name != "*" && !strings.Contains(name, "."):
		c.fail("%q is a short name: write the whole host, such as %s.shop.svc.cluster.local", name, name)
	}
}
