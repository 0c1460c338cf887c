// Package catalogue is the list of the resource types that Portolan serves, in
// the order in which they are sent: what refers comes after what it refers to.
package catalogue

import (
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/generate/endpoint"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/generate/proxyless"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
)

// Types are the resource types served. A type of resources is added here.
func Types() []xds.ResourceType {
	return []xds.ResourceType{
		{Name: "CDS", Generator: cluster.Generator{}, Inbound: cluster.Inbound{}, Proxyless: proxyless.Clusters{}, Full: true, Target: true},
		{Name: "EDS", Generator: endpoint.Generator{}, Proxyless: proxyless.Endpoints{}, Parent: cluster.TypeURL, CoverParent: true},
		{Name: "LDS", Generator: listener.Generator{}, Inbound: listener.Inbound{}, Proxyless: proxyless.Listeners{}, Full: true},
		{Name: "RDS", Generator: route.Generator{}, Proxyless: proxyless.Routes{}, Parent: listener.TypeURL},
		{Name: "VHDS", Generator: virtualhost.Generator{}, Parent: route.TypeURL, Full: true, Scoped: true},
	}
}
