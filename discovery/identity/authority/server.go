package authority

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ServerAccount is the service account of servers, in the root namespace of the mesh.
const ServerAccount = "portolan"

// ServerCertificate returns a GetCertificate function for a server's tls.Config. The
// certificate is for these DNS names and addresses, and the identity of servers. It is made
// for the first client, and renewed after two thirds of its life and when the authority
// changes. If the renewal fails, the function returns the previous certificate while it is
// valid.
func (a *Authority) ServerCertificate(names ...string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s := &serverCertificate{authority: a, names: slices.Clone(names)}
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		ctx := hello.Context()
		if ctx == nil { // called outside a handshake
			ctx = context.Background()
		}
		return s.get(ctx)
	}
}

type serverCertificate struct {
	authority *Authority
	names     []string

	mu     sync.Mutex
	pair   *tls.Certificate
	signer *material // the material that signed it
	anew   time.Time // when to renew it
}

func (s *serverCertificate) get(ctx context.Context) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.authority.o.Now()
	m, err := s.authority.current()
	// A Secret that is sealed anew, or whose state alone has changed, still signs with the
	// same certificate.
	same := err == nil && s.signer != nil && s.signer.cert.Equal(m.cert) && bytes.Equal(inPEM(s.signer.chain...), inPEM(m.chain...))
	if s.pair != nil && now.Before(s.anew) && (same || err != nil) {
		return s.pair, nil
	}
	if err = s.make(ctx, now); err != nil {
		if s.pair != nil && now.Before(s.pair.Leaf.NotAfter) {
			return s.pair, nil
		}
		return nil, fmt.Errorf("this server has no certificate: %w", err)
	}
	return s.pair, nil
}

func (s *serverCertificate) make(ctx context.Context, now time.Time) error {
	a := s.authority
	who, err := a.Identity(a.o.RootNamespace, ServerAccount)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	life, err := a.lifetime(0)
	if err != nil {
		return err
	}
	signed, err := a.sign(ctx, key.Public(), serverTemplate(who, s.names), life)
	if err != nil {
		return err
	}
	s.signer = signed.by
	pair := &tls.Certificate{PrivateKey: key, Leaf: signed.Leaf, Certificate: [][]byte{signed.Leaf.Raw}}
	for _, c := range s.signer.chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	s.pair, s.anew = pair, now.Add(signed.Leaf.NotAfter.Sub(now)*2/3)
	return nil
}
