// Package certificate has the JSON shapes by which a workload gets a certificate from
// the config API.
package certificate

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Path takes a POST of a Request, and answers with a Certificate. The client proves its
// identity by a credential, "Authorization: Bearer CREDENTIAL", or by a client
// certificate, which it renews in this way. A certificate that has expired is taken only on a
// connection of RenewalProtocol.
const Path = "/apis/portolan.io/v1/certificates"

// RenewalProtocol is what a client offers by ALPN, beside http/1.1, to renew a certificate that
// may have expired. The connection speaks HTTP/1.1 and reaches Path alone. Its handshake proves
// only that the client has the key of the certificate: whoever answers Path verifies the rest.
const RenewalProtocol = "portolan-renewal/1"

// The kinds of the shapes.
const (
	APIVersion  = "portolan.io/v1"
	RequestKind = "CertificateRequest"
	Kind        = "Certificate"
)

// Request asks for a certificate.
type Request struct {
	metav1.TypeMeta `json:",inline"`
	// CSR is a certificate signing request in PEM. It has no names, or the identity that
	// its sender proves.
	CSR string `json:"csr"`
	// TTL is how long the certificate should be valid, such as 24h; empty is the default
	// of the server.
	TTL string `json:"ttl,omitempty"`
}

// Certificate is the answer.
type Certificate struct {
	metav1.TypeMeta `json:",inline"`
	// Identity is the identity in the certificate, spiffe://...
	Identity string `json:"identity"`
	Serial   string `json:"serial"`
	// Chain is the certificate and its intermediate certificates, in PEM.
	Chain string `json:"chain"`
	// Roots are all trusted roots, in PEM. They change while a root is replaced.
	Roots     string    `json:"roots"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
}

// RootsPath answers a GET with Roots. It needs no right.
const RootsPath = "/apis/portolan.io/v1/roots"

// Roots are the roots of a server's certificate, in PEM; none if its certificate comes
// from a file. The client verifies them by a token.
type Roots struct {
	metav1.TypeMeta `json:",inline"`
	Roots           string `json:"roots,omitempty"`
}
