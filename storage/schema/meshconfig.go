package schema

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portolan-mesh/portolan/storage/config"
)

// MeshConfigName is the name of the one MeshConfig, which is in the root namespace of the mesh.
const MeshConfigName = "default"

func meshConfig() *Schema {
	s := definition[*meshv1alpha1.MeshConfig]{
		kind: MeshConfig, plural: "meshconfigs",
		codec:  config.Protobuf[meshv1alpha1.MeshConfig](),
		served: meshConfigFields(),
		check:  checkMeshConfigObject,
	}.schema()
	s.Internal = true
	return s
}

func checkMeshConfigObject(c checker, m *meshv1alpha1.MeshConfig) {
	if c.report.object.Name != MeshConfigName {
		c.report.at("metadata").at("name").fail("must be %s: a mesh has one MeshConfig", MeshConfigName)
	}
	for _, name := range fileOnly {
		if fieldSet(m, name) {
			c.at(name).fail("%s", ofServersFile)
		}
	}
	checkMeshConfig(c, m)
}

// WithoutFileOnly returns a MeshConfig without the fields that an object must not set. It returns m
// itself if it has none of them.
func WithoutFileOnly(m *meshv1alpha1.MeshConfig) *meshv1alpha1.MeshConfig {
	if !slices.ContainsFunc(fileOnly, func(name string) bool { return fieldSet(m, name) }) {
		return m
	}
	out := &meshv1alpha1.MeshConfig{}
	m.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if !slices.Contains(fileOnly, field.JSONName()) {
			out.ProtoReflect().Set(field, value)
		}
		return true
	})
	return out
}

// CheckMeshConfig reports on a MeshConfig that is no object, whose fields stand at paths from
// name. The warnings, in order, name settings that have no effect or only a part of it. The
// error is a *multierror.Error of *FieldError that has all faults, or nil.
func CheckMeshConfig(name string, m *meshv1alpha1.MeshConfig) (warnings []string, err error) {
	r := &Report{}
	checkMeshConfig(r.at(name), m)
	r.at(name).unserved(m.ProtoReflect(), meshConfigFields())
	return r.texts(), r.faults.ErrorOrNil()
}

// Envoy accepts DNS refresh rates between these.
const leastRefresh, mostRefresh = 2 * time.Millisecond, 365 * 24 * time.Hour

func checkMeshConfig(c checker, m *meshv1alpha1.MeshConfig) {
	c.at("connectTimeout").lasts(m.GetConnectTimeout(), time.Millisecond)
	if t := m.GetDnsRefreshRate(); t != nil && (t.AsDuration() < leastRefresh || t.AsDuration() > mostRefresh) {
		c.at("dnsRefreshRate").fail("must be from %s to %s, is %s", leastRefresh, mostRefresh, t.AsDuration())
	}
	if port := m.GetProxyHttpPort(); port < 0 || port > 65535 {
		c.at("proxyHttpPort").fail("must be a port from 1 to 65535, or 0 for none, is %d", port)
	}
	checkUnknownHosts(c.at("outboundTrafficPolicy"), m.GetOutboundTrafficPolicy())
	checkMeshTLS(c.at("tlsDefaults"), m.GetTlsDefaults())
	checkMeshTLS(c.at("meshMTLS"), m.GetMeshMTLS())
	checkWorkloadTLS(c.at("meshMTLS"), m.GetMeshMTLS())
	c.at("localityLbSetting").localityLbSetting(m.GetLocalityLbSetting())
	c.at("zoneAwareLbSetting").zoneAwareLbSetting(m.GetZoneAwareLbSetting())
	c.at("tcpKeepalive").tcpKeepalive(m.GetTcpKeepalive())
	c.at("defaultServiceExportTo").meshExportTo(m.GetDefaultServiceExportTo())
	c.at("defaultVirtualServiceExportTo").meshExportTo(m.GetDefaultVirtualServiceExportTo())
	c.at("defaultDestinationRuleExportTo").meshExportTo(m.GetDefaultDestinationRuleExportTo())
	if rules := m.GetDefaultDestinationRuleExportTo(); len(rules) > 0 && !slices.Equal(rules, []string{"*"}) && !slices.Equal(rules, []string{"."}) {
		c.at("defaultDestinationRuleExportTo").warn(`stands for every namespace: only "." limits it`)
	}
	checkConnectionPool(c.at("defaultTrafficPolicy", "connectionPool"), m.GetDefaultTrafficPolicy().GetConnectionPool())
	checkOutlierDetection(c.at("defaultTrafficPolicy", "outlierDetection"), m.GetDefaultTrafficPolicy().GetOutlierDetection())
	c.at("ingressControllerMode").knownValue(m.GetIngressControllerMode(), "OFF, DEFAULT or STRICT")
	c.at("ingressSelector").syntax(m.GetIngressSelector(), validation.IsValidLabelValue) // the value of a label of gateways
	c.at("ingressService").syntax(m.GetIngressService(), validation.IsValidLabelValue)
	checkRetries(c.at("defaultHttpRetryPolicy"), m.GetDefaultHttpRetryPolicy())
	c.at("discoverySelectors").discoverySelectors(m.GetDiscoverySelectors())
	checkProviders(c.at("extensionProviders"), m.GetExtensionProviders())
	c.at("pathNormalization", "normalization").knownValue(m.GetPathNormalization().GetNormalization(), "NONE, BASE, MERGE_SLASHES or DECODE_AND_MERGE_SLASHES")
	checkMeshProxyConfig(c.at("defaultConfig"), m.GetDefaultConfig())
	checkDefaultProviders(c.at("defaultProviders"), m.GetDefaultProviders())
	if v := m.GetServiceEntryVisibility(); v.GetApplyToSidecars() {
		c.at("serviceEntryVisibility", "applyToSidecars").insecure("has no effect here: ServiceEntries that it would hide stay visible: use defaultServiceExportTo and exportTo")
	}
}

