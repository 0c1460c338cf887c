// Package meshconfig is the configuration of the whole mesh, Istio's MeshConfig: its
// defaults, the fields that have an effect, and its YAML.
package meshconfig

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
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
			LocalityLbSetting:              &networking.LocalityLoadBalancerSetting{Enabled: wrapperspb.Bool(true)},
		},
	}
}

// The fields of MeshConfig that have an effect. Those of its defaultConfig are in package schema.
var served = map[protoreflect.Name]bool{
	"connect_timeout": true, "root_namespace": true, "trust_domain": true, "access_log_file": true,
	"outbound_traffic_policy": true, "default_service_export_to": true, "default_virtual_service_export_to": true,
	"default_destination_rule_export_to": true, "access_log_format": true, "access_log_encoding": true,
	"default_config": true, "proxy_listen_port": true, "proxy_inbound_listen_port": true, "inbound_traffic_policy": true,
	"protocol_detection_timeout": true, "default_http_retry_policy": true, "locality_lb_setting": true, "zone_aware_lb_setting": true,
	"tcp_keepalive": true, "h2_upgrade_policy": true,
	"dns_refresh_rate": true, "inbound_cluster_stat_name": true, "outbound_cluster_stat_name": true,
	"proxy_http_port": true, "tls_defaults": true, "mesh_mTLS": true, "enable_auto_mtls": true, "extension_providers": true, "path_normalization": true, "trust_domain_aliases": true,
}

// Envoy accepts DNS refresh rates between these.
const leastRefresh, mostRefresh = 2 * time.Millisecond, 365 * 24 * time.Hour

// Parse parses a MeshConfig in YAML, strictly, and merges it over the defaults. The error
// names all faults. The warnings, in order, name settings that have no effect or only a
// part of their effect.
func Parse(document []byte) (c *Config, warnings []string, err error) {
	over := &meshv1alpha1.MeshConfig{}
	if err := config.DecodeMessage("meshConfig", document, over); err != nil {
		return nil, nil, err
	}
	var faults *multierror.Error
	if t := over.GetConnectTimeout(); t != nil && t.AsDuration() < time.Millisecond {
		faults = multierror.Append(faults, fmt.Errorf("meshConfig.connectTimeout: must be at least 1ms, is %s", t.AsDuration()))
	}
	if t := over.GetDnsRefreshRate(); t != nil && (t.AsDuration() < leastRefresh || t.AsDuration() > mostRefresh) {
		faults = multierror.Append(faults, fmt.Errorf("meshConfig.dnsRefreshRate: must be from %s to %s, is %s", leastRefresh, mostRefresh, t.AsDuration()))
	}
	faults = multierror.Append(faults, checkOutboundTrafficPolicy(over.GetOutboundTrafficPolicy()))
	faults = multierror.Append(faults, schema.CheckProxyConfig("meshConfig.defaultConfig", over.GetDefaultConfig()))
	faults = multierror.Append(faults, checkTLS("meshConfig.tlsDefaults", over.GetTlsDefaults()), checkTLS("meshConfig.meshMTLS", over.GetMeshMTLS()))
	if len(over.GetMeshMTLS().GetEcdhCurves()) > 0 {
		faults = multierror.Append(faults, errors.New("meshConfig.meshMTLS.ecdhCurves: workloads agree on one of Envoy's curves: leave it out"))
	}
	if port := over.GetProxyHttpPort(); port < 0 || port > 65535 {
		faults = multierror.Append(faults, fmt.Errorf("meshConfig.proxyHttpPort: must be a port from 1 to 65535, or 0 for none, is %d", port))
	}
	faults = multierror.Append(faults,
		schema.CheckLocalityLbSetting("meshConfig.localityLbSetting", over.GetLocalityLbSetting()),
		schema.CheckZoneAwareLbSetting("meshConfig.zoneAwareLbSetting", over.GetZoneAwareLbSetting()))
	faults = multierror.Append(faults,
		schema.CheckTCPKeepalive("meshConfig.tcpKeepalive", over.GetTcpKeepalive()),
		schema.CheckExportTo("meshConfig.defaultServiceExportTo", over.GetDefaultServiceExportTo()),
		schema.CheckExportTo("meshConfig.defaultVirtualServiceExportTo", over.GetDefaultVirtualServiceExportTo()),
		schema.CheckExportTo("meshConfig.defaultDestinationRuleExportTo", over.GetDefaultDestinationRuleExportTo()))
	faults = multierror.Append(faults, schema.CheckRetries("meshConfig.defaultHttpRetryPolicy", over.GetDefaultHttpRetryPolicy()))
	faults = multierror.Append(faults, checkProviders(over.GetExtensionProviders()), checkPathNormalization(over.GetPathNormalization()))
	if err := faults.ErrorOrNil(); err != nil {
		return nil, nil, err
	}
	warnings = slices.Concat(
		unserved("meshConfig", over, served),
		idleTLS(over.GetOutboundTrafficPolicy()),
		schema.UnservedProxyConfig("meshConfig.defaultConfig", over.GetDefaultConfig()),
		ruleExport(over.GetDefaultDestinationRuleExportTo()),
		unknownParameters("meshConfig.tlsDefaults", over.GetTlsDefaults()),
		unknownParameters("meshConfig.meshMTLS", over.GetMeshMTLS()),
		idleSuites(over.GetMeshMTLS()),
		idleProviders(over.GetExtensionProviders()),
	)
	c = Default()
	into := c.MeshConfig.ProtoReflect()
	over.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		into.Set(field, value)
		return true
	})
	return c, warnings, nil
}

