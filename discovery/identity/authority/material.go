package authority

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// The entries of the authority's Secret. The first four are Istio's.
const (
	caCert, caKey, certChain, rootCert = "ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem"
	formerCert, formerKey              = "former-cert.pem", "former-key.pem"
	stateEntry                         = "state.json"
)

// rootLife is the lifetime of a root that Portolan makes.
const rootLife = 10 * 365 * 24 * time.Hour

// backdate is how long before its signature a certificate becomes valid, for clocks that are
// behind.
const backdate = 2 * time.Minute

// material is the keys and certificates of an authority. It is never modified.
type material struct {
	key  crypto.Signer
	cert *x509.Certificate
	// chain is sent after a signed certificate: the certificates from cert to a root, and cert
	// itself unless it is a root.
	chain []*x509.Certificate
	roots []*x509.Certificate
	pool  *x509.CertPool

	// former is the root that a rotation replaces, nil if no rotation is under way.
	former    *x509.Certificate
	formerKey crypto.Signer
	state     state
}

// state holds the Secret's data besides keys and certificates.
type state struct {
	// Longest is the longest lifetime of any certificate signed so far.
	Longest time.Duration `json:"longest"`
	// Started is when the rotation began.
	Started time.Time `json:"started,omitzero"`
}

func newRoot(trustDomain string, now time.Time) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, err
	}
	id := sha256.Sum256(public)
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{Organization: []string{trustDomain}, CommonName: "Portolan root " + hex.EncodeToString(id[:4])},
		NotBefore:    now.Add(-backdate), NotAfter: now.Add(rootLife), SubjectKeyId: id[:20],
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	cert, err := create(template, template, key.Public(), key)
	return cert, key, err
}

func crossSigned(root, by *x509.Certificate, key crypto.Signer) (*x509.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: serial(), RawSubject: root.RawSubject, SubjectKeyId: root.SubjectKeyId,
		NotBefore: root.NotBefore, NotAfter: root.NotAfter,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if by.NotAfter.Before(template.NotAfter) {
		template.NotAfter = by.NotAfter
	}
	return create(template, by, root.PublicKey, key)
}

