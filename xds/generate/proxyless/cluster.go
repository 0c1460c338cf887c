package proxyless

import (
	"iter"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Clusters makes gRPC clients' clusters. They have the same names as for sidecars.
type Clusters struct{}

var (
	_ generate.Generator = Clusters{}
	_ generate.Emptier   = Clusters{}
)

// TypeURL implements generate.Generator.
func (Clusters) TypeURL() string { return resource.ClusterType }

// Affected implements generate.Generator.
func (Clusters) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] { return cluster.Names(v, d) }

// Build implements generate.Generator. If the endpoints of a service are host names, the
// client resolves only the first. A cluster whose TLS lacks something has no endpoints
// (Endpoints).
func (Clusters) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	o, ok := cluster.Find(v, name)
	if !ok {
		return nil, nil, nil
	}
	options := upstream.GRPCClusterOptions{
		Name:        name,
		MaxRequests: uint32(max(o.Policy().GetConnectionPool().GetHttp().GetHttp2MaxRequests(), 0)),
		Metadata:    o.Metadata(),
	}
	balance(o.Policy().GetLoadBalancer(), &options)
	transport, ok := o.Transport(v)
	options.Transport = transport.Transport
	if !ok || o.Type(v.Shape()) == upstream.EDS {
		return upstream.GRPCCluster(options), endpointsOf(name), nil
	}
	localities := o.Selection(v).Arrange(o.LocalityPreference(v), o.Service.DNSEndpoints)
	if len(localities) == 0 {
		return nil, nil, nil
	}
	options.DNS = &localities[0].Endpoints[0]
	return upstream.GRPCCluster(options), []resource.Need{{Kind: resource.Grace}}, nil
}

// endpointsOf returns a cluster's need for its endpoints.
func endpointsOf(name string) []resource.Need {
	return []resource.Need{{TypeURL: resource.EndpointType, Name: name, Kind: resource.Covered}}
}

// Empty implements generate.Emptier: a cluster without endpoints.
func (Clusters) Empty(name string) (proto.Message, []resource.Need, error) {
	return upstream.GRPCCluster(upstream.GRPCClusterOptions{Name: name, Policy: upstream.RoundRobin}), endpointsOf(name), nil
}

// balance chooses the load balancer: round robin, gRPC's default, unless the settings
// name another that gRPC supports.
func balance(settings *networking.LoadBalancerSettings, o *upstream.GRPCClusterOptions) {
	o.Policy = upstream.RoundRobin
	if hash := settings.GetConsistentHash(); hash != nil {
		o.Policy = upstream.RingHash
		o.MinimumRingSize = hash.GetRingHash().GetMinimumRingSize()
		return
	}
	switch settings.GetSimple() {
	//lint:ignore SA1019 Istio takes the deprecated name still.
	case networking.LoadBalancerSettings_LEAST_REQUEST, networking.LoadBalancerSettings_LEAST_CONN:
		o.Policy = upstream.LeastRequest
	}
}
