package secure

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// lookAgain is how often a Pair and Roots read their files.
const lookAgain = time.Second

// A Pair is a certificate with its key, in two PEM files that may be replaced at any time.
type Pair struct{ *followed[tls.Certificate] }

// LoadPair reads a pair. Its error names the file that cannot be used.
func LoadPair(cert, key string) (*Pair, error) {
	f, err := load(func(content [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(content[0], content[1])
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", cert, key, err)
		}
		return &pair, nil
	}, cert, key)
	if err != nil {
		return nil, err
	}
	return &Pair{f}, nil
}

// Certificate returns the current pair, for Options.Certificate.
func (p *Pair) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return p.value.Load(), nil
}

// Leaf returns the current certificate.
func (p *Pair) Leaf() *x509.Certificate { return p.value.Load().Leaf }

// Degraded returns why an operator should look at the pair, nil if all is well: its files are
// unusable and an older pair is in use, or it has expired or will soon.
func (p *Pair) Degraded() error {
	return errors.Join(p.followed.Degraded(), Expiring(p.Leaf(), time.Now()))
}

// Expiring returns an error if a certificate has expired, or has less than a fifth of its
// lifetime and less than a week left.
func Expiring(c *x509.Certificate, now time.Time) error {
	left, soon := c.NotAfter.Sub(now), min(7*24*time.Hour, c.NotAfter.Sub(c.NotBefore)/5)
	switch {
	case now.Before(c.NotBefore):
		return validity("the certificate of this server", c, now)
	case left <= 0:
		return validity("the certificate of this server", c, now)
	case left < soon:
		return fmt.Errorf("the certificate of this server expires in %s, at %s: renew it", left.Round(time.Second), c.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// Roots are certificate authorities in a PEM file that may be replaced at any time.
type Roots struct{ *followed[x509.CertPool] }

// LoadRoots reads certificate authorities.
func LoadRoots(file string) (*Roots, error) {
	f, err := load(func(content [][]byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(content[0]) {
			return nil, fmt.Errorf("%s: there is no certificate in PEM in it", file)
		}
		return pool, nil
	}, file)
	if err != nil {
		return nil, err
	}
	return &Roots{f}, nil
}

// Pool returns the current authorities.
func (r *Roots) Pool() *x509.CertPool { return r.value.Load() }

// PEM returns the current authorities in PEM.
func (r *Roots) PEM() []byte { return *r.last.Load() }

// followed is a value parsed from files that Run follows. If the files are unusable, Run
// reports that and keeps the value: an operator replaces files one after the other.
type followed[T any] struct {
	files []string
	parse func([][]byte) (*T, error)
	value atomic.Pointer[T]
	last  atomic.Pointer[[]byte] // the file contents that the value was parsed from
	fault atomic.Pointer[error]
}

func load[T any](parse func([][]byte) (*T, error), files ...string) (*followed[T], error) {
	f := &followed[T]{files: files, parse: parse}
	_, err := f.reload()
	return f, err
}

// reload reads the files, and says whether the value has changed.
func (f *followed[T]) reload() (changed bool, err error) {
	content := make([][]byte, len(f.files))
	for i, file := range f.files {
		if content[i], err = os.ReadFile(file); err != nil {
			return false, err
		}
	}
	all := bytes.Join(content, []byte{0})
	if last := f.last.Load(); last != nil && bytes.Equal(*last, all) {
		return false, nil
	}
	value, err := f.parse(content)
	if err != nil {
		return false, err
	}
	f.value.Store(value)
	f.last.Store(&all)
	return true, nil
}

// Run follows the files until ctx ends.
func (f *followed[T]) Run(ctx context.Context, logger *slog.Logger) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	logged, faults := "", 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		changed, err := f.reload()
		if err == nil {
			logged, faults = "", 0
			f.fault.Store(nil)
			if changed {
				logger.Info("a certificate file was replaced, and is in use", "file", f.files[0])
			}
			continue
		}
		// A first fault may just fall between the replacements of two files.
		if faults++; faults < 3 {
			continue
		}
		f.fault.Store(&err)
		if text := err.Error(); text != logged {
			logged = text
			logger.Warn("a certificate file cannot be used, so that the one before it stays in use", "file", f.files[0], "err", err)
		}
	}
}

// Degraded returns why the files cannot be used, nil if they can. Meanwhile the last usable
// content is in use.
func (f *followed[T]) Degraded() error {
	if fault := f.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}
