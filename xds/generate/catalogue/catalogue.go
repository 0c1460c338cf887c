// Package catalogue lists the resource types that Portolan serves, in the order in which it
// sends them. Resources that send traffic to clusters come after the clusters.
package catalogue

import (
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/generate/endpoint"
	"github.com/portolan-mesh/portolan/xds/generate/envoyfilter"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/generate/nametable"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/generate/probe"
	"github.com/portolan-mesh/portolan/xds/generate/proxyconfig"
	"github.com/portolan-mesh/portolan/xds/generate/proxyless"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/generate/secret"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Types returns the types of resources that Portolan serves. New types are added here.
func Types() []generate.ResourceType {
	need := func(kind resource.NeedKind, typeURL string) resource.Need {
		return resource.Need{TypeURL: typeURL, Kind: kind}
	}
	traffic, secrets := need(resource.Traffic, resource.ClusterType), need(resource.Once, resource.SecretType)
	policies := need(resource.Once, resource.ExtensionType)
	return []generate.ResourceType{
		generate.ResourceType{
			Name: "CDS", Generator: cluster.Generator{}, Inbound: cluster.Inbound{}, Proxyless: proxyless.Clusters{}, Full: true,
			Needs: []resource.Need{need(resource.Covered, resource.EndpointType), need(resource.Grace, ""), secrets},
		}.Patched(envoyfilter.Clusters{}),
		{Name: "EDS", Generator: endpoint.Generator{}, Inbound: endpoint.Local{}, SelfDiscovery: true, Proxyless: proxyless.Endpoints{}},
		generate.ResourceType{
			Name: "LDS", Generator: listener.Generator{}, Inbound: listener.Inbound{}, Proxyless: proxyless.Listeners{}, Server: proxyless.Servers{}, Full: true,
			Needs: []resource.Need{need(resource.Warm, resource.RouteType), traffic, secrets, policies},
		}.Patched(envoyfilter.Listeners{}),
		generate.ResourceType{
			Name: "RDS", Generator: route.Generator{}, Proxyless: proxyless.Routes{},
			Needs: []resource.Need{need(resource.Within, resource.VirtualHostType), traffic},
		}.Patched(envoyfilter.Routes{}),
		generate.ResourceType{
			Name: "VHDS", Generator: virtualhost.Generator{}, Full: true, Scoped: true, Needs: []resource.Need{traffic},
		}.Patched(envoyfilter.VirtualHosts{}),
		{Name: "ECDS", Generator: envoyfilter.Extensions{}, Needed: true, Alike: true, Otherwise: envoyfilter.Otherwise, Turn: policy.Turn, Needs: []resource.Need{traffic}},
		{Name: "SDS", Generator: secret.Generator{}, Needed: true},
		{Name: "NDS", Generator: nametable.Table{}, Full: true},
		{Name: "NAMES", Generator: nametable.Hosts{}, Full: true},
		{Name: "PROXY", Generator: proxyconfig.Generator{}, Inbound: proxyconfig.Generator{}, Machine: true, Full: true},
		{Name: "BOOTSTRAP", Generator: envoyfilter.Bootstrap{}, Inbound: envoyfilter.Bootstrap{}, Machine: true, Full: true},
		{Name: "PROBE", Generator: probe.Generator{}, Inbound: probe.Generator{}, Machine: true, Full: true},
	}
}
