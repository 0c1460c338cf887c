// Package proxyconfig makes the ProxyConfig of a workload, for the agent of its machine: how many
// threads the Envoy has, what its bootstrap says, and how long it drains.
package proxyconfig

import (
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Generator makes the one resource of a workload. A workload for which nothing is set has none.
type Generator struct{}

var (
	_ generate.Generator   = Generator{}
	_ generate.Gatewayless = Generator{}
)

// TypeURL implements generate.Generator.
func (Generator) TypeURL() string { return resource.ProxyConfigType }

// Gatewayless implements generate.Gatewayless.
func (Generator) Gatewayless() {}

// Affected implements generate.Generator.
func (Generator) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if d.Whole && v.OwnProxyConfig() != nil {
			yield(resource.ProxyConfigName)
		}
	}
}

// Build implements generate.Generator.
func (Generator) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	if name != resource.ProxyConfigName {
		return nil, nil, nil
	}
	if out := v.OwnProxyConfig(); out != nil {
		return out, nil, nil
	}
	return nil, nil, nil
}
