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

// ClassOf derives the class of a proxy in a context. Where it is the same as
// prev, prev itself is returned.
func (p *PushContext) ClassOf(proxy *discovery.Proxy, prev *Class) *Class {
	var known labels.Instance
	for _, ip := range proxy.IPAddresses {
		if known = workloadLabels(p.instances.Value(ip)); known != nil {
			break
		}
	}
	c := &Class{
		Shape: Shape{
			Type: proxy.Type, Interception: proxy.InterceptionMode,
			IPv4: proxy.SupportsIPv4(), IPv6: proxy.SupportsIPv6(),
		},
		Scope:  SidecarScope{Namespace: proxy.Namespace},
		IPs:    proxy.IPAddresses,
		labels: proxy.Labels(known),
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