// meshExportTo checks as exportTo does. What is a warning on one object is a fault for the whole mesh.
func (c checker) meshExportTo(values []string) {
	before := len(c.report.warnings)
	c.exportTo(values)
	for _, w := range c.report.warnings[before:] {
		c.report.Fault(w.Field, "%s", w.Message)
	}
	c.report.warnings = c.report.warnings[:before]
}

// checkUnknownHosts refuses an unknown mode, and TLS settings that cannot work
// with an unknown host.
func checkUnknownHosts(c checker, p *meshv1alpha1.MeshConfig_OutboundTrafficPolicy) {
	mode, tls := p.GetMode(), p.GetTls()
	c.at("mode").knownValue(mode, "ALLOW_ANY, ALLOW_ANY_DYNAMIC_DNS or REGISTRY_ONLY")
	if tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL {
		c.at("tls", "mode").fail("ISTIO_MUTUAL is for workloads of the mesh, and unknown hosts are none: use SIMPLE or MUTUAL")
	}
	if tls.GetCredentialName() != "" {
		c.at("tls", "credentialName").fail("sidecars have no secret by the mesh configuration: name files of their machines instead")
	}
	checkClientTLS(c.at("tls"), tls)
	if tls != nil && mode != meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS {
		c.at("tls").warn("has no effect with the mode %s: it is for ALLOW_ANY_DYNAMIC_DNS", mode)
	}
}

// checkMeshTLS refuses an unknown version, and cipher suites without which proxies would allow
// more than was meant. It warns of what is not sent to proxies.
func checkMeshTLS(c checker, d *meshv1alpha1.MeshConfig_TLSConfig) {
	c.at("minProtocolVersion").knownValue(d.GetMinProtocolVersion(), "TLSV1_2 or TLSV1_3")
	for i, suite := range d.GetCipherSuites() {
		if strings.HasPrefix(suite, "!") || strings.HasPrefix(suite, "-") {
			c.at("cipherSuites").index(i).fail("%q takes suites away: write out those that may be used", suite)
		}
	}
	taken, unknown := CipherSuites(d.GetCipherSuites())
	if len(taken) == 0 && len(unknown) > 0 {
		c.at("cipherSuites").fail("Envoy knows none of them: name one such as ECDHE-ECDSA-AES256-GCM-SHA384, or leave the field out")
	}
	for _, name := range unknown {
		c.at("cipherSuites").warn("names %q, which Envoy does not know and which is left out", name)
	}
	_, curves := Curves(d.GetEcdhCurves())
	for _, name := range curves {
		c.at("ecdhCurves").warn("names %q, which Envoy does not know and which is left out", name)
	}
}

// checkWorkloadTLS checks what is particular to the TLS between workloads.
func checkWorkloadTLS(c checker, d *meshv1alpha1.MeshConfig_TLSConfig) {
	if len(d.GetEcdhCurves()) > 0 {
		c.at("ecdhCurves").fail("workloads agree on one of Envoy's curves: leave it out")
	}
	if least := d.GetMinProtocolVersion(); len(d.GetCipherSuites()) > 0 && least == meshv1alpha1.MeshConfig_TLSConfig_TLSV1_3 {
		c.at("cipherSuites").warn("has no effect with minProtocolVersion %s: it is for TLS 1.2", least)
	}
}

// MeshConfigElsewhere returns why an object of the kind MeshConfig has no effect in its namespace, nil if
// it has one.
func MeshConfigElsewhere(key config.Key, root string) *FieldError {
	if key.Kind != MeshConfig || key.Namespace == root {
		return nil
	}
	return &FieldError{"metadata.namespace", fmt.Sprintf("the MeshConfig is in the root namespace of the mesh: apply it with -n %s", root)}
}
