package meshconfig

import (
	"slices"
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

type provider = meshv1alpha1.MeshConfig_ExtensionProvider

// The providers that every mesh has, unless it has another of the name. (Istio: DefaultMeshConfig.)
var builtin = []*provider{
	{Name: "envoy", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{
		EnvoyFileAccessLog: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{Path: "/dev/stdout"},
	}},
	{Name: "prometheus", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_Prometheus{
		Prometheus: &meshv1alpha1.MeshConfig_ExtensionProvider_PrometheusMetricsProvider{},
	}},
}

// Provider returns the provider with a name, of either case, as Telemetries name it; nil for none.
func (c *Config) Provider(name string) *meshv1alpha1.MeshConfig_ExtensionProvider {
	for _, p := range slices.Concat(c.GetExtensionProviders(), builtin) {
		if strings.EqualFold(p.GetName(), name) {
			return p
		}
	}
	return nil
}

// NamesServices says whether the mesh has a provider of traces that does not take the name of a
// proxy's service from its node.
func (c *Config) NamesServices() bool {
	return slices.ContainsFunc(c.GetExtensionProviders(), func(p *provider) bool {
		return p.GetOpentelemetry() != nil || p.GetDatadog() != nil
	})
}
