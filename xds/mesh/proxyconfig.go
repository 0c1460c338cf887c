package mesh

import (
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// ProxyConfig returns the configuration by which the resources of the proxy are made, as a mesh
// configuration that has at most defaultConfig: what the proxy states itself, over that of the mesh.
func (v *View) ProxyConfig() *meshconfig.Config {
	return v.Mesh(DefaultProxyConfig).Over(v.ask(Self, selfSettings, "").(discovery.ProxySettings))
}

// IsGateway says whether the proxy is a gateway.
func (v *View) IsGateway() bool { return v.class.Shape.Type == discovery.Router }
