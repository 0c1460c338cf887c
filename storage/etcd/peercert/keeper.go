package peercert

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/retry"
)

const (
	// authorityLife is how long an authority is valid, and life how long a certificate.
	authorityLife = 20 * 365 * 24 * time.Hour
	life          = 90 * 24 * time.Hour
	// backdate allows for clocks that are slow.
	backdate = time.Hour
	// interval is how often the Keeper checks whether to renew the certificate.
	interval = time.Hour
	// warning is how long before the end of the authority the warnings begin.
	warning = 365 * 24 * time.Hour
)

// A Keeper renews the certificate of a member, and signs the certificates of joining
// members.
type Keeper struct {
	dir       Dir
	hosts     []string
	authority *x509.Certificate
	key       *ecdsa.PrivateKey // of the authority

	mu    sync.Mutex // guards what follows
	fault error      // why the certificate cannot be renewed
}

// Open returns the keeper of a directory. It makes what is missing: an authority, unless
// the directory has one, and the certificate of a member at the given hosts, which are
// names or addresses.
func (d Dir) Open(hosts ...string) (*Keeper, error) {
	k := &Keeper{dir: d, hosts: hosts}
	if err := k.open(); err != nil {
		return nil, fmt.Errorf("the certificates of the store's members: %w", err)
	}
	return k, nil
}

func (k *Keeper) open() (err error) {
	if err := os.MkdirAll(string(k.dir), 0o700); err != nil {
		return err
	}
	k.authority, err = readCertificate(k.dir.file(caFile))
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(k.begin(), k.renew(time.Now()))
	}
	if err != nil {
		return err
	}
	if k.key, err = readKey(k.dir.file(caKeyFile)); err != nil {
		return err
	}
	return k.renew(time.Now())
}

// begin makes the authority. Its certificate is written last, so that it never lacks its key.
func (k *Keeper) begin() (err error) {
	if k.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "portolan store"}, NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.key.Public(), k.key)
	if err != nil {
		return err
	}
	if k.authority, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	if err := k.dir.writeKey(caKeyFile, k.key); err != nil {
		return err
	}
	return k.dir.write(caFile, inPEM(der))
}

// Files names the files of the member's certificate. Renewing replaces a file in one
// step.
func (k *Keeper) Files() dial.Files { return k.dir.files() }

// Authority returns the authority's certificate and key, in PEM, for a joining member.
func (k *Keeper) Authority() (certificate, key []byte, err error) {
	if key, err = os.ReadFile(k.dir.file(caKeyFile)); err != nil {
		return nil, nil, err
	}
	return inPEM(k.authority.Raw), key, nil
}

// Sign signs the certificate of a member, in PEM, for a key and the hosts of its URLs.
func (k *Keeper) Sign(public crypto.PublicKey, hosts ...string) ([]byte, error) {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: hosts[0]}, NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if template.NotAfter.After(k.authority.NotAfter) {
		template.NotAfter = k.authority.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, k.authority, public, k.key)
	if err != nil {
		return nil, err
	}
	return inPEM(der), nil
}

// serial returns a random serial number.
func serial() *big.Int {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	return new(big.Int).SetBytes(random)
}

// renew replaces the certificate of the member if it is missing, is not for its hosts,
// or has reached two thirds of its life.
func (k *Keeper) renew(now time.Time) error {
	key, err := k.dir.Key()
	if err != nil {
		return err
	}
	held, err := readCertificate(k.dir.file(certFile))
	if err == nil && k.serves(held, key, now) {
		return nil
	}
	made, err := k.Sign(key.Public(), k.hosts...)
	if err != nil {
		return err
	}
	return k.dir.write(certFile, made)
}

// serves says whether a certificate need not be replaced yet.
func (k *Keeper) serves(held *x509.Certificate, key *ecdsa.PrivateKey, now time.Time) bool {
	if held.CheckSignatureFrom(k.authority) != nil || !key.PublicKey.Equal(held.PublicKey) {
		return false
	}
	for _, host := range k.hosts {
		if held.VerifyHostname(host) != nil {
			return false
		}
	}
	return now.Before(held.NotBefore.Add(held.NotAfter.Sub(held.NotBefore) * 2 / 3))
}

// Run renews the certificate at two thirds of its life until ctx ends, and then returns
// nil.
func (k *Keeper) Run(ctx context.Context, logger *slog.Logger) error {
	for retry.Sleep(ctx, interval) == nil {
		err := k.renew(time.Now())
		k.mu.Lock()
		k.fault = err
		k.mu.Unlock()
		if err != nil {
			logger.Error("the certificate of this member of the store cannot be renewed, it will be tried again", "err", err)
		}
	}
	return nil
}

// Degraded says why the certificate of the member cannot be renewed, or soon will not
// be; nil if it can.
func (k *Keeper) Degraded() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fault != nil {
		return fmt.Errorf("the certificate of this member cannot be renewed: %w", k.fault)
	}
	return ending(time.Now(), k.authority.NotAfter, warning, "the authority of the store's members", "form the store anew from a snapshot before")
}
