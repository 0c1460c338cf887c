package authority

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
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
	return a.verify(certs, 0)
}

// VerifyRenewal is like Verify, and also takes a certificate that expired at most
// Options.RenewExpired ago, if its issuers are valid now. Such a certificate is good for one
// thing: the next one.
func (a *Authority) VerifyRenewal(certs []*x509.Certificate) (who identity.Identity, expired bool, err error) {
	who, err = a.verify(certs, a.o.RenewExpired)
	return who, err == nil && a.o.Now().After(certs[0].NotAfter), err
}

// verify verifies a certificate that expired at most grace ago.
func (a *Authority) verify(certs []*x509.Certificate, grace time.Duration) (identity.Identity, error) {
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
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: m.pool, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	switch {
	case err != nil || leaf.IsCA:
		return identity.Identity{}, errors.New("the certificate is not one for workloads of this mesh")
	case now.Before(leaf.NotBefore):
		return identity.Identity{}, fmt.Errorf("the certificate is not valid before %s, and here it is %s: one of the two clocks is wrong", stamp(leaf.NotBefore), stamp(now))
	case now.After(leaf.NotAfter.Add(grace)):
		return identity.Identity{}, fmt.Errorf("the certificate ended on %s%s, and here it is %s: prove who you are anew, with a token (portolan token create) for instance, unless one of the two clocks is wrong", stamp(leaf.NotAfter), tooLong(grace), stamp(now))
	case now.After(leaf.NotAfter) && !slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool { return validIssuers(chain, now) }):
		return identity.Identity{}, fmt.Errorf("the certificate ended on %s, and since then so did the authority that signed it: prove who you are anew, with a token (portolan token create) for instance", stamp(leaf.NotAfter))
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

// tooLong says that a certificate is past the time in which it could be renewed, if there is
// any.
func tooLong(grace time.Duration) string {
	if grace == 0 {
		return ""
	}
	return fmt.Sprintf(", longer ago than the %v in which it can be renewed (serve --renew-expired)", grace)
}

// validIssuers says whether all certificates of a chain but the leaf are valid.
func validIssuers(chain []*x509.Certificate, now time.Time) bool {
	return !slices.ContainsFunc(chain[1:], func(c *x509.Certificate) bool { return now.Before(c.NotBefore) || now.After(c.NotAfter) })
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
