package admin

import (
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// The kinds of a ProxySecret.
const (
	KindCertificate = "certificate"
	KindAuthorities = "authorities"
)

// ProxySecret is what is shown of a secret that a proxy has acknowledged: certificates, which
// every peer of the proxy sees, and never a key.
type ProxySecret struct {
	// Kind is KindCertificate, which comes with a key, or KindAuthorities.
	Kind string `json:"kind"`
	// Certificates are the chain, its own certificate first, or the authorities. Entry is
	// empty in them.
	Certificates []secret.Certificate `json:"certificates,omitempty"`
	// File has them instead, on the machine of the proxy: the server does not know them.
	File string `json:"file,omitempty"`
}

// proxySecret describes a secret, nil for what is none.
func proxySecret(r *resource.Resource) *ProxySecret {
	if r == nil || r.Body.GetTypeUrl() != resource.SecretType {
		return nil
	}
	message := &tlsv3.Secret{}
	if r.Body.UnmarshalTo(message) != nil {
		return nil
	}
	out, source := &ProxySecret{}, message.GetTlsCertificate().GetCertificateChain()
	switch {
	case message.GetTlsCertificate() != nil:
		out.Kind = KindCertificate
	case message.GetValidationContext() != nil:
		out.Kind, source = KindAuthorities, message.GetValidationContext().GetTrustedCa()
	default:
		return nil
	}
	out.File, out.Certificates = source.GetFilename(), secret.Certificates(map[string][]byte{"": source.GetInlineBytes()})
	return out
}
