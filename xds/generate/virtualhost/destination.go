package virtualhost

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
)

// destination is a port of a service, or of a subset of it, to which a route sends
// requests. The service may be unknown.
type destination struct {
	hostname string
	subset   string
	port     int
	service  *mesh.ServiceRow
}

// destination resolves the destination of a route.
func (t translator) destination(d *networking.Destination) destination {
	out := destination{hostname: d.GetHost(), subset: d.GetSubset()}
	out.service, out.port = route.Destination(t.view, d, t.port)
	return out
}

func (d destination) cluster() string {
	return names.Cluster(names.Outbound, uint32(d.port), d.subset, d.hostname)
}

// isGRPCWeb says whether the port is for browsers too, whose gRPC-Web the proxy translates.
func (d destination) isGRPCWeb() bool {
	if d.service == nil {
		return false
	}
	port, ok := d.service.Port(d.port)
	return ok && port.Protocol == discovery.GRPCWeb
}

// hashPolicies returns the inputs of the destination's consistent hash, none for other
// load balancers.
func (d destination) hashPolicies(v *mesh.View) []envoy.HashPolicy {
	if d.service == nil {
		return nil
	}
	hash := v.Hash(d.service, d.subset, d.port)
	switch key := hash.GetHashKey().(type) {
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		return []envoy.HashPolicy{{Header: key.HttpHeaderName}}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		return []envoy.HashPolicy{{QueryParameter: key.HttpQueryParameterName}}
	case *networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp:
		if key.UseSourceIp {
			return []envoy.HashPolicy{{SourceIP: true}}
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie:
		return []envoy.HashPolicy{{Cookie: hashCookie(key.HttpCookie)}}
	}
	return nil
}

func hashCookie(c *networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie) *envoy.HashCookie {
	out := &envoy.HashCookie{Name: c.GetName(), Path: c.GetPath()}
	if c.GetTtl() != nil {
		ttl := c.GetTtl().AsDuration()
		out.TTL = &ttl
	}
	for _, a := range c.GetAttributes() {
		out.Attributes = append(out.Attributes, envoy.CookieAttribute{Name: a.GetName(), Value: a.GetValue()})
	}
	return out
}
