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

// ProxySecret is what may be shown of a secret that a proxy has acknowledged: certificates,
// which every peer of the proxy sees, but never a key.
type ProxySecret struct {
	// Kind is KindCertificate if there is a key with it, or KindAuthorities.
	Kind string `json:"kind"`
	// Certificates are the chain, the leaf first, or the authorities. Their Entry is empty.
	Certificates []secret.Certificate `json:"certificates,omitempty"`
	// File is the path on the proxy's machine, if the proxy reads them there. Then the server
	// does not know them.
	File string `json:"file,omitempty"`
}

// proxySecret describes a secret, nil for another resource.
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
