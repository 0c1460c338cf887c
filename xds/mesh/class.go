package mesh

import (
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
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

// Class is all of a proxy that its configuration depends on. It is never
// modified.
type Class struct {
	Shape   Shape
	Scope   SidecarScope
	Gateway *MergedGateway // of routers, else nil
	// IPs reach only the listeners that are the workload's own.
	IPs    []string
	labels labels.Instance
}

// ClassAfter is ClassOf where prev is the class in an earlier context, from. It
// looks only at what changed since.
func (p *PushContext) ClassAfter(from *PushContext, proxy *discovery.Proxy, prev *Class) *Class {
	if from == nil || prev == nil || from.mesh != p.mesh || from.gateways != p.gateways || from.sidecars != p.sidecars ||
		slices.ContainsFunc(proxy.IPAddresses, func(ip string) bool { return from.Instances(ip) != p.Instances(ip) }) {
		return p.ClassOf(proxy, prev)
	}
	return prev
}

// ClassOf derives the class of a proxy in a context. Where it is the same as
// prev, prev itself is returned.
func (p *PushContext) ClassOf(proxy *discovery.Proxy, prev *Class) *Class {
	c := &Class{
		Shape: Shape{
			Type: proxy.Type, Interception: proxy.InterceptionMode,
			IPv4: proxy.SupportsIPv4(), IPv6: proxy.SupportsIPv6(), DNSCapture: proxy.DNSCapture,
		},
		Scope:  SidecarScope{Namespace: proxy.Namespace},
		IPs:    proxy.IPAddresses,
		labels: proxy.Labels(p.workloadLabels(proxy)),
	}
	if proxy.Type == discovery.Router {
		var before *MergedGateway
		if prev != nil {
			before = prev.Gateway
		}
		c.Gateway = mergeGateways(p.gateways, c.labels, before)
	} else {
		c.Scope.Sidecar = p.selectSidecar(proxy.Namespace, c.labels)
	}
	if prev != nil && c.Shape == prev.Shape && c.Scope == prev.Scope && c.Gateway == prev.Gateway &&
		slices.Equal(c.IPs, prev.IPs) && c.labels.Equal(prev.labels) {
		return prev
	}
	return c
}
