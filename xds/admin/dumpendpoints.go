package admin

import (
	"cmp"
	"net/netip"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/names"
)

// comparableEndpoints is Comparable for endpoints.
func comparableEndpoints(dumped, sent *endpointv3.ClusterLoadAssignment) (has, should *endpointv3.ClusterLoadAssignment) {
	has, should = normalEndpoints(dumped), normalEndpoints(sent)
	healthy := map[string]bool{}
	weighted := false
	for _, l := range has.GetEndpoints() {
		weighted = weighted || l.GetLoadBalancingWeight() != nil
	}
	for _, l := range should.GetEndpoints() {
		if !weighted { // a cluster without locality weighting forgets the weights
			l.LoadBalancingWeight = nil
		}
		for _, e := range l.GetLbEndpoints() {
			healthy[addressOf(e)] = e.GetHealthStatus() == corev3.HealthStatus_HEALTHY
		}
	}
	for _, l := range has.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			if healthy[addressOf(e)] { // if unhealthy in the dump, then because of Envoy's own checks
				e.HealthStatus = corev3.HealthStatus_HEALTHY
			}
		}
	}
	return has, should
}

// defaultOverprovisioning is Envoy's default of Policy.overprovisioning_factor.
const defaultOverprovisioning = 140

// normalEndpoints returns endpoints with defaults filled in, as Envoy dumps them, in a fixed
// order.
func normalEndpoints(in *endpointv3.ClusterLoadAssignment) *endpointv3.ClusterLoadAssignment {
	out := proto.CloneOf(in)
	if out.Policy == nil {
		out.Policy = &endpointv3.ClusterLoadAssignment_Policy{}
	}
	if out.Policy.OverprovisioningFactor == nil {
		out.Policy.OverprovisioningFactor = wrapperspb.UInt32(defaultOverprovisioning)
	}
	out.Endpoints = slices.DeleteFunc(out.Endpoints, func(l *endpointv3.LocalityLbEndpoints) bool { return len(l.GetLbEndpoints()) == 0 })
	for _, l := range out.Endpoints {
		if l.Locality == nil {
			l.Locality = &corev3.Locality{}
		}
		for _, e := range l.GetLbEndpoints() {
			normalEndpoint(e)
		}
		slices.SortStableFunc(l.LbEndpoints, func(a, b *endpointv3.LbEndpoint) int { return cmp.Compare(addressOf(a), addressOf(b)) })
	}
	slices.SortStableFunc(out.Endpoints, func(a, b *endpointv3.LocalityLbEndpoints) int {
		one, two := a.GetLocality(), b.GetLocality()
		return cmp.Or(cmp.Compare(a.GetPriority(), b.GetPriority()), cmp.Compare(one.GetRegion(), two.GetRegion()),
			cmp.Compare(one.GetZone(), two.GetZone()), cmp.Compare(one.GetSubZone(), two.GetSubZone()))
	})
	return out
}

func normalEndpoint(e *endpointv3.LbEndpoint) {
	if e.LoadBalancingWeight == nil {
		e.LoadBalancingWeight = wrapperspb.UInt32(1)
	}
	switch e.HealthStatus {
	case corev3.HealthStatus_UNKNOWN:
		e.HealthStatus = corev3.HealthStatus_HEALTHY
	case corev3.HealthStatus_DRAINING, corev3.HealthStatus_TIMEOUT:
		e.HealthStatus = corev3.HealthStatus_UNHEALTHY
	}
	if e.Metadata != nil && proto.Size(e.Metadata) == 0 {
		e.Metadata = nil
	}
	at := e.GetEndpoint()
	if at.GetHealthCheckConfig() != nil && proto.Size(at.GetHealthCheckConfig()) == 0 {
		at.HealthCheckConfig = nil
	}
	if s := at.GetAddress().GetSocketAddress(); s != nil {
		if ip, err := netip.ParseAddr(s.GetAddress()); err == nil {
			s.Address = ip.String()
		}
	}
}

// addressOf is HOST:PORT, or the path of a socket.
func addressOf(e *endpointv3.LbEndpoint) string {
	address := e.GetEndpoint().GetAddress()
	if s := address.GetSocketAddress(); s != nil {
		return names.HostPort(s.GetAddress(), s.GetPortValue())
	}
	return address.GetPipe().GetPath()
}
