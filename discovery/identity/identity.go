package identity

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Identity says who a workload is: a service account in a namespace of a trust domain. It is
// comparable. The zero Identity is nobody's.
type Identity struct {
	TrustDomain, Namespace, ServiceAccount string
}

// New returns an identity, or an error that names the part that a SPIFFE identity cannot have.
func New(trustDomain, namespace, serviceAccount string) (Identity, error) {
	domain, err := spiffeid.TrustDomainFromString(trustDomain)
	switch {
	case err != nil || domain.Name() != trustDomain:
		return Identity{}, fmt.Errorf("trust domain %q is not lower case letters, digits, dots, dashes and underscores", trustDomain)
	case spiffeid.ValidatePathSegment(namespace) != nil:
		return Identity{}, fmt.Errorf("namespace %q is not letters, digits, dots, dashes and underscores", namespace)
	case spiffeid.ValidatePathSegment(serviceAccount) != nil:
		return Identity{}, fmt.Errorf("service account %q is not letters, digits, dots, dashes and underscores", serviceAccount)
	}
	return Identity{TrustDomain: trustDomain, Namespace: namespace, ServiceAccount: serviceAccount}, nil
}

// Parse reads an identity of the form spiffe://<trust domain>/ns/<namespace>/sa/<service
// account>, and refuses any other form.
func Parse(text string) (Identity, error) {
	rest, ok := strings.CutPrefix(text, "spiffe://")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 5 || parts[1] != "ns" || parts[3] != "sa" {
		return Identity{}, fmt.Errorf("%q is not spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT", text)
	}
	return New(parts[0], parts[2], parts[4])
}

// OfCertificate returns the identity in a certificate, which is its only URI. It does not
// verify the certificate.
func OfCertificate(c *x509.Certificate) (Identity, error) {
	if len(c.URIs) != 1 {
		return Identity{}, fmt.Errorf("the certificate has %d URIs, and the identity of a workload is exactly one", len(c.URIs))
	}
	return Parse(c.URIs[0].String())
}

// String returns the SPIFFE ID, empty for the zero Identity.
func (i Identity) String() string {
	if i == (Identity{}) {
		return ""
	}
	return "spiffe://" + i.TrustDomain + "/ns/" + i.Namespace + "/sa/" + i.ServiceAccount
}

// URL returns the SPIFFE ID as a URL, for certificates.
func (i Identity) URL() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: i.TrustDomain, Path: "/ns/" + i.Namespace + "/sa/" + i.ServiceAccount}
}