func create(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// serial returns a random number of 127 bits.
func serial() *big.Int {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails
	raw[0] &= 0x7f
	return new(big.Int).SetBytes(raw[:])
}

func newMaterial(trustDomain string, life time.Duration, now time.Time) (*material, error) {
	cert, key, err := newRoot(trustDomain, now)
	if err != nil {
		return nil, err
	}
	return &material{key: key, cert: cert, roots: []*x509.Certificate{cert}, state: state{Longest: life}}, nil
}

// started returns the material at the start of a rotation.
func (m *material) started(trustDomain string, now time.Time) (*material, error) {
	cert, key, err := newRoot(trustDomain, now)
	if err != nil {
		return nil, err
	}
	cross, err := crossSigned(cert, m.cert, m.key)
	if err != nil {
		return nil, err
	}
	return &material{
		key: key, cert: cert, chain: []*x509.Certificate{cross}, roots: []*x509.Certificate{m.cert, cert},
		former: m.cert, formerKey: m.key, state: state{Longest: m.state.Longest, Started: now.UTC()},
	}, nil
}

// finished returns the material without the former root.
func (m *material) finished() *material {
	return &material{key: m.key, cert: m.cert, roots: []*x509.Certificate{m.cert}, state: state{Longest: m.state.Longest}}
}

// aborted returns the material without the new root. Certificates that the new root signed
// stay valid through the cross-signed root in their chain.
func (m *material) aborted() *material {
	return &material{key: m.formerKey, cert: m.former, roots: []*x509.Certificate{m.former}, state: state{Longest: m.state.Longest}}
}

// entries returns the data of the Secret.
func (m *material) entries() (map[string][]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(m.key)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(m.state)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{caCert: inPEM(m.cert), caKey: keyInPEM(key), certChain: inPEM(m.chain...), rootCert: inPEM(m.roots...), stateEntry: text}
	if m.former != nil {
		former, err := x509.MarshalPKCS8PrivateKey(m.formerKey)
		if err != nil {
			return nil, err
		}
		out[formerCert], out[formerKey] = inPEM(m.former), keyInPEM(former)
	}
	return out, nil
}

func inPEM(certs ...*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range certs {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // writing to a Buffer never fails
	}
	return out.Bytes()
}

func keyInPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// parse reads entries, and checks that they fit each other at a given time.
func parse(entries map[string][]byte, now time.Time) (*material, error) {
	m := &material{pool: x509.NewCertPool()}
	pair, err := tls.X509KeyPair(entries[caCert], entries[caKey])
	if err != nil {
		return nil, fmt.Errorf("%s and %s are no certificate with its key: %w", caCert, caKey, withoutTLSPrefix(err))
	}
	m.cert, m.key = pair.Leaf, pair.PrivateKey.(crypto.Signer)
	if !m.cert.IsCA || m.cert.KeyUsage != 0 && m.cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, fmt.Errorf("%s may not sign others: it is no certificate of an authority", caCert)
	}
	if why := keyRefusal(m.cert.PublicKey); why != "" {
		return nil, fmt.Errorf("%s %s", caCert, why)
	}
	if m.roots, err = certificates(entries[rootCert]); err != nil || len(m.roots) == 0 {
		return nil, fmt.Errorf("%s has no certificates: %w", rootCert, cmpErr(err))
	}
	for _, root := range m.roots {
		m.pool.AddCert(root)
	}
	given, err := certificates(entries[certChain])
	if err != nil {
		return nil, fmt.Errorf("%s has no certificates: %w", certChain, err)
	}
	// The chain may begin with the signing certificate and include the root.
	isRoot := selfSigned(m.cert)
	if !isRoot {
		m.chain = append(m.chain, m.cert)
	}
	for _, c := range given {
		if !selfSigned(c) && !c.Equal(m.cert) {
			m.chain = append(m.chain, c)
		}
	}
	between := x509.NewCertPool()
	for _, c := range m.chain {
		between.AddCert(c)
	}
	at := now // here an expired or future certificate passes; Degraded reports it
	switch {
	case at.After(m.cert.NotAfter):
		at = m.cert.NotAfter
	case at.Before(m.cert.NotBefore):
		at = m.cert.NotBefore
	}
	if _, err := m.cert.Verify(x509.VerifyOptions{Roots: m.pool, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return nil, fmt.Errorf("%s does not lead to a root of %s: %w", caCert, rootCert, err)
	}
	if text, ok := entries[stateEntry]; ok {
		if err := json.Unmarshal(text, &m.state); err != nil {
			return nil, fmt.Errorf("%s is damaged", stateEntry)
		}
	}
	if _, ok := entries[formerCert]; ok {
		former, err := tls.X509KeyPair(entries[formerCert], entries[formerKey])
		if err != nil {
			return nil, fmt.Errorf("%s and %s are no certificate with its key: %w", formerCert, formerKey, withoutTLSPrefix(err))
		}
		m.former, m.formerKey = former.Leaf, former.PrivateKey.(crypto.Signer)
	}
	return m, nil
}

// withoutTLSPrefix returns an error of crypto/tls without the package's prefix.
func withoutTLSPrefix(err error) error {
	text, _ := bytes.CutPrefix([]byte(err.Error()), []byte("tls: "))
	return errors.New(string(text))
}

func cmpErr(err error) error {
	if err != nil {
		return err
	}
	return errors.New("it is empty")
}

func selfSigned(c *x509.Certificate) bool {
	return bytes.Equal(c.RawSubject, c.RawIssuer) && c.CheckSignatureFrom(c) == nil
}

// certificates reads certificates in PEM.
func certificates(text []byte) (out []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			if len(bytes.TrimSpace(text)) > 0 {
				return nil, errors.New("it has text that is not PEM")
			}
			return out, nil
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it has a %.40q", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
}
