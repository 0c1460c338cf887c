package mesh

import (
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Shape is what generators may read of a proxy without its being recorded:
// resources are shared only among proxies of one shape.
type Shape struct {
	Type         discovery.ProxyType
	Interception discovery.InterceptionMode
	IPv4, IPv6   bool
	// DNSCapture: applications beside the proxy connect to the addresses that
	// services were given.
	DNSCapture bool
}

// Class is all of a proxy that the configuration which it shares with others
// depends on. It is an identity: proxies of one Class have the same resources in
// every context, those of their workloads apart. It has names and outcomes, no
// contents: the objects that it names are looked up in the context.
type Class struct {
	Shape     Shape
	Namespace string
	// Sidecar is the path of the Sidecar that applies, empty for none.
	Sidecar string
	// Gateways are the paths of the Gateways that select a router, in order.
	Gateways string
	// Selectors are those selectors of source labels, of all that the configuration
	// has, which match the proxy's labels.
	Selectors string
	// RouteDelta: it takes virtual hosts as resources of their own. No part of the
	// Shape: the virtual hosts are the same as those of proxies that do not.
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
	if from == nil || from.mesh != p.mesh || from.gateways != p.gateways || from.sidecars != p.sidecars ||
		from.selectors.matched != p.selectors.matched ||
		p.moved(from, proxy.IPAddresses) {
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
		},
		Namespace:  proxy.Namespace,
		RouteDelta: proxy.RouteDelta,
	}
	workload := proxy.Labels(p.workloadLabels(proxy))
	c.Selectors = p.selectors.matching(workload)
	if proxy.Type == discovery.Router {
		c.Gateways = selectedGateways(p.gateways, workload)
	} else if s := p.selectSidecar(proxy.Namespace, workload); s != nil {
		c.Sidecar = s.Config.Key().Path()
	}
	return c
}

// selectorIndex has the selectors of source labels that VirtualServices have, in
// the form that formatLabels gives them, and how many VirtualServices have each.
type selectorIndex struct {
	uses pmap.Map[int]
	// matched are the same selectors; it changes only as they come and go.
	matched pmap.Map[bool]
}

// next follows the selectors of one VirtualService, as they were and as they are.
func (x selectorIndex) next(old, curr []string) selectorIndex {
	for _, s := range old {
		x = x.count(s, -1)
	}
	for _, s := range curr {
		x = x.count(s, 1)
	}
	return x
}

func (x selectorIndex) count(selector string, by int) selectorIndex {
	n := x.uses.Value(selector) + by
	if n == 0 {
		return selectorIndex{x.uses.Delete(selector), x.matched.Delete(selector)}
	}
	return selectorIndex{x.uses.Set(selector, n), x.matched.Set(selector, true)}
}

// matching are the selectors that labels match, in order.
func (x selectorIndex) matching(workload labels.Instance) string {
	var out []string
	for selector := range x.matched.Keys() {
		if parseLabels(selector).SubsetOf(workload) {
			out = append(out, selector)
		}
	}
	return strings.Join(out, separator)
}

// has says whether a selector is among those of the class.
func (c Class) has(selector string) bool {
	for s := range strings.SplitSeq(c.Selectors, separator) {
		if s == selector {
			return true
		}
	}
	return false
}
