package cluster

import (
	"iter"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Inbound makes the clusters that lead to a sidecar's own application. They belong to its
// workload alone.
type Inbound struct{}

var _ generate.Generator = Inbound{}

// TypeURL implements generate.Generator.
func (Inbound) TypeURL() string { return resource.ClusterType }

// Affected implements generate.Generator.
func (Inbound) Affected(v *mesh.View, _ mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if v.Shape().Type != discovery.Sidecar || v.Shape().Captures() && !yield(names.InboundPassthroughCluster) {
			return
		}
		for _, p := range workload.Ports(v) {
			if !yield(p.Cluster()) {
				return
			}
		}
	}
}

// Build implements generate.Generator.
func (Inbound) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	if v.Shape().Type != discovery.Sidecar {
		return nil, nil, nil
	}
	if name == names.InboundPassthroughCluster {
		if !v.Shape().Captures() {
			return nil, nil, nil
		}
		return upstream.Cluster(ofProxy(v, discovery.Unsupported, upstream.InboundPassthroughCluster(connectTimeout(v), passthroughSources(v.Shape())...))), nil, nil
	}
	p, ok := workload.Find(v, name)
	if !ok {
		return nil, nil, nil
	}
	return inbound(v, name, p), nil, nil
}

// inbound makes the cluster of a port of the workload. It is nil if the application's
// address is unknown.
func inbound(v *mesh.View, name string, p workload.Port) proto.Message {
	to, original, ok := p.Application(v)
	if !ok {
		return nil
	}
	options := upstream.ClusterOptions{
		Name: name, AltStatName: InboundStatName(v, p), Type: upstream.Static, ConnectTimeout: connectTimeout(v),
	}
	policy := inboundPolicy(v, p)
	apply(policy, p.Protocol, false, &options)
	options.Keepalive = keepalive(v, policy)
	if original {
		options.Type, options.SourceAddresses = upstream.OriginalDst, passthroughSources(v.Shape())
	} else {
		options.Endpoints = []upstream.Endpoints{{Endpoints: []upstream.Endpoint{to}}}
	}
	if p.Protocol == discovery.Unsupported && p.Captured(v.Shape()) {
		options.HTTP = detectedHTTP(options.HTTP)
	}
	options = ofProxy(v, p.Protocol, options)
	for _, s := range p.Services {
		options.Metadata.Services = append(options.Metadata.Services, serviceRef(s))
	}
	return upstream.Cluster(options)
}

// inboundPolicy returns the connection limits towards the application. The Sidecar
// decides, else the rule that the service has for its clients; nothing else of that rule
// applies to the application.
func inboundPolicy(v *mesh.View, p workload.Port) *networking.TrafficPolicy {
	pool := p.Ingress.GetConnectionPool()
	if pool == nil {
		pool = v.InboundConnectionPool()
	}
	if pool == nil && len(p.Services) > 0 {
		pool = v.ServerRule(p.Services[0]).PolicyFor("", p.ServicePort).GetConnectionPool()
	}
	if pool == nil {
		return nil
	}
	return &networking.TrafficPolicy{ConnectionPool: pool}
}

// passthroughSources returns the source addresses for connections that go to the
// application at their original destination. The machine's redirection rules exempt these
// sources. A transparent proxy keeps the client's address and needs none.
func passthroughSources(of mesh.Shape) []string {
	var out []string
	if of.Interception == discovery.InterceptionTproxy {
		return nil
	}
	if of.IPv4 {
		out = append(out, "127.0.0.6")
	}
	if of.IPv6 {
		out = append(out, "::6")
	}
	return out
}
