package enroll

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
)

// PinnedTrust fetches the server's roots and trusts them if they match the token's pin.
func PinnedTrust(ctx context.Context, server, pin, agent string) (*tls.Config, error) {
	// The roots are public, and the pin shows whether they are the right ones. This connection
	// sends no secret.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
	api, err := call.New(server, call.Options{HTTP: &http.Client{Transport: transport}, UserAgent: agent})
	if err != nil {
		return nil, err
	}
	defer api.Close()
	told := &certificate.Roots{}
	if err := api.JSON(ctx, certificate.RootsPath, told); err != nil {
		return nil, err
	}
	if its := invitation.Pin(told.Roots); its != pin {
		return nil, exit.With(exit.Data, fmt.Errorf("the roots of the server are not those that the token names (their hash is %s, the token has %s): it is a server of another mesh, somebody is in between, or the root has been replaced since; nothing was sent to it: make another token or invitation", its, pin))
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(told.Roots))
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, nil
}
