package enroll

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"

	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
)

// Renewing makes a transport connect in the way in which servers take an expired certificate, and
// trust also the roots in a directory. Those came with the last certificate and are the newest: a
// file that somebody put on the machine for its first certificate lacks a root that replaced
// another since. The transport has a TLS configuration with RootCAs.
func Renewing(transport *http.Transport, dir string) error {
	if err := trustRoots(transport.TLSClientConfig, filepath.Join(dir, RootsFile)); err != nil {
		return err
	}
	transport.ForceAttemptHTTP2, transport.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	transport.TLSClientConfig.NextProtos = []string{certificate.RenewalProtocol, "http/1.1"}
	return nil
}

// trustRoots adds the authorities in a file.
func trustRoots(to *tls.Config, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	to.RootCAs.AppendCertsFromPEM(text)
	return nil
}
