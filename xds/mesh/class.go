package mesh

import (
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
)

// Shape and Class are described in package class.
type (
	Shape = class.Shape
	Class = class.Class
)

// ClassAfter returns the same as ClassOf. prev is the proxy's class in an earlier
// context, from; nil means there was none. It looks only at what changed since from.
func (p *PushContext) ClassAfter(from *PushContext, proxy *discovery.Proxy, prev Class) Class {
	if from == p {
		return prev
	}
	if from == nil || from.mesh != p.mesh || proxy.Type == discovery.Router && gatewayRows.rowsOf(from) != gatewayRows.rowsOf(p) ||
		sidecarRows.rowsOf(from) != sidecarRows.rowsOf(p) || selectorRows.rowsOf(from) != selectorRows.rowsOf(p) || traitRows.rowsOf(from) != traitRows.rowsOf(p) ||
		clientSelectorRows.rowsOf(from).Value(proxy.Namespace) != clientSelectorRows.rowsOf(p).Value(proxy.Namespace) ||
		p.endpointsChanged(from, proxy.IPAddresses) || proxy.Type == discovery.Router && p.servicesChangedAt(from, proxy) {
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

// selectorTable counts, for each selector of source labels (by its String), the
// VirtualServices that have it.
type selectorTable struct{ tableOf[int] }

var (
	useRows = selectorTable{tableOf[int]{selectorUses}}
	// selectorRows holds the same selectors without the counts, so it changes only when a
	// selector appears or disappears.
	selectorRows = tableOf[bool]{sourceSelectors}
)

func (t selectorTable) follow(from, to *PushContext) {
	count := func(selector string, by int) {
		n := t.rowsOf(to).Value(selector) + by
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

// matchingSelectors returns the selectors that match the labels, in order.
func (p *PushContext) matchingSelectors(workload labels.Instance) string {
	var out []string
	for selector := range selectorRows.rowsOf(p).Keys() {
		if labels.Parse(selector).SubsetOf(workload) {
			out = append(out, selector)
		}
	}
	return strings.Join(out, class.Separator)
}
