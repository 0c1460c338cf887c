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
	if from == nil || from.mesh != p.mesh || p.attachmentsChanged(from, proxy) || p.patchedChanged(from, proxy) ||
		p.unreadSecrets(proxy) != from.unreadSecrets(proxy) || p.endpointsChanged(from, proxy.IPAddresses) || proxy.Type == discovery.Router && p.servicesChangedAt(from, proxy) {
		return p.ClassOf(proxy)
	}
	return prev
}

// ClassOf derives the class of a proxy in a context.
func (p *PushContext) ClassOf(proxy *discovery.Proxy) Class {
	c := Class{
		Shape: Shape{
			Type: proxy.Type, Interception: proxy.InterceptionMode,
			IPv4: proxy.SupportsIPv4(), IPv6: proxy.SupportsIPv6(), DNSCapture: proxy.DNSCapture, Cluster: proxy.ClusterID,
			SelfDiscovery: proxy.SelfDiscovery, Patched: p.patched(proxy.Type, proxy.Namespace),
		},
		Namespace:  proxy.Namespace,
		RouteDelta: proxy.RouteDelta,
		Certified:  proxy.HasCertificate(), SecretCluster: proxy.SecretCluster,
		Returning: proxy.Returning && p.unreadSecrets(proxy),
		Settings:  proxy.Settings,
	}
	if proxy.Type == discovery.Sidecar {
		c.Domain, c.HTTPProxyPort = strings.ToLower(proxy.DNSDomain), proxy.HTTPProxyPort
	}
	if p.mesh.NamesServices() {
		c.ServiceName = proxy.ServiceName
	}
	c.Attached = p.attached(proxy)
	if proxy.Type == discovery.Router {
		c.Ports, c.Passed = p.gatewayPorts(proxy, c.Attached), p.passedHosts(c.Attached)
	}
	return c
}

// followSources follows the selectors of source labels in VirtualServices.
func (t attachmentTable) followSources(from, to *PushContext) {
	count := func(selectors []string, by int) {
		for _, s := range selectors {
			t.count(to, attachmentKey(class.Source, ""), s, labels.Parse(s), by)
		}
	}
	for c := range virtualServiceRows.diff(from, to) {
		count(c.New.SourceSelectors(), 1)
		count(c.Old.SourceSelectors(), -1)
	}
}
