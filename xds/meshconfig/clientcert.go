package meshconfig

import (
	"fmt"

	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// ClientCertDetails are the parts of a client's certificate that a proxy writes into
// X-Forwarded-Client-Cert, besides its hash.
type ClientCertDetails struct {
	Subject, Cert, Chain, DNS, URI bool
}

// ForwardClientCert says how sidecars handle X-Forwarded-Client-Cert of incoming requests.
// Unset means APPEND_FORWARD. (Istio: pilot/pkg/networking/util/proxy_headers.go.)
func (c *Config) ForwardClientCert() meshv1alpha1.ForwardClientCertDetails {
	if set := c.GetDefaultConfig().GetProxyHeaders().GetForwardedClientCert(); set != meshv1alpha1.ForwardClientCertDetails_UNDEFINED {
		return set
	}
	return meshv1alpha1.ForwardClientCertDetails_APPEND_FORWARD
}

// ClientCertDetails are what sidecars write: the subject and the names, unless the
// configuration says otherwise. (Istio: buildSidecarInboundHTTPOpts.)
func (c *Config) ClientCertDetails() ClientCertDetails {
	set := c.GetDefaultConfig().GetProxyHeaders().GetSetCurrentClientCertDetails()
	usual := func(b *wrapperspb.BoolValue) bool { return b == nil || b.GetValue() }
	return ClientCertDetails{
		Subject: usual(set.GetSubject()), DNS: usual(set.GetDns()), URI: usual(set.GetUri()),
		Cert: set.GetCert().GetValue(), Chain: set.GetChain().GetValue(),
	}
}

// GatewayForwardClientCert says how gateways handle X-Forwarded-Client-Cert. Unset means
// SANITIZE_SET.
func (c *Config) GatewayForwardClientCert() meshv1alpha1.ForwardClientCertDetails {
	return c.GetDefaultConfig().GetGatewayTopology().GetForwardClientCertDetails()
}

// checkForwarding refuses unknown values of a field of defaultConfig.
func checkForwarding(field string, d meshv1alpha1.ForwardClientCertDetails) error {
	if _, known := meshv1alpha1.ForwardClientCertDetails_name[int32(d)]; !known {
		return fmt.Errorf("meshConfig.defaultConfig.%s: %s is unknown: use SANITIZE, FORWARD_ONLY, APPEND_FORWARD, SANITIZE_SET or ALWAYS_FORWARD_ONLY", field, d)
	}
	return nil
}

// idleDetails warns of parts of certificates where sidecars write no certificate.
func idleDetails(h *meshv1alpha1.ProxyConfig_ProxyHeaders) []string {
	if h.GetSetCurrentClientCertDetails() == nil {
		return nil
	}
	switch mode := h.GetForwardedClientCert(); mode {
	case meshv1alpha1.ForwardClientCertDetails_UNDEFINED, meshv1alpha1.ForwardClientCertDetails_APPEND_FORWARD, meshv1alpha1.ForwardClientCertDetails_SANITIZE_SET:
		return nil
	default:
		return []string{fmt.Sprintf("meshConfig.defaultConfig.proxyHeaders.setCurrentClientCertDetails has no effect with the mode %s: it is for APPEND_FORWARD and SANITIZE_SET", mode)}
	}
}
