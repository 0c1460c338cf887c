package schema

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
)

const (
	// MaxServiceHosts is how many hosts a ServiceEntry may have. A store can replace
	// all of them, with their addresses, in one transaction.
	MaxServiceHosts = 4000
	// maxServiceProduct is how many addresses all hosts of a ServiceEntry may have
	// together, and how many endpoints for all their ports, since every host has all
	// of them.
	maxServiceProduct = 400_000
)

func serviceEntry() *Schema {
	return definition[*networking.ServiceEntry]{
		kind: ServiceEntry, plural: "serviceentries", shortName: "se",
		codec:  config.Protobuf[networking.ServiceEntry](),
		served: serviceEntryServed(),
		check:  checkServiceEntry,
	}.schema()
}

func serviceEntryServed() fields {
	return serve("hosts", "addresses", "location", "resolution", "exportTo", "subjectAltNames").
		with("ports", serve("number", "name", "protocol", "targetPort")).
		with("endpoints", workloadEntryServed()).
		with("workloadSelector", serve("labels"))
}

func checkServiceEntry(c checker, s *networking.ServiceEntry) {
	checkServiceHosts(c.at("hosts"), s)
	checkAddresses(c.at("addresses"), s)
	checkServicePorts(c.at("ports"), s)
	checkResolution(c, s)
	each(c.at("endpoints"), s.Endpoints, func(c checker, w *networking.WorkloadEntry) { checkEndpoint(c, s, w) })
	if s.WorkloadSelector != nil && len(s.Endpoints) > 0 {
		c.at("workloadSelector").fail("excludes endpoints: set one of the two")
	}
	c.at("workloadSelector").selector(s.WorkloadSelector)
	c.at("exportTo").exportTo(s.ExportTo)
	if _, err := labels.ParseDistribution(c.report.object.Annotations[labels.DistributionAnnotation]); err != nil {
		c.report.at("metadata").at("annotations").key(labels.DistributionAnnotation).warn("%s", err)
	}
}

func checkServiceHosts(c checker, s *networking.ServiceEntry) {
	if len(s.Hosts) == 0 {
		c.fail("is missing: name at least one host")
	}
	if len(s.Hosts) > MaxServiceHosts {
		c.fail("has %d hosts, and may have %d, since all that becomes of one object is one change: split it into several objects", len(s.Hosts), MaxServiceHosts)
		return
	}
	checkServiceProduct(c, s)
	each(c, s.Hosts, func(c checker, host string) {
		if host == "*" {
			c.fail(`"*" alone stands for every host: name a domain, as in "*.example.com"`)
			return
		}
		c.failIf(hostPattern(host))
	})
	warnDuplicates(c, s.Hosts)
}

// checkServiceProduct bounds how many addresses and endpoints a short ServiceEntry can
// expand to.
func checkServiceProduct(c checker, s *networking.ServiceEntry) {
	hosts := len(s.Hosts)
	if n := hosts * len(s.Addresses); n > maxServiceProduct {
		c.fail("each of the %d hosts has all %d addresses, %d in all, and %d are the most: split it into several objects",
			hosts, len(s.Addresses), n, maxServiceProduct)
	}
	if n := hosts * len(s.Endpoints) * len(s.Ports); n > maxServiceProduct {
		c.fail("each of the %d hosts has all %d endpoints for %d ports, %d in all, and %d are the most: split it into several objects",
			hosts, len(s.Endpoints), len(s.Ports), n, maxServiceProduct)
	}
}

func checkAddresses(c checker, s *networking.ServiceEntry) {
	wide := s.Resolution == networking.ServiceEntry_NONE || s.Resolution == networking.ServiceEntry_STATIC
	each(c, s.Addresses, func(c checker, address string) {
		if isIP(address) {
			return
		}
		if _, err := netip.ParsePrefix(address); err != nil {
			c.fail("must be an IP address or a CIDR range, is %q", address)
		} else if !wide {
			c.fail("a range needs resolution NONE or STATIC: with %s name single addresses", s.Resolution)
		}
	})
}

func checkServicePorts(c checker, s *networking.ServiceEntry) {
	if len(s.Ports) == 0 {
		c.warn("is empty: no traffic can reach this service")
	}
	each(c, s.Ports, func(c checker, p *networking.ServicePort) {
		c.at("name").dnsLabel(lower(p.GetName()))
		c.at("number").port(p.GetNumber())
		c.at("targetPort").optionalPort(p.GetTargetPort())
		checkServiceProtocol(c.at("protocol"), s, p.GetProtocol())
	})
	unique(c, s.Ports, (*networking.ServicePort).GetName, "name")
	unique(c, s.Ports, (*networking.ServicePort).GetNumber, "number")
}

func checkServiceProtocol(c checker, s *networking.ServiceEntry, protocol string) {
	c.protocol(protocol)
	if s.Resolution == networking.ServiceEntry_DYNAMIC_DNS && !namesHost(protocol) {
		c.notServed("the port has no effect: resolution DYNAMIC_DNS needs clients that name the host, as those of HTTP, HTTP2, GRPC and TLS do")
		return
	}
	switch lower(protocol) {
	case "":
		c.warn("is missing: sidecars that capture traffic look for HTTP, for all others the port is plain TCP. Declare it, such as HTTP or TCP")
	case protocolUDP:
		c.notServed("%s is not served yet: the port has no effect", protocol)
	case protocolTCP:
		headless := s.GetResolution() == networking.ServiceEntry_NONE && s.GetWorkloadSelector() != nil // it has the addresses of its workloads
		if !headless && hasHostWithoutAddress(c.report.object.Labels, s) {
			c.warn("is TCP and the service has no addresses: nothing but the port number tells its connections from others")
		}
	}
}

