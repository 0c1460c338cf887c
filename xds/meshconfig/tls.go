package meshconfig

import (
	"fmt"
	"strings"

	"github.com/hashicorp/go-multierror"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/schema"
)

// checkTLS refuses an unknown version, and cipher suites without which proxies would allow
// more than was meant.
func checkTLS(path string, d *meshv1alpha1.MeshConfig_TLSConfig) error {
	var faults *multierror.Error
	least := d.GetMinProtocolVersion()
	if _, known := meshv1alpha1.MeshConfig_TLSConfig_TLSProtocol_name[int32(least)]; !known {
		faults = multierror.Append(faults, fmt.Errorf("%s.minProtocolVersion: %s is unknown: use TLSV1_2 or TLSV1_3", path, least))
	}
	for i, suite := range d.GetCipherSuites() {
		if strings.HasPrefix(suite, "!") || strings.HasPrefix(suite, "-") {
			faults = multierror.Append(faults, fmt.Errorf("%s.cipherSuites[%d]: %q takes suites away: write out those that may be used", path, i, suite))
		}
	}
	if known, unknown := schema.CipherSuites(d.GetCipherSuites()); len(known) == 0 && len(unknown) > 0 {
		faults = multierror.Append(faults, fmt.Errorf("%s.cipherSuites: Envoy knows none of them: name one such as ECDHE-ECDSA-AES256-GCM-SHA384, or leave the field out", path))
	}
	return faults.ErrorOrNil()
}

// unknownParameters warns of cipher suites and curves that are not sent to proxies.
func unknownParameters(path string, d *meshv1alpha1.MeshConfig_TLSConfig) (out []string) {
	_, suites := schema.CipherSuites(d.GetCipherSuites())
	for _, name := range suites {
		out = append(out, fmt.Sprintf("%s.cipherSuites: Envoy knows no cipher suite %q, which is left out", path, name))
	}
	_, curves := schema.Curves(d.GetEcdhCurves())
	for _, name := range curves {
		out = append(out, fmt.Sprintf("%s.ecdhCurves: Envoy knows no curve %q, which is left out", path, name))
	}
	return out
}

// idleSuites warns of cipher suites of workloads that speak no TLS which has these.
func idleSuites(d *meshv1alpha1.MeshConfig_TLSConfig) []string {
	if least := d.GetMinProtocolVersion(); len(d.GetCipherSuites()) > 0 && least == meshv1alpha1.MeshConfig_TLSConfig_TLSV1_3 {
		return []string{fmt.Sprintf("meshConfig.meshMTLS.cipherSuites has no effect with minProtocolVersion %s: it is for TLS 1.2", least)}
	}
	return nil
}
