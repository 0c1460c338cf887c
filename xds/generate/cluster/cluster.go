package cluster

import (
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/transport"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Generator makes clusters.
type Generator struct{}

var (
	_ generate.Generator   = Generator{}
	_ generate.Gatewayless = Generator{}
)

// TypeURL implements generate.Generator.
func (Generator) TypeURL() string { return resource.ClusterType }

// Gatewayless implements generate.Gatewayless.
func (Generator) Gatewayless() {}

// Affected implements generate.Generator.
func (Generator) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if d.Whole {
			for _, name := range []string{names.BlackHoleCluster, names.PassthroughCluster, names.AllowAnyDynamicDNSCluster} {
				if !yield(name) {
					return
				}
			}
		}
		Names(v, d)(yield)
	}
}

// Build implements generate.Generator.
func (Generator) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	switch name {
	case names.BlackHoleCluster:
		return upstream.BlackHoleCluster(connectTimeout(v)), nil, nil
	case names.PassthroughCluster:
		if v.Shape().Type == discovery.Router {
			return nil, nil, nil
		}
		return upstream.Cluster(ofProxy(v, discovery.Unsupported, upstream.PassthroughCluster(connectTimeout(v), keepalive(v, nil)))), nil, nil
	case names.AllowAnyDynamicDNSCluster:
		if v.Shape().Type != discovery.Sidecar || !v.AllowAnyDynamicDNS() {
			return nil, nil, nil
		}
		c, needs := anyHost(v)
		return c, needs, nil
	}
	if o, ok := Find(v, name); ok {
		return outbound(v, name, o)
	}
	return nil, nil, nil
}

// anyHost makes the cluster for requests to unknown hosts, which the proxy resolves. If
// the mesh requires TLS for them and the proxy lacks a secret for it, the cluster has no
// endpoints.
func anyHost(v *mesh.View) (proto.Message, []resource.Need) {
	options := upstream.ClusterOptions{
		Name: names.AllowAnyDynamicDNSCluster, Type: upstream.DynamicDNS, DNS: upstream.DNSOptions{Family: filter.DNSFamily(v.Shape())},
		ConnectTimeout: connectTimeout(v), Keepalive: keepalive(v, nil),
		HTTP: &upstream.HTTP{Protocol: upstream.UseDownstream},
	}
	options = ofProxy(v, discovery.Unsupported, options)
	socket, ok := transport.Client(v, v.Mesh(mesh.OutboundTrafficPolicy).GetOutboundTrafficPolicy().GetTls(), transport.ClientOptions{Resolves: true})
	if !ok {
		return withoutEndpoints(v, options), socket.Needs
	}
	options.Transport, options.HTTP.AutoSNI, options.HTTP.AutoSAN = socket.Transport, socket.AutoSNI, socket.AutoSAN
	return upstream.Cluster(options), socket.Needs
}

// outbound makes the cluster of a service's port. It returns nil for a cluster with
// inline endpoints if there are none.
func outbound(v *mesh.View, name string, o Outbound) (proto.Message, []resource.Need, error) {
	options := upstream.ClusterOptions{
		Name: name, AltStatName: StatName(v, o.Service, o.Subset.GetName(), o.Port),
		Type:           o.Type(v.Shape()),
		ConnectTimeout: connectTimeout(v),
		Metadata:       o.Metadata(),
	}
	apply(o.Policy(), o.Port.Protocol, upgrades(v, o.Policy(), o.Port.Protocol), &options)
	options.Keepalive = keepalive(v, o.Policy())
	if o.Port.Protocol == discovery.Unsupported && v.Shape().Captures() {
		options.HTTP = detectedHTTP(options.HTTP)
	}
	options = ofProxy(v, o.Port.Protocol, options)
	var needs []resource.Need
	switch options.Type {
	case upstream.EDS:
		needs = []resource.Need{{TypeURL: resource.EndpointType, Name: name, Kind: resource.Covered}}
	case upstream.StrictDNS, upstream.LogicalDNS:
		options.Endpoints = o.Selection(v).Arrange(o.LocalityPreference(v), o.Service.DNSEndpoints)
		if len(options.Endpoints) == 0 {
			return nil, nil, nil
		}
		options.DNS = upstream.DNSOptions{Family: filter.DNSFamily(v.Shape()), RefreshRate: dnsRefreshRate(v)}
		needs = []resource.Need{{Kind: resource.Grace}}
	case upstream.OriginalDst:
		options.PortOverride = uint32(o.Port.TargetPort)
	case upstream.DynamicDNS:
		options.DNS.Family = filter.DNSFamily(v.Shape())
	}
	secrets, ok := o.encrypt(v, &options)
	if !ok {
		return withoutEndpoints(v, options), nil, nil
	}
	needs = append(needs, secrets...)
	if options.Type != upstream.OriginalDst && options.Type != upstream.DynamicDNS {
		options.Check = o.healthCheck()
		options.LoadBalancer.PanicThreshold = o.healths().panicThreshold()
		options.LoadBalancer.LocalityWeighted = o.SpreadsByWeight(v)
		options.LoadBalancer.Zones = o.zones(v)
	}
	return upstream.Cluster(options), needs, nil
}

// Metadata names the service, subset and rule that the cluster comes from.
func (o Outbound) Metadata() message.ClusterMetadata {
	m := message.ClusterMetadata{
		Subset:   o.Subset.GetName(),
		External: o.Service.Service().MeshExternal,
		Services: []message.ServiceRef{serviceRef(o.Service)},
	}
	if o.Rule != nil {
		m.Config = configPath(o.Rule.Configs[0])
	}
	return m
}

func serviceRef(row *mesh.ServiceRow) message.ServiceRef {
	service := row.Service()
	name := service.Attributes.Name
	if service.Attributes.Provider == discovery.External {
		name = string(service.Hostname)
	}
	return message.ServiceRef{Host: string(service.Hostname), Name: name, Namespace: row.Namespace}
}

func configPath(c *config.Config) string {
	return names.ConfigPath(c.Group, c.Version, c.Kind, c.Namespace, c.Name)
}
