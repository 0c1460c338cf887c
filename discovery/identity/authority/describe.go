package authority

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func describe(c *x509.Certificate) PublicCertificate {
	sum := sha256.Sum256(c.Raw)
	return PublicCertificate{
		Subject: c.Subject.String(), Issuer: c.Issuer.String(), Serial: c.SerialNumber.Text(16), Fingerprint: hex.EncodeToString(sum[:]),
		NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(),
	}
}

var ends = prometheus.NewDesc("portolan_authority_expiry_seconds",
	"Seconds until the certificate authority ends: its first root, and the certificate that signs; negative once it has.", []string{"certificate"}, nil)

// Describe implements prometheus.Collector.
func (a *Authority) Describe(out chan<- *prometheus.Desc) { out <- ends }

// Collect implements prometheus.Collector.
func (a *Authority) Collect(out chan<- prometheus.Metric) {
	m, err := a.current()
	if err != nil {
		return
	}
	now := a.o.Now()
	gauge := func(what string, at time.Time) {
		out <- prometheus.MustNewConstMetric(ends, prometheus.GaugeValue, at.Sub(now).Seconds(), what)
	}
	first := m.roots[0].NotAfter
	for _, root := range m.roots {
		if root.NotAfter.Before(first) {
			first = root.NotAfter
		}
	}
	gauge("root", first)
	gauge("signing", m.cert.NotAfter)
}
