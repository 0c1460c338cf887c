package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// ClientFiles holds the files with which a command verifies the server, and proves who its
// user is.
type ClientFiles struct{ Cert, Key, CA string }

func (f *ClientFiles) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.Cert, "cert", os.Getenv("PORTOLAN_CERT"), "file with the certificate of the user; the default is $PORTOLAN_CERT where it is set")
	flags.StringVar(&f.Key, "key", os.Getenv("PORTOLAN_KEY"), "file with the key of --cert; the default is $PORTOLAN_KEY where it is set")
	flags.StringVar(&f.CA, "ca", os.Getenv("PORTOLAN_CA"), "file with the authorities that sign the certificate of the server; the default is $PORTOLAN_CA where it is set, else those of this machine")
}

// Client returns an HTTP client for a server, nil if the default client will do.
func (f *ClientFiles) Client(server string) (*http.Client, error) {
	if *f == (ClientFiles{}) {
		return nil, nil
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, exit.With(exit.Usage, errors.New("--cert and --key (PORTOLAN_CERT, PORTOLAN_KEY): name both, or neither"))
	}
	if f.Cert != "" && !strings.HasPrefix(server, "https://") {
		return nil, exit.With(exit.Usage, fmt.Errorf("--cert: a certificate is shown over https alone, and the server is %s: begin --server with https://", server))
	}
	config, err := dial.Files{CA: f.CA, Cert: f.Cert, Key: f.Key}.Config()
	if err != nil {
		return nil, exit.With(exit.Data, fmt.Errorf("--cert, --key, --ca: %w", err))
	}
	if len(config.Certificates) > 0 { // send it even to a server that does not trust its authority, which then says so
		own := &config.Certificates[0]
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	return &http.Client{Transport: transport}, nil
}
