package peercert

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// near is how long before the end of a certificate from the operator's files the
// warnings begin. For a short-lived certificate, such as one for a day, it is a fifth of
// its life.
const near = 20 * 24 * time.Hour

// Expiry says when the certificate of a member ends, and when the first of its trusted
// authorities does.
type Expiry struct{ Certificate, Authority time.Time }

// Files name the certificate files of a member, the Keeper's or the operator's. It is a
// prometheus.Collector.
type Files dial.Files

// Expiry reads the files.
func (f Files) Expiry() (Expiry, error) {
	own, authority, err := f.read()
	if err != nil {
		return Expiry{}, err
	}
	return Expiry{Certificate: own.NotAfter, Authority: authority.NotAfter}, nil
}

func (f Files) read() (own, authority *x509.Certificate, err error) {
	if own, err = readCertificate(f.Cert); err == nil {
		authority, err = firstToEnd(f.CA)
	}
	return own, authority, err
}

func firstToEnd(file string) (first *x509.Certificate, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if first == nil || c.NotAfter.Before(first.NotAfter) {
			first = c
		}
	}
	if first == nil {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return first, nil
}

// Degraded says why a certificate of the files must be replaced soon, or cannot be read;
// nil if none.
func (f Files) Degraded() error { return f.at(time.Now()) }

func (f Files) at(now time.Time) error {
	own, authority, err := f.read()
	if err != nil {
		return fmt.Errorf("the certificate of this member cannot be read: %w", err)
	}
	return errors.Join(
		ending(now, own.NotAfter, shorter(near, own), "the certificate of this member of the store", "replace "+f.Cert+" and its key; connections made from then on use them"),
		ending(now, authority.NotAfter, shorter(warning, authority), "the authority of the store's members", "put a new one beside it in "+f.CA+" at each server, restart one after the other, and replace their certificates then"))
}

// shorter returns within, or a fifth of the life of the certificate if that is less.
func shorter(within time.Duration, c *x509.Certificate) time.Duration {
	return min(within, c.NotAfter.Sub(c.NotBefore)/5)
}

// ending returns an error that says what to do if something ends within a time, or has
// ended; else nil.
func ending(now, at time.Time, within time.Duration, what, remedy string) error {
	switch left := at.Sub(now); {
	case left <= 0:
		return fmt.Errorf("%s ended on %s, and others refuse it: %s", what, at.UTC().Format(time.RFC3339), remedy)
	case left < within:
		return fmt.Errorf("%s ends on %s: %s", what, at.UTC().Format(time.RFC3339), remedy)
	}
	return nil
}

// Watch logs the error of degraded when it begins and every day, until ctx ends. It then
// returns nil.
func Watch(ctx context.Context, degraded func() error, logger *slog.Logger) error {
	told, said := time.Time{}, ""
	for {
		err := degraded()
		switch {
		case err == nil:
			said = ""
		case err.Error() != said || time.Since(told) >= 24*time.Hour:
			told, said = time.Now(), err.Error()
			logger.Warn("the certificates of the store's members need care", "err", err)
		}
		if retry.Sleep(ctx, interval) != nil {
			return nil
		}
	}
}

var expires = prometheus.NewDesc("portolan_store_certificate_expiry_seconds",
	"Seconds until a certificate ends by which the members of the store know each other: that of this member, and the first of the authorities; negative once it has.", []string{"certificate"}, nil)

// Describe implements prometheus.Collector.
func (f Files) Describe(to chan<- *prometheus.Desc) { to <- expires }

// Collect implements prometheus.Collector. Unreadable files have no metric.
func (f Files) Collect(to chan<- prometheus.Metric) {
	e, err := f.Expiry()
	if err != nil {
		return
	}
	now := time.Now()
	to <- prometheus.MustNewConstMetric(expires, prometheus.GaugeValue, e.Certificate.Sub(now).Seconds(), "member")
	to <- prometheus.MustNewConstMetric(expires, prometheus.GaugeValue, e.Authority.Sub(now).Seconds(), "authority")
}
