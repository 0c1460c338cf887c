package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
)

// Files name the PEM files by which a client verifies etcd, and etcd the client. They
// are read at every connection.
type Files struct {
	// CA holds the authorities that may sign etcd's certificate; empty means the system's.
	CA string
	// Cert and Key are the client's own certificate and key; empty is none.
	Cert, Key string
	// ServerName is the name in etcd's certificate, if it is not the host of the
	// endpoint.
	ServerName string
}

// Config reads the files. Its error names all files that cannot be used.
func (f Files) Config() (*tls.Config, error) {
	roots, rootsErr := readRoots(f.CA)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: f.ServerName}
	if f.Cert == "" && f.Key == "" {
		return config, rootsErr
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, errors.Join(rootsErr, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err))
	}
	config.Certificates = []tls.Certificate{pair}
	return config, rootsErr
}

func readRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	document, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(document) {
		return nil, fmt.Errorf("%s: there is no certificate in PEM in it", file)
	}
	return roots, nil
}

// transport is TLS with the configuration of each moment.
type transport struct {
	config func() (*tls.Config, error)
}

// ClientHandshake implements credentials.TransportCredentials.
func (t transport) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := t.config()
	if err != nil {
		return nil, nil, err
	}
	if config.ServerName != "" {
		authority = config.ServerName
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// ServerHandshake implements credentials.TransportCredentials. A client has none.
func (t transport) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are the credentials of a client")
}

// Info implements credentials.TransportCredentials.
func (t transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (t transport) Clone() credentials.TransportCredentials { return t }

// OverrideServerName implements credentials.TransportCredentials. It has no effect:
// Files.ServerName is the only override.
func (t transport) OverrideServerName(string) error {
	return errors.New("the server name is one of Options.TLS")
}
