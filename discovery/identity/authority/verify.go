package authority

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Verify returns the identity that a certificate of this authority gives to its holder. certs
// is the chain that the holder sent, the leaf first; TLS must have verified that the holder
// has the leaf's key. The error may be shown to the holder. Verify does not check whether the
// identity is revoked.
func (a *Authority) Verify(certs []*x509.Certificate) (identity.Identity, error) {
	if len(certs) == 0 {
		return identity.Identity{}, errors.New("there is no certificate")
	}
	m, err := a.current()
	if err != nil {
		return identity.Identity{}, err
	}
	leaf, now := certs[0], a.o.Now()
	between := x509.NewCertPool()
	for _, c := range append(certs[1:len(certs):len(certs)], m.chain...) {
		between.AddCert(c)
	}
	at := now
	switch { // judge the chain as if the leaf were valid, so that strangers learn nothing about its dates
	case now.Before(leaf.NotBefore):
		at = leaf.NotBefore
	case now.After(leaf.NotAfter):
		at = leaf.NotAfter
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: m.pool, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	switch {
	case err != nil || leaf.IsCA:
		return identity.Identity{}, errors.New("the certificate is not one for workloads of this mesh")
	case now.Before(leaf.NotBefore):
		return identity.Identity{}, fmt.Errorf("the certificate is not valid before %s, and here it is %s: one of the two clocks is wrong", stamp(leaf.NotBefore), stamp(now))
	case now.After(leaf.NotAfter):
		return identity.Identity{}, fmt.Errorf("the certificate ended on %s, and here it is %s: prove who you are anew, with a token for instance, unless one of the two clocks is wrong", stamp(leaf.NotAfter), stamp(now))
	}
	who, err := identity.OfCertificate(leaf)
	if err == nil && who.TrustDomain != a.o.TrustDomain {
		err = fmt.Errorf("%s is of another trust domain than %s", who, a.o.TrustDomain)
	}
	if err != nil {
		return identity.Identity{}, err
	}
	return who, nil
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// IssuedAt returns when a certificate of this authority was signed.
func IssuedAt(leaf *x509.Certificate) time.Time { return leaf.NotBefore.Add(backdate) }

// ErrRevoked is wrapped by the errors of Revoked about a revoked identity.
var ErrRevoked = errors.New("is revoked")

// Revoked returns why a certificate that was issued to an identity at a time is revoked, nil
// if it is not. The zero time means now. The error may be shown to the holder. It wraps
// ErrRevoked, unless the store is not read yet.
func (a *Authority) Revoked(who identity.Identity, issued time.Time) error {
	if issued.IsZero() {
		issued = a.o.Now()
	}
	snapshot := a.o.Snapshot()
	if snapshot == nil {
		return errUnread
	}
	for object := range snapshot.List(schema.RevokedIdentity, who.Namespace) {
		spec, ok := object.Spec.(*access.RevokedIdentity)
		if !ok || spec.ServiceAccount != who.ServiceAccount || who.TrustDomain != a.o.TrustDomain {
			continue
		}
		if spec.Before != nil && !issued.Before(spec.Before.Time) {
			continue
		}
		text := ""
		if spec.Reason != "" {
			text = ": " + spec.Reason
		}
		return fmt.Errorf("%s %w (%s)%s", who, ErrRevoked, object.Key(), text)
	}
	return nil
}
