package proxyless

import (
	"iter"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Clusters makes clusters of the names that sidecars have for them.
type Clusters struct{}

var (
	_ generate.Generator = Clusters{}
	_ generate.Emptier   = Clusters{}
)

// TypeURL implements generate.Generator.
func (Clusters) TypeURL() string { return cluster.TypeURL }

// Affected implements generate.Generator.
func (Clusters) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] { return cluster.Names(v, d) }

// Build implements generate.Generator. Of a service whose endpoints are host names
// a client resolves one, the first.
func (Clusters) Build(v *mesh.View, name string) (*resource.Resource, error) {
	o, ok := cluster.Find(v, name)
	if !ok {
		return nil, nil
	}
	options := envoy.GRPCClusterOptions{
		Name:        name,
		MaxRequests: uint32(max(o.Policy().GetConnectionPool().GetHttp().GetHttp2MaxRequests(), 0)),
		Metadata:    o.Metadata(),
	}
	balance(o.Policy().GetLoadBalancer(), &options)
	if o.Type(v.Shape()) == envoy.EDS {
		return resource.New(name, envoy.GRPCCluster(options), name)
	}
	localities := o.Localities(v.Shape(), o.Service.DNSEndpoints)
	if len(localities) == 0 {
		return nil, nil
	}
	options.DNS = &localities[0].Endpoints[0]
	out, err := resource.New(name, envoy.GRPCCluster(options))
	if err != nil {
		return nil, err
	}
	out.Resolves = true
	return out, nil
}

// Empty implements generate.Emptier: a cluster without endpoints.
func (Clusters) Empty(name string) (*resource.Resource, error) {
	return resource.New(name, envoy.GRPCCluster(envoy.GRPCClusterOptions{Name: name, Policy: envoy.RoundRobin}), name)
}

// balance chooses the load balancer: round robin, gRPC's own, unless the settings
// ask for what else it has.
func balance(settings *networking.LoadBalancerSettings, o *envoy.GRPCClusterOptions) {
	o.Policy = envoy.RoundRobin
	if hash := settings.GetConsistentHash(); hash != nil {
		o.Policy = envoy.RingHash
		o.MinimumRingSize = hash.GetRingHash().GetMinimumRingSize()
		return
	}
	switch settings.GetSimple() {
	//lint:ignore SA1019 Istio takes the deprecated name still.
	case networking.LoadBalancerSettings_LEAST_REQUEST, networking.LoadBalancerSettings_LEAST_CONN:
		o.Policy = envoy.LeastRequest
	}
}
