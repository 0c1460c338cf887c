package enroll

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// Options configure how a machine gets and keeps its certificate. Dir and Ask are required.
type Options struct {
	// Dir is the directory of the files. Only the user of this program can read it.
	Dir string
	// TTL is how long a certificate should be valid; 0 leaves it to the server.
	TTL time.Duration
	// Ask sends a request to the server. own is the certificate that proves who sends it; if
	// it is nil, a credential proves it.
	Ask func(ctx context.Context, r certificate.Request, own *tls.Certificate) (certificate.Certificate, error)
	// Replaced is called after the files were replaced; may be nil.
	Replaced func(context.Context) error
	// Now is the clock; nil means the system's clock.
	Now func() time.Time
	// Logger may be nil; nothing is logged then.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Replaced == nil {
		o.Replaced = func(context.Context) error { return nil }
	}
	return o
}

// Request gets a first certificate for a credential.
func Request(ctx context.Context, o Options) (certificate.Certificate, error) {
	return o.withDefaults().replace(ctx, nil)
}

// Renew gets a new certificate with the one in the directory. The server decides whether that
// is still valid, since this machine's clock may be wrong.
func Renew(ctx context.Context, o Options) (certificate.Certificate, error) {
	o = o.withDefaults()
	held, err := Read(o.Dir)
	if err != nil {
		return certificate.Certificate{}, err
	}
	got, err := o.replace(ctx, &held.Pair)
	var after *ReplacedError
	if err != nil && !errors.As(err, &after) && !o.Now().Before(held.Pair.Leaf.NotAfter) {
		return got, errors.Join(expired(held), err)
	}
	return got, err
}

func expired(held Held) error {
	return fmt.Errorf("the certificate expired at %s: where the server renews it no more, get another with a token (portolan certificate request)", held.Pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
}

// replace gets a certificate for a new key, and writes both.
func (o Options) replace(ctx context.Context, current *tls.Certificate) (got certificate.Certificate, err error) {
	if err := check(o.Dir); err != nil {
		return got, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return got, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return got, err
	}
	request := certificate.Request{
		TypeMeta: metav1.TypeMeta{APIVersion: certificate.APIVersion, Kind: certificate.RequestKind},
		CSR:      string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
	}
	if o.TTL > 0 {
		request.TTL = o.TTL.String()
	}
	if got, err = o.Ask(ctx, request, current); err != nil {
		return got, err
	}
	if err := write(o.Dir, key, got); err != nil {
		return got, fmt.Errorf("the certificate was issued, and cannot be written: %w", err)
	}
	if held, err := Read(o.Dir); err == nil {
		o.checkClock(held.Pair.Leaf)
	}
	if err := o.Replaced(ctx); err != nil {
		return got, &ReplacedError{err}
	}
	return got, nil
}

// checkClock warns if a newly signed certificate is not valid by this machine's clock: then no
// program here can use it.
func (o Options) checkClock(leaf *x509.Certificate) {
	now, off, which := o.Now(), time.Duration(0), ""
	switch {
	case now.Before(leaf.NotBefore):
		off, which = leaf.NotBefore.Sub(now), "behind"
	case !now.Before(leaf.NotAfter):
		off, which = now.Sub(leaf.NotAfter), "ahead of"
	default:
		return
	}
	o.Logger.Warn(fmt.Sprintf("the certificate was signed now, and is not valid by the clock of this machine, which is %s that of the server by %s or more: set the one that is wrong", which, off.Round(time.Second)),
		"from", leaf.NotBefore.UTC().Format(time.RFC3339), "until", leaf.NotAfter.UTC().Format(time.RFC3339), "here", now.UTC().Format(time.RFC3339))
}

// ReplacedError means that the files were replaced, but Options.Replaced failed.
type ReplacedError struct{ Err error }

// Error implements error.
func (e *ReplacedError) Error() string {
	return "the files are replaced, and what follows failed: " + e.Err.Error()
}

// Unwrap returns the error of Options.Replaced.
func (e *ReplacedError) Unwrap() error { return e.Err }

// jitter is the fraction of a certificate's life by which machines spread their renewals.
const jitter = 0.05

// renewAt returns when to renew a certificate: at two thirds of its life, give or take the
// jitter.
func renewAt(held Held) time.Time {
	leaf, since := held.Pair.Leaf, held.Since
	if since.Before(leaf.NotBefore) || since.After(leaf.NotAfter) { // a different clock was in use then
		since = leaf.NotBefore
	}
	life := leaf.NotAfter.Sub(since)
	return since.Add(life*2/3 + time.Duration((mathrand.Float64()*2-1)*jitter*float64(life)))
}

// lookAgain is how often Watch looks at the clock: timers stand still while a machine sleeps.
const lookAgain = time.Minute

// sleepUntil waits until a time by the clock. It returns an error if ctx ends first.
func (o Options) sleepUntil(ctx context.Context, at time.Time) error {
	for {
		left := at.Sub(o.Now())
		if err := retry.Sleep(ctx, min(left, lookAgain)); err != nil || left <= lookAgain {
			return err
		}
	}
}

// Watch renews the certificate in the directory at two thirds of each one's life, until ctx ends;
// it then returns nil. It retries failed renewals, also when the certificate has expired. It
// returns an error once the server refuses to renew an expired one. If this machine's clock is
// wrong, it uses the time that has passed since the last renewal.
func Watch(ctx context.Context, o Options) error {
	o = o.withDefaults()
	var last time.Time // when this call last renewed it
	for {
		held, err := Read(o.Dir)
		if err != nil {
			return err
		}
		at, leaf := renewAt(held), held.Pair.Leaf
		if now := o.Now(); now.Before(leaf.NotBefore) || !now.Before(leaf.NotAfter) {
			if at = now; !last.IsZero() {
				at = last.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 6) // it may be backdated
			}
		}
		o.Logger.Info("the certificate is valid", "until", held.Pair.Leaf.NotAfter.UTC().Format(time.RFC3339), "renews", at.UTC().Format(time.RFC3339))
		if o.sleepUntil(ctx, at) != nil {
			return nil
		}
		if err := o.renew(ctx, held); err != nil || ctx.Err() != nil {
			return err
		}
		last = o.Now()
	}
}

// renew tries to renew a certificate until that succeeds, the server refuses it after it has
// expired, or ctx ends.
func (o Options) renew(ctx context.Context, held Held) error {
	leaf := held.Pair.Leaf
	left := max(leaf.NotAfter.Sub(o.Now()), time.Second)
	wait := retry.New(min(time.Second, left/16), min(time.Minute, max(left/8, time.Second)))
	for {
		got, err := o.replace(ctx, &held.Pair)
		var after *ReplacedError
		if err == nil || errors.As(err, &after) {
			o.Logger.Info("the certificate is renewed", "identity", got.Identity, "serial", got.Serial)
			if after != nil {
				o.Logger.Error(after.Error())
			}
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		if !o.Now().Before(leaf.NotAfter) {
			if err = errors.Join(expired(held), err); apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
				return err
			}
		}
		o.Logger.Warn("the certificate cannot be renewed yet", "expires", leaf.NotAfter.UTC().Format(time.RFC3339), "err", err)
		if wait.Wait(ctx) != nil {
			return nil
		}
	}
}
