package enroll

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
)

// Servers ask the servers of a mesh for certificates, in a random order, until one answers.
type Servers struct {
	// URLs are those of their config API, https each.
	URLs []string
	// Dir is the directory of the certificate.
	Dir string
	// Token is the join token for the first certificate, with the pin of the roots if it has one.
	Token string
	// Agent names the program to the servers.
	Agent string
}

// Ask implements Options.Ask. It goes on to another server only if one is not reached.
func (s Servers) Ask(ctx context.Context, r certificate.Request, own *tls.Certificate) (got certificate.Certificate, err error) {
	for _, i := range rand.Perm(len(s.URLs)) {
		got, err = s.ask(ctx, s.URLs[i], r, own)
		var unreachable *call.UnreachableError
		if err == nil || !errors.As(err, &unreachable) || ctx.Err() != nil {
			return got, err
		}
	}
	return got, err
}

func (s Servers) ask(ctx context.Context, server string, r certificate.Request, own *tls.Certificate) (got certificate.Certificate, err error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	token, pin := invitation.Unpin(s.Token)
	trusts := false // the roots in the directory
	switch {
	case own != nil:
		token, trusts = "", true
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
		if err := Renewing(transport, s.Dir); err != nil {
			return got, err
		}
	case pin != "":
		if transport.TLSClientConfig, err = PinnedTrust(ctx, server, pin, s.Agent); err != nil {
			return got, err
		}
	default: // the machine was in the mesh before, or trusts the authorities of the system
		roots := filepath.Join(s.Dir, RootsFile)
		if _, missing := os.Stat(roots); missing == nil {
			trusts = true
			transport.TLSClientConfig.RootCAs = x509.NewCertPool()
			if err := trustRoots(transport.TLSClientConfig, roots); err != nil {
				return got, err
			}
		}
	}
	api, err := call.New(server, call.Options{HTTP: &http.Client{Transport: transport}, Token: token, UserAgent: s.Agent})
	if err != nil {
		return got, err
	}
	defer api.Close()
	err = api.Post(ctx, certificate.Path, r, &got)
	if trusts {
		err = ExplainUntrusted(s.Dir, err)
	}
	return got, err
}

// ExplainUntrusted has the error of a server that the roots in a directory do not vouch for say which
// roots those are, and what to do. It returns any other error as it is.
func ExplainUntrusted(dir string, err error) error {
	return call.ExplainUntrusted(err, filepath.Join(dir, RootsFile), "if the mesh has another root now (portolan ca status), join the machine again by a new invitation (portolan machine invite); else it is a server of another mesh, or somebody is in between")
}

// Client returns the TLS configuration of a connection to a server of the mesh with the certificate
// and the roots in a directory, as they are now.
func Client(dir string) (*tls.Config, error) {
	held, err := Read(dir)
	if err != nil {
		return nil, err
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{held.Pair}}
	return out, trustRoots(out, filepath.Join(dir, RootsFile))
}
