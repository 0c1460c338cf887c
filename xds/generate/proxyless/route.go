package proxyless

import (
	"fmt"
	"iter"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Routes makes route configurations, one for each port of a service.
type Routes struct{}

var (
	_ generate.Generator = Routes{}
	_ generate.Emptier   = Routes{}
	_ generate.Announcer = Routes{}
)

// TypeURL implements generate.Generator.
func (Routes) TypeURL() string { return resource.RouteType }

// Affected implements generate.Generator.
func (Routes) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return eachName(v, d, port.routeConfig)
}

// Build implements generate.Generator. Routes announce the clusters that they are likely
// to have next. This helps clients that come from another server, since this server does
// not know which resources they have.
func (Routes) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	ref, ok := names.ParseCluster(name)
	p := port{ref.Host, int(ref.Port)}
	if !ok || p.routeConfig() != name {
		return nil, nil, nil
	}
	l, service := p.find(v)
	if service == nil {
		return nil, nil, nil
	}
	config := envoy.GRPCRouteConfig(envoy.GRPCRouteConfigOptions{
		Name: name, Host: p.host, Port: uint32(p.number),
		Routes:    virtualhost.RoutesTo(v, l, service, p.number),
		Announced: virtualhost.DestinationsTo(v, l, service, p.number),
	})
	return config, resource.TrafficTo(envoy.ClustersOf(config.GetVirtualHosts()...)), nil
}

// Announce implements generate.Announcer. It adds routes to the new clusters behind a
// route that matches every call.
func (Routes) Announce(has *resource.Resource, clusters []string) (proto.Message, error) {
	config := &routev3.RouteConfiguration{}
	if err := has.Body.UnmarshalTo(config); err != nil {
		return nil, fmt.Errorf("routes %s: %w", has.Name, err)
	}
	envoy.AnnounceClusters(config, clusters)
	return config, nil
}

// Empty implements generate.Emptier. Its routes lead nowhere.
func (Routes) Empty(name string) (proto.Message, []resource.Need, error) {
	return envoy.EmptyGRPCRouteConfig(name), nil, nil
}