// namesHost says whether clients of a protocol name the host that they want.
func namesHost(protocol string) bool {
	return slices.Contains([]string{protocolHTTP, protocolHTTP2, protocolGRPC, protocolGRPCWeb, protocolHTTPProxy, protocolTLS, protocolHTTPS}, lower(protocol))
}

// AutoAllocate is the label by which a ServiceEntry declines addresses for its hosts, with
// the value "false" in any case.
const AutoAllocate = "networking.istio.io/enable-autoallocate-ip"

// Allocates says whether the hosts of a ServiceEntry, except wildcards, get addresses. They
// do if the entry has no addresses, its resolution is not NONE, and its labels do not
// disable it.
func Allocates(labels map[string]string, s *networking.ServiceEntry) bool {
	return s.GetResolution() != networking.ServiceEntry_NONE && len(s.GetAddresses()) == 0 && lower(labels[AutoAllocate]) != "false"
}

// hasHostWithoutAddress says whether some host of a ServiceEntry has no address and does not
// get one.
func hasHostWithoutAddress(labels map[string]string, s *networking.ServiceEntry) bool {
	return len(s.Addresses) == 0 && (!Allocates(labels, s) || slices.ContainsFunc(s.Hosts, isWildcard))
}

// checkResolution checks what a resolution requires of the other fields.
func checkResolution(c checker, s *networking.ServiceEntry) {
	switch s.Resolution {
	case networking.ServiceEntry_NONE:
		if len(s.Endpoints) > 0 {
			c.at("endpoints").fail("resolution NONE goes where the caller goes: leave endpoints out, or use STATIC or DNS")
		}
	case networking.ServiceEntry_STATIC:
		if len(s.Endpoints) == 0 && s.WorkloadSelector == nil {
			c.at("endpoints").warn("is empty and there is no workloadSelector: the service has nowhere to go")
		}
	case networking.ServiceEntry_DNS, networking.ServiceEntry_DNS_ROUND_ROBIN:
		checkDNS(c, s)
	case networking.ServiceEntry_DYNAMIC_DNS:
		checkDynamicDNS(c, s)
	default:
		c.at("resolution").fail("%s is unknown: use STATIC, DNS, DNS_ROUND_ROBIN, DYNAMIC_DNS or NONE", s.Resolution)
	}
}

// checkDynamicDNS: the host of each request is its endpoint.
func checkDynamicDNS(c checker, s *networking.ServiceEntry) {
	each(c.at("hosts"), s.Hosts, func(c checker, host string) {
		if host != "" && !isWildcard(host) {
			c.fail("resolution DYNAMIC_DNS is for wildcards, is %q: use DNS for one host", host)
		}
	})
	if len(s.Addresses) > 0 {
		c.at("addresses").fail("resolution DYNAMIC_DNS goes by the name that the client gives: leave addresses out")
	}
	if len(s.Endpoints) > 0 {
		c.at("endpoints").fail("resolution DYNAMIC_DNS goes where the client's host name leads: leave endpoints out")
	}
	if s.WorkloadSelector != nil {
		c.at("workloadSelector").warn("has no effect with resolution DYNAMIC_DNS")
	}
}

func checkDNS(c checker, s *networking.ServiceEntry) {
	if len(s.Endpoints) == 0 && s.WorkloadSelector == nil {
		each(c.at("hosts"), s.Hosts, func(c checker, host string) {
			if isWildcard(host) {
				c.fail("%q cannot be looked up: resolution %s needs endpoints, or a host name without a wildcard", host, s.Resolution)
			}
		})
	}
	if s.Resolution == networking.ServiceEntry_DNS_ROUND_ROBIN && len(s.Endpoints) > 1 {
		c.at("endpoints").fail("resolution DNS_ROUND_ROBIN takes one endpoint at most, there are %d", len(s.Endpoints))
	}
}

func checkEndpoint(c checker, s *networking.ServiceEntry, w *networking.WorkloadEntry) {
	if w == nil {
		c.fail("is empty")
		return
	}
	checkWorkloadEntry(c, w)
	unix := strings.HasPrefix(w.Address, unixScheme)
	switch s.Resolution {
	case networking.ServiceEntry_STATIC:
		if w.Address != "" && !unix && !isIP(w.Address) {
			c.at("address").fail("resolution STATIC needs an IP address or a Unix socket, is %q: use DNS for host names", w.Address)
		}
	case networking.ServiceEntry_DNS, networking.ServiceEntry_DNS_ROUND_ROBIN:
		if unix {
			c.at("address").fail("resolution %s needs a host name or an IP address, is %q", s.Resolution, w.Address)
		}
	}
	if unix && len(s.Ports) != 1 {
		c.at("address").fail("a Unix socket serves one port, the service has %d", len(s.Ports))
	}
	for _, name := range sortedKeys(w.Ports) {
		if !slices.ContainsFunc(s.Ports, func(p *networking.ServicePort) bool { return p.GetName() == name }) {
			c.at("ports").key(name).fail("the service has no port of that name: it has %s", portNames(s.Ports))
		}
	}
}

func portNames(ports []*networking.ServicePort) string {
	if len(ports) == 0 {
		return "none"
	}
	names := make([]string, len(ports))
	for i, p := range ports {
		names[i] = fmt.Sprintf("%q", p.GetName())
	}
	return strings.Join(names, ", ")
}
