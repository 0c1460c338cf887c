package meshconfig

import (
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
