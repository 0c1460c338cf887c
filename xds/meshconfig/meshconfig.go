// Package meshconfig is the configuration of the whole mesh, Istio's MeshConfig: its
// defaults, the fields that have an effect, and its YAML.
package meshconfig

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Config is the mesh configuration. It is never modified.
type Config struct {
	*meshv1alpha1.MeshConfig
	// Domain is the DNS suffix of short host names.
	Domain string
	// HTTP3 makes gateways serve HTTP/3, too. In Istio this is no mesh setting but the
	// server's, PILOT_ENABLE_QUIC_LISTENERS.
	HTTP3 bool
	// HostConsent demands that objects speak for hosts of other namespaces only with the right
	// to them, or with the consent of the namespace. Istio has no such setting.
	HostConsent bool
	// Object is the object that decides Fields, which are names as in the .proto, in order; the zero Key
	// if no object changes anything.
	Object config.Key
	Fields []string
}

// DefaultDomain is the default DNS suffix of short host names.
const DefaultDomain = "cluster.local"

// Default returns Istio's defaults (Istio: pkg/config/mesh/mesh.go).
func Default() *Config {
	return &Config{
		Domain: DefaultDomain,
		MeshConfig: &meshv1alpha1.MeshConfig{
			ConnectTimeout:                 durationpb.New(10 * time.Second),
			RootNamespace:                  "istio-system",
			TrustDomain:                    "cluster.local",
			AccessLogEncoding:              meshv1alpha1.MeshConfig_TEXT,
			OutboundTrafficPolicy:          &meshv1alpha1.MeshConfig_OutboundTrafficPolicy{Mode: meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY},
			DefaultServiceExportTo:         []string{"*"},
			DefaultVirtualServiceExportTo:  []string{"*"},
			DefaultDestinationRuleExportTo: []string{"*"},
			ProxyListenPort:                15001,
			DnsRefreshRate:                 durationpb.New(time.Minute),
			ProxyInboundListenPort:         15006,
			DefaultConfig:                  &meshv1alpha1.ProxyConfig{},
			EnableAutoMtls:                 wrapperspb.Bool(true),
			IngressControllerMode:          meshv1alpha1.MeshConfig_STRICT,
			IngressClass:                   "istio",
			IngressService:                 "istio-ingressgateway",
			LocalityLbSetting:              &networking.LocalityLoadBalancerSetting{Enabled: wrapperspb.Bool(true)},
		},
	}
}

// Parse parses a MeshConfig in YAML, strictly, and merges it over the defaults. The error
// names all faults. The warnings, in order, name settings that have no effect or only a
// part of their effect.
func Parse(document []byte) (c *Config, warnings []string, err error) {
	over := &meshv1alpha1.MeshConfig{}
	if err := config.DecodeMessage("meshConfig", document, over); err != nil {
		return nil, nil, err
	}
	if warnings, err = schema.CheckMeshConfig("meshConfig", over); err != nil {
		return nil, nil, err
	}
	return Default().With(over), warnings, nil
}

// Authorizer returns the external authorizer with a name, nil for none.
func (c *Config) Authorizer(name string) *meshv1alpha1.MeshConfig_ExtensionProvider {
	for _, p := range c.GetExtensionProviders() {
		if p.GetName() == name && (p.GetEnvoyExtAuthzHttp() != nil || p.GetEnvoyExtAuthzGrpc() != nil) {
			return p
		}
	}
	return nil
}

// TrustedProxies is the number of proxies in front of a gateway that are trusted to name
// the client.
func (c *Config) TrustedProxies() uint32 {
	return c.GetDefaultConfig().GetGatewayTopology().GetNumTrustedProxies()
}

// ProxyProtocol says whether connections to gateways begin with a PROXY protocol header.
func (c *Config) ProxyProtocol() bool {
	return c.GetDefaultConfig().GetGatewayTopology().GetProxyProtocol() != nil
}

// AllowAny says whether traffic to unknown hosts may pass.
func (c *Config) AllowAny() bool {
	return c.GetOutboundTrafficPolicy().GetMode() != meshv1alpha1.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY
}

// AllowAnyDynamicDNS says whether sidecars resolve the unknown hosts of requests and
// forward to them.
func (c *Config) AllowAnyDynamicDNS() bool {
	return c.GetOutboundTrafficPolicy().GetMode() == meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS
}

// PassesInbound says whether a sidecar forwards incoming traffic to its original
// destination, the default. Otherwise it goes to the loopback address.
func (c *Config) PassesInbound() bool {
	return c.GetInboundTrafficPolicy().GetMode() == meshv1alpha1.MeshConfig_InboundTrafficPolicy_PASSTHROUGH
}

// UpgradesToHTTP2 says whether proxies speak HTTP/2 to services whose rules do not
// decide.
func (c *Config) UpgradesToHTTP2() bool {
	return c.GetH2UpgradePolicy() == meshv1alpha1.MeshConfig_UPGRADE
}
