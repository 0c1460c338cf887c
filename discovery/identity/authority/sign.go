package authority

import (
	"context"
	"crypto"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/storage"
)

// Certificate is a signed certificate.
type Certificate struct {
	Leaf *x509.Certificate
	// Chain is the leaf and the certificates that lead from it to a root, in PEM.
	Chain [][]byte
	// Roots are the roots to trust, in PEM.
	Roots []byte

	by *material
}

// Sign signs a certificate for a workload, valid from now for life; 0 means DefaultLife. Its
// only name is the identity, whatever the request names. The error is of package storage.
func (a *Authority) Sign(ctx context.Context, r *Request, who identity.Identity, life time.Duration) (*Certificate, error) {
	life, err := a.lifetime(life)
	if err != nil {
		return nil, err
	}
	if who.TrustDomain != a.o.TrustDomain {
		return nil, fmt.Errorf("%w: %s is of another trust domain than %s, for which this authority signs", storage.ErrInvalid, who, a.o.TrustDomain)
	}
	if who.Namespace == a.o.RootNamespace && who.ServiceAccount == ServerAccount {
		return nil, fmt.Errorf("%w: %s is the identity of the servers, which no workload has: take another service account", storage.ErrInvalid, who)
	}
	if err := r.For(who); err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	return a.sign(ctx, r.key, &x509.Certificate{URIs: []*url.URL{who.URL()}}, life)
}

// CheckLife returns why the authority signs no certificate with this lifetime, nil if it does.
// The error is of package storage.
func (a *Authority) CheckLife(asked time.Duration) error {
	_, err := a.lifetime(asked)
	return err
}

// lifetime returns the lifetime of a certificate for which a caller asked this long.
func (a *Authority) lifetime(asked time.Duration) (time.Duration, error) {
	switch {
	case asked == 0:
		return min(DefaultLife, a.o.MaxLife), nil
	case asked < ShortestLife:
		return 0, fmt.Errorf("%w: a certificate for %v ends before it is of use: ask for %v at least", storage.ErrInvalid, asked, ShortestLife)
	case asked > a.o.MaxLife:
		return 0, fmt.Errorf("%w: a certificate for %v is longer than %v, the longest that this server signs (--max-certificate-ttl)", storage.ErrInvalid, asked, a.o.MaxLife)
	}
	return asked, nil
}

// sign signs a certificate with the names of a template.
func (a *Authority) sign(ctx context.Context, public crypto.PublicKey, template *x509.Certificate, life time.Duration) (*Certificate, error) {
	m, err := a.ensured(ctx)
	if err != nil {
		return nil, err
	}
	if a.o.Files == nil && life > m.state.Longest {
		// Before signing, the store must know how long the root must be kept.
		longer := func(m *material) (*material, error) {
			if life <= m.state.Longest {
				return nil, nil
			}
			next := *m
			next.state.Longest = life
			return &next, nil
		}
		if err := a.change(ctx, "a certificate of a longer life than any before", longer); err != nil {
			return nil, err
		}
		if m, err = a.current(); err != nil {
			return nil, err
		}
	}
	now := a.o.Now()
	if !now.Before(m.cert.NotAfter) {
		return nil, fmt.Errorf("%w: the certificate authority ended on %s: %s", storage.ErrUnavailable, m.cert.NotAfter.Format(time.RFC3339), a.remedy())
	}
	template.SerialNumber = serial()
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(life)
	if template.NotAfter.After(m.cert.NotAfter) {
		template.NotAfter = m.cert.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.BasicConstraintsValid = true
	leaf, err := create(template, m.cert, public, m.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	out := &Certificate{Leaf: leaf, Chain: [][]byte{inPEM(leaf)}, Roots: inPEM(m.roots...), by: m}
	for _, c := range m.chain {
		out.Chain = append(out.Chain, inPEM(c))
	}
	return out, nil
}

// serverTemplate returns a template for a server, with its identity, DNS names and addresses.
func serverTemplate(who identity.Identity, names []string) *x509.Certificate {
	out := &x509.Certificate{URIs: []*url.URL{who.URL()}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			out.IPAddresses = append(out.IPAddresses, ip)
		} else {
			out.DNSNames = append(out.DNSNames, name)
		}
	}
	return out
}
