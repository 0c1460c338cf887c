package call

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"
)

// TestOutOfTime: the error distinguishes a slow clock from a certificate that was not
// renewed.
func TestOutOfTime(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for want, c := range map[string]*x509.Certificate{
		"is not valid before 2026-03-01T12:10:00Z, and it is 2026-03-01T12:00:00Z here: the clock of this machine is behind that of the server, by 10m0s or more: set the one that is wrong": {NotBefore: now.Add(10 * time.Minute), NotAfter: now.Add(time.Hour)},
		"expired at 2026-03-01T11:50:00Z, 10m0s ago, and it is 2026-03-01T12:00:00Z here: it was not renewed in time, or a clock is off":                                                     {NotBefore: now.Add(-time.Hour), NotAfter: now.Add(-10 * time.Minute)},
	} {
		err := explainTLS(x509.CertificateInvalidError{Cert: c, Reason: x509.Expired})
		if err == nil || !strings.Contains(err.Error(), "its certificate ") {
			t.Errorf("%v", err)
		}
		if err := outOfTime(c, now); !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
