package call

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
)

// explainTLS says what to do about an error of TLS; nil for other errors.
func explainTLS(err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var remote *net.OpError // with the alert of the server
	switch {
	case errors.As(err, &unknown):
		return &UntrustedError{cause: unknown, do: "name that of the mesh with --ca or PORTOLAN_CA"}
	case errors.As(err, &name):
		return fmt.Errorf("%w: call it by a name in its certificate", name)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		return outOfTime(invalid.Cert, time.Now())
	case strings.Contains(err.Error(), lostAlert):
		return errors.New("it closed the connection" + whyRefused)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return fmt.Errorf("it refuses the connection (%w)"+whyRefused, remote.Err)
	}
	return nil
}

// outOfTime says why a certificate of the server is not valid now. The two times in it
// reveal a clock that is off.
func outOfTime(c *x509.Certificate, now time.Time) error {
	if now.Before(c.NotBefore) {
		return fmt.Errorf("its certificate is not valid before %s, and it is %s here: the clock of this machine is behind that of the server, by %s or more: set the one that is wrong",
			stamp(c.NotBefore), stamp(now), c.NotBefore.Sub(now).Round(time.Second))
	}
	return fmt.Errorf("its certificate expired at %s, %s ago, and it is %s here: it was not renewed in time, or a clock is off",
		stamp(c.NotAfter), now.Sub(c.NotAfter).Round(time.Second), stamp(now))
}

// connectionCut says whether the server ended the connection while the client sent. A server that
// refuses a certificate does so, and its alert may then be lost.
func connectionCut(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// whyRefused says what a client can know about a refusal.
const whyRefused = ": the certificate of --cert may have expired, or be of an authority that the server does not trust; its log says which"

// lostAlert is the error text of Go's HTTP/2 client if the server ended the connection
// with an alert after the handshake, as TLS 1.3 servers do.
const lostAlert = "http2: client conn could not be established"

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