// checkOutboundTrafficPolicy refuses an unknown mode, and TLS settings that cannot work
// with an unknown host.
func checkOutboundTrafficPolicy(p *meshv1alpha1.MeshConfig_OutboundTrafficPolicy) error {
	const path = "meshConfig.outboundTrafficPolicy"
	mode, tls := p.GetMode(), p.GetTls()
	var faults *multierror.Error
	if _, known := meshv1alpha1.MeshConfig_OutboundTrafficPolicy_Mode_name[int32(mode)]; !known {
		faults = multierror.Append(faults, fmt.Errorf("%s.mode: %s is unknown: use ALLOW_ANY, ALLOW_ANY_DYNAMIC_DNS or REGISTRY_ONLY", path, mode))
	}
	if tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL {
		faults = multierror.Append(faults, fmt.Errorf("%s.tls.mode: ISTIO_MUTUAL is for workloads of the mesh, and unknown hosts are none: use SIMPLE or MUTUAL", path))
	}
	if tls.GetCredentialName() != "" {
		faults = multierror.Append(faults, fmt.Errorf("%s.tls.credentialName: sidecars have no secret by the mesh configuration: name files of their machines instead", path))
	}
	if err := schema.CheckClientTLS(path+".tls", tls); err != nil {
		faults = multierror.Append(faults, err)
	}
	return faults.ErrorOrNil()
}

// idleTLS warns of TLS settings if the mode is not ALLOW_ANY_DYNAMIC_DNS.
func idleTLS(p *meshv1alpha1.MeshConfig_OutboundTrafficPolicy) []string {
	if p.GetTls() == nil || p.GetMode() == meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS {
		return nil
	}
	return []string{fmt.Sprintf("meshConfig.outboundTrafficPolicy.tls has no effect with the mode %s: it is for ALLOW_ANY_DYNAMIC_DNS", p.GetMode())}
}

// checkPathNormalization refuses unknown values.
func checkPathNormalization(n *meshv1alpha1.MeshConfig_ProxyPathNormalization) error {
	if _, known := meshv1alpha1.MeshConfig_ProxyPathNormalization_NormalizationType_name[int32(n.GetNormalization())]; !known {
		return fmt.Errorf("meshConfig.pathNormalization.normalization: %s is unknown: use NONE, BASE, MERGE_SLASHES or DECODE_AND_MERGE_SLASHES", n.GetNormalization())
	}
	return nil
}

// ruleExport warns if the default exportTo of DestinationRules is treated as "*".
func ruleExport(values []string) []string {
	if len(values) == 0 || slices.Equal(values, []string{"*"}) || slices.Equal(values, []string{"."}) {
		return nil
	}
	return []string{`meshConfig.defaultDestinationRuleExportTo stands for every namespace: only "." limits it`}
}

// unserved returns warnings for the fields of a message that are set but have no effect.
func unserved(path string, m proto.Message, served map[protoreflect.Name]bool) []string {
	var out []string
	m.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !served[field.Name()] {
			out = append(out, fmt.Sprintf("%s.%s is not served yet and has no effect", path, field.JSONName()))
		}
		return true
	})
	slices.Sort(out)
	return out
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
