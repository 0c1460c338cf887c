package enroll_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// issuer signs every request.
type issuer struct {
	t     *testing.T
	key   *ecdsa.PrivateKey
	root  *x509.Certificate
	life  time.Duration
	asked chan *tls.Certificate // the certificate that proved each request
	fails error
}

func newIssuer(t *testing.T, life time.Duration) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(1000 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if root, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return &issuer{t: t, key: key, root: root, life: life, asked: make(chan *tls.Certificate, 100)}
}

func inPEM(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func (i *issuer) ask(_ context.Context, r certificate.Request, current *tls.Certificate) (certificate.Certificate, error) {
	if i.fails != nil {
		return certificate.Certificate{}, i.fails
	}
	block, _ := pem.Decode([]byte(r.CSR))
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || csr.CheckSignature() != nil {
		i.t.Errorf("the request is not signed: %v", err)
	}
	now := time.Now()
	leaf := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), NotBefore: now.Add(-i.life), NotAfter: now.Add(i.life)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, i.root, csr.PublicKey, i.key)
	if err != nil {
		return certificate.Certificate{}, err
	}
	i.asked <- current
	return certificate.Certificate{Identity: "spiffe://cluster.local/ns/shop/sa/web", Serial: leaf.SerialNumber.String(), Chain: inPEM(der), Roots: inPEM(i.root.Raw), NotAfter: leaf.NotAfter}, nil
}

func TestADirectoryIsReplacedAtOnce(t *testing.T) {
	i := newIssuer(t, time.Hour)
	dir := filepath.Join(t.TempDir(), "new")
	replaced := 0
	o := enroll.Options{Dir: dir, Ask: i.ask, Replaced: func(context.Context) error { replaced++; return nil }}
	if _, err := enroll.Renew(t.Context(), o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a renewal of nothing: %v", err)
	}
	if _, err := enroll.Request(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	first, err := enroll.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := enroll.Renew(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if by := <-i.asked; by != nil {
		t.Error("the first request shows a certificate")
	}
	if by := <-i.asked; by == nil || !by.Leaf.Equal(first.Pair.Leaf) {
		t.Error("the renewal does not show the first certificate")
	}
	second, err := enroll.Read(dir)
	if err != nil || second.Pair.Leaf.Equal(first.Pair.Leaf) || replaced != 2 {
		t.Errorf("%v; replaced %d times", err, replaced)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 5 { // three links, ..data, and one version
		t.Errorf("the directory has %v, %v", entries, err)
	}
	for name, mode := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, enroll.KeyFile): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestFilesOfOthersAreLeftAlone(t *testing.T) {
	i := newIssuer(t, time.Hour)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, enroll.KeyFile), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := enroll.Request(t.Context(), enroll.Options{Dir: dir, Ask: i.ask}); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a key of somebody else: %v", err)
	}
	if len(i.asked) != 0 {
		t.Error("the token is used up")
	}
}

// TestWatchRenews: Watch renews on time. When renewal begins to fail, it retries until the
// server refuses the expired certificate.
func TestWatchRenews(t *testing.T) { synctest.Test(t, testWatchRenews) }

// TestAWrongClockIsTold: a newly signed certificate is not valid by the local clock. Watch
// warns, and renews as time passes instead of in a loop.
func TestAWrongClockIsTold(t *testing.T) {
	for off, want := range map[time.Duration]string{
		48 * time.Hour:  "is ahead of that of the server by 24h0m0s or more: set the one that is wrong",
		-48 * time.Hour: "is behind that of the server by 24h0m0s or more: set the one that is wrong",
	} {
		t.Run(off.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := newIssuer(t, 24*time.Hour)
				var log bytes.Buffer
				o := enroll.Options{
					Dir: t.TempDir(), Ask: i.ask, Logger: slog.New(slog.NewTextHandler(&log, nil)),
					Now: func() time.Time { return time.Now().Add(off) },
				}
				if _, err := enroll.Request(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(log.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, log.String())
				}
				ctx, cancel := context.WithTimeout(t.Context(), 23*time.Hour)
				defer cancel()
				if err := enroll.Watch(ctx, o); err != nil {
					t.Error(err)
				}
				if n := len(i.asked); n < 3 || n > 5 { // the first, one at once, then one each 8 hours
					t.Errorf("it asks %d times in a day", n)
				}
			})
		})
	}
}

func testWatchRenews(t *testing.T) {
	i := newIssuer(t, 24*time.Hour)
	o := enroll.Options{Dir: t.TempDir(), Ask: i.ask}
	if _, err := enroll.Request(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	<-i.asked
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- enroll.Watch(ctx, o) }()
	began := time.Now()
	for n := range 2 {
		select {
		case own := <-i.asked:
			if passed := time.Since(began); own == nil || passed < time.Duration(n+1)*i.life/5 {
				t.Errorf("it is renewed after %s, with the certificate before: %v", passed, own != nil)
			}
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}

	if _, err := enroll.Request(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	<-i.asked
	began = time.Now()
	o.Ask = func(ctx context.Context, r certificate.Request, own *tls.Certificate) (certificate.Certificate, error) {
		if time.Since(began) < 3*i.life {
			return certificate.Certificate{}, errors.New("the server is away")
		}
		return certificate.Certificate{}, apierrors.NewUnauthorized("the certificate ended too long ago")
	}
	err := enroll.Watch(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "the certificate expired at") || !strings.Contains(err.Error(), "ended too long ago") || time.Since(began) < 3*i.life {
		t.Errorf("it ended after %s with %v", time.Since(began), err)
	}
	if _, err := enroll.Renew(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the certificate expired at") {
		t.Errorf("an expired one is renewed: %v", err)
	}
}

// TestWatchRenewsAnExpiredOne: the certificate expires while the server is away, or the machine
// asleep. Watch renews it with the expired certificate once the server takes it.
func TestWatchRenewsAnExpiredOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t, 24*time.Hour)
		o := enroll.Options{Dir: t.TempDir(), Ask: i.ask}
		if _, err := enroll.Request(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		<-i.asked
		began := time.Now()
		o.Ask = func(ctx context.Context, r certificate.Request, own *tls.Certificate) (certificate.Certificate, error) {
			if time.Since(began) < 2*i.life {
				return certificate.Certificate{}, errors.New("the server is away")
			}
			return i.ask(ctx, r, own)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- enroll.Watch(ctx, o) }()
		select {
		case own := <-i.asked:
			if own == nil || time.Now().Before(own.Leaf.NotAfter) {
				t.Error("it is not renewed with the expired one")
			}
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		}
		synctest.Wait()
		if held, err := enroll.Read(o.Dir); err != nil || time.Now().After(held.Pair.Leaf.NotAfter) {
			t.Errorf("it is not renewed: %v", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWatchFollowsTheClock: a timer that stood still while the machine slept delays a renewal by
// a minute at most.
func TestWatchFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t, 24*time.Hour)
		var slept atomic.Int64
		o := enroll.Options{Dir: t.TempDir(), Ask: i.ask, Now: func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }}
		if _, err := enroll.Request(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		<-i.asked
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- enroll.Watch(ctx, o) }()
		synctest.Wait()
		began := time.Now()
		slept.Store(int64(20 * time.Hour))
		<-i.asked
		if passed := time.Since(began); passed > time.Minute {
			t.Errorf("it is renewed %s after the machine woke", passed)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
