package authority

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/portolan-mesh/portolan/discovery/identity"
)

// MaxRequest bounds the bytes of a certificate signing request in PEM.
const MaxRequest = 64 << 10

// The sizes of RSA keys that the authority signs: fewer bits are weak, and more are an attack.
const leastBits, mostBits = 2048, 8192

// A Request is a certificate signing request that has passed all checks that do not depend on
// its sender.
type Request struct {
	key crypto.PublicKey
	// uri is the identity that the request names, empty if it names none.
	uri string
}

// ParseRequest reads a certificate signing request in PEM and verifies its signature. It
// refuses a request with a weak key, with names other than one URI, or for an authority.
func ParseRequest(text []byte) (*Request, error) {
	if len(text) > MaxRequest {
		return nil, fmt.Errorf("the certificate request has %d bytes, and may have %d", len(text), MaxRequest)
	}
	block, rest := pem.Decode(text)
	switch {
	case block == nil || block.Type != "CERTIFICATE REQUEST" && block.Type != "NEW CERTIFICATE REQUEST":
		return nil, errors.New("it is no certificate request in PEM (-----BEGIN CERTIFICATE REQUEST-----)")
	case len(bytes.TrimSpace(rest)) > 0 || !bytes.HasPrefix(bytes.TrimSpace(text), []byte("-----BEGIN")):
		return nil, errors.New("there is text around the certificate request: send it alone")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, errors.New("the certificate request cannot be read")
	}
	if why := keyRefusal(csr.PublicKey); why != "" { // before any work with the key
		return nil, fmt.Errorf("the certificate request %s", why)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, errors.New("the certificate request is not signed by its key, or by an algorithm that is broken")
	}
	out := &Request{key: csr.PublicKey}
	names := 0
	for _, e := range csr.Extensions {
		switch {
		case e.Id.Equal(oidNames):
			names++
			if out.uri, err = onlyURI(e.Value); err != nil {
				return nil, err
			}
		case e.Id.Equal(oidConstraints):
			var c constraints
			if rest, err := asn1.Unmarshal(e.Value, &c); err != nil || len(rest) > 0 || c.IsCA {
				return nil, errors.New("the certificate request is for an authority: only certificates of workloads are signed")
			}
		case e.Id.Equal(oidUsage):
			var usage asn1.BitString
			if rest, err := asn1.Unmarshal(e.Value, &usage); err != nil || len(rest) > 0 || usage.At(5) != 0 || usage.At(6) != 0 {
				return nil, errors.New("the certificate request asks to sign certificates: only certificates of workloads are signed")
			}
		}
	}
	if names > 1 {
		return nil, errors.New("the certificate request has its names twice")
	}
	return out, nil
}

var (
	oidNames       = asn1.ObjectIdentifier{2, 5, 29, 17}
	oidConstraints = asn1.ObjectIdentifier{2, 5, 29, 19}
	oidUsage       = asn1.ObjectIdentifier{2, 5, 29, 15}
)

// constraints are the basic constraints of a certificate.
type constraints struct {
	IsCA       bool `asn1:"optional"`
	MaxPathLen int  `asn1:"optional,default:-1"`
}

// onlyURI parses alternative names, and refuses all but one URI or none.
func onlyURI(der []byte) (string, error) {
	var names []asn1.RawValue
	if rest, err := asn1.Unmarshal(der, &names); err != nil || len(rest) > 0 {
		return "", errors.New("the names of the certificate request cannot be read")
	}
	const uriTag = 6
	switch {
	case len(names) == 0:
		return "", nil
	case len(names) > 1:
		return "", fmt.Errorf("the certificate request has %d names: a workload has one, its identity", len(names))
	case names[0].Class != asn1.ClassContextSpecific || names[0].Tag != uriTag:
		return "", errors.New("the certificate request has a name that is no URI: a workload has one name, its identity, which begins with spiffe://")
	}
	return string(names[0].Bytes), nil
}

// Key returns the public key of the request.
func (r *Request) Key() crypto.PublicKey { return r.key }

// For returns nil if the request names no identity or this one, else an error.
func (r *Request) For(who identity.Identity) error {
	if r.uri != "" && r.uri != who.String() {
		return fmt.Errorf("the certificate request is for %.200q, and its sender is %s", r.uri, who)
	}
	return nil
}

// Names says whether the request names this identity.
func (r *Request) Names(who identity.Identity) bool { return r.uri == who.String() }

// keyRefusal returns why the authority signs no certificate for a key, empty if it does.
func keyRefusal(key crypto.PublicKey) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < leastBits || bits > mostBits {
			return fmt.Sprintf("has an RSA key of %d bits: use one of %d to %d, or ECDSA", bits, leastBits, mostBits)
		}
		return ""
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
			return ""
		}
		return "has a key on a curve that proxies refuse: use P-256, P-384 or P-521"
	}
	return "has a key that proxies refuse: use ECDSA or RSA"
}
