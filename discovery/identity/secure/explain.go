package secure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// explain returns an error that says what is wrong with a client's certificate, and any other
// handshake error unchanged.
func explain(err error, now time.Time) error {
	leaf := rejectedCertificate(err)
	if leaf == nil {
		return err
	}
	var verification *tls.CertificateVerificationError
	errors.As(err, &verification) // rejectedCertificate has checked that this succeeds
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(verification.Err, &unknown):
		return fmt.Errorf("the certificate of %s is of no authority that this server trusts: its issuer is %q", nameOf(leaf), leaf.Issuer)
	case errors.As(verification.Err, &invalid) && invalid.Reason == x509.Expired:
		which := "the certificate of " + nameOf(leaf)
		if invalid.Cert != nil && !invalid.Cert.Equal(leaf) {
			which = fmt.Sprintf("the certificate of the authority %q", invalid.Cert.Subject)
			leaf = invalid.Cert
		}
		return validity(which, leaf, now)
	case errors.As(verification.Err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return fmt.Errorf("the certificate of %s is not for clients: its extended key usage lacks clientAuth", nameOf(leaf))
	}
	return fmt.Errorf("the certificate of %s: %w", nameOf(leaf), verification.Err)
}

// rejectedCertificate returns the client certificate that made a handshake fail, nil if
// something else did.
func rejectedCertificate(err error) *x509.Certificate {
	var verification *tls.CertificateVerificationError
	if !errors.As(err, &verification) || len(verification.UnverifiedCertificates) == 0 {
		return nil
	}
	return verification.UnverifiedCertificates[0]
}

// validity describes a certificate that is not valid now. It gives both times, so that a
// reader can recognize a wrong clock.
func validity(which string, c *x509.Certificate, now time.Time) error {
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	if now.Before(c.NotBefore) {
		return fmt.Errorf("%s is not valid before %s, and it is %s here: a clock is off by %s or more, here or where it was issued",
			which, stamp(c.NotBefore), stamp(now), c.NotBefore.Sub(now).Round(time.Second))
	}
	return fmt.Errorf("%s expired at %s, %s ago, and it is %s here: it was not renewed in time, or a clock is off",
		which, stamp(c.NotAfter), now.Sub(c.NotAfter).Round(time.Second), stamp(now))
}

func nameOf(c *x509.Certificate) string {
	if len(c.URIs) > 0 {
		return c.URIs[0].String()
	}
	return fmt.Sprintf("%q", c.Subject.String())
}
