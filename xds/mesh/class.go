package mesh

import (
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// Shape holds what generators may read of a proxy without recording it. Only proxies of
// one shape share resources.
type Shape struct {
	Type         discovery.ProxyType
	Interception discovery.InterceptionMode
	IPv4, IPv6   bool
	// DNSCapture: applications beside the proxy connect to the addresses that
	// services were given.
	DNSCapture bool
	// SelfDiscovery: the proxy may share load among zones, since it knows the endpoints of
	// its own service.
	SelfDiscovery bool
}

// Class holds all properties of a proxy that its shared configuration depends on. It is
// an identity: in every context, proxies of one Class have the same resources, except
// those of their own workloads. It holds names and outcomes, no contents: the objects
// that it names are looked up in the context.
type Class struct {
	Shape     Shape
	Namespace string
	// Domain is the DNS domain of a sidecar, in which applications call services by short
	// names.
	Domain string
	// HTTPProxyPort is the port on which a sidecar is an HTTP proxy by its own metadata, as
	// discovery.Proxy has it.
	HTTPProxyPort string
	// Sidecar is the path of the Sidecar that applies, empty for none.
	Sidecar string
	// Gateways are the paths of the Gateways that select a router, in order.
	Gateways string
	// Ports are the ports on which a router listens in place of those of the servers of its
	// Gateways, as routing.TargetPorts writes them.
	Ports string
	// Passed are the hosts of the services that a router passes TLS on to by the names of
	// their clusters: those of the servers of its Gateways with AUTO_PASSTHROUGH, in order.
	Passed string
	// Selectors lists the selectors of source labels in the configuration that match the
	// proxy's labels.
	Selectors string
	// Clients are the selectors of DestinationRules in its namespace that match the proxy's
	// labels, as clientSelectorsOf writes them.
	Clients string
	// Traits are the locality and the labels of the proxy by which anything in the
	// configuration balances, with their values.
	Traits string
	// Certified: the proxy has a certificate of its own.
	Certified bool
	// RouteDelta: it takes virtual hosts as resources of their own. It is no part of the
	// Shape, since proxies that do not take them so have the same virtual hosts.
	RouteDelta bool
}

// separator stands between the names in a field of a Class.
const separator = "\n"

// ClassAfter is ClassOf where prev is the class in an earlier context, from, nil
// for none. It looks only at what changed since.
func (p *PushContext) ClassAfter(from *PushContext, proxy *discovery.Proxy, prev Class) Class {
	if from == p {
		return prev
	}
	if from == nil || from.mesh != p.mesh || proxy.Type == discovery.Router && gatewayRows.of(from) != gatewayRows.of(p) ||
		sidecarRows.of(from) != sidecarRows.of(p) || selectorRows.of(from) != selectorRows.of(p) || traitRows.of(from) != traitRows.of(p) ||
		clientSelectorRows.of(from).Value(proxy.Namespace) != clientSelectorRows.of(p).Value(proxy.Namespace) ||
		p.moved(from, proxy.IPAddresses) || proxy.Type == discovery.Router && p.servesAnew(from, proxy) {
		return p.ClassOf(proxy)
	}
	return prev
}

// ClassOf derives the class of a proxy in a context.
func (p *PushContext) ClassOf(proxy *discovery.Proxy) Class {
	c := Class{
		Shape: Shape{
			Type: proxy.Type, Interception: proxy.InterceptionMode,
			IPv4: proxy.SupportsIPv4(), IPv6: proxy.SupportsIPv6(), DNSCapture: proxy.DNSCapture,
			SelfDiscovery: proxy.SelfDiscovery,
		},
		Namespace:  proxy.Namespace,
		RouteDelta: proxy.RouteDelta,
		Certified:  proxy.Certificate != discovery.CertificateFiles{},
	}
	if proxy.Type == discovery.Sidecar {
		c.Domain, c.HTTPProxyPort = strings.ToLower(proxy.DNSDomain), proxy.HTTPProxyPort
	}
	place := p.placeOf(proxy)
	workload := place.Labels
	c.Selectors = p.matchingSelectors(workload)
	c.Clients = p.clientSelectorsOf(proxy.Namespace, workload)
	c.Traits = p.traitsAt(place)
	if proxy.Type == discovery.Router {
		c.Gateways = p.selectedGateways(workload)
		c.Ports = p.gatewayPorts(proxy, c.Gateways)
		c.Passed = p.passedHosts(c.Gateways)
	} else if s := p.selectSidecar(proxy.Namespace, workload); s != nil {
		c.Sidecar = s.Config.Key().Path()
	}
	return c
}

// selectorTable counts the VirtualServices that have a selector of source labels, by its
// String.
type selectorTable struct{ tableOf[int] }

var (
	useRows = selectorTable{tableOf[int]{selectorUses}}
	// selectorRows are the same selectors. It changes only as they come and go.
	selectorRows = tableOf[bool]{sourceSelectors}
)

func (t selectorTable) follow(from, to *PushContext) {
	count := func(selector string, by int) {
		n := t.of(to).Value(selector) + by
		t.put(to, selector, n, n > 0)
		selectorRows.put(to, selector, true, n > 0)
	}
	for c := range virtualServiceRows.diff(from, to) {
		for _, s := range c.New.SourceSelectors() {
			count(s, 1)
		}
		for _, s := range c.Old.SourceSelectors() {
			count(s, -1)
		}
	}
}

// matchingSelectors are the selectors that labels match, in order.
func (p *PushContext) matchingSelectors(workload labels.Instance) string {
	var out []string
	for selector := range selectorRows.of(p).Keys() {
		if labels.Parse(selector).SubsetOf(workload) {
			out = append(out, selector)
		}
	}
	return strings.Join(out, separator)
}

// has says whether the class has a selector.
func (c Class) has(selector string) bool {
	for s := range strings.SplitSeq(c.Selectors, separator) {
		if s == selector {
			return true
		}
	}
	return false
}
