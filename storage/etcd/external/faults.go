package external

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// fault is an error of the connection to a cluster.
type fault struct {
	err error
	// lasting says that waiting does not help: each member that can be reached is at
	// fault.
	lasting bool
	// secured says that the other side speaks TLS, whether or not it is at fault.
	secured bool
}

// faults finds out what is wrong with the connections to the members, since an etcd
// client only says that there are none. The error joins the faults of all members; it is
// nil if nothing is wrong.
func (c *Cluster) faults(ctx context.Context) fault {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	config, err := c.tlsConfig()
	if err != nil {
		return fault{err: err, lasting: true}
	}
	found := make([]fault, len(c.o.Dial.Endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range c.o.Dial.Endpoints {
		asking.Go(func() { found[i] = faultOf(ctx, endpoint, config) })
	}
	asking.Wait()
	var words []string
	var out fault
	lasting, fine := 0, 0
	for i, f := range found {
		if f.err == nil {
			fine++
			continue
		}
		words = append(words, c.o.Dial.Endpoints[i]+": "+f.err.Error())
		if f.lasting {
			lasting++
		}
	}
	if len(words) > 0 {
		out.err = errors.New(strings.Join(words, "; "))
	}
	out.lasting = lasting > 0 && fine == 0
	return out
}

func (c *Cluster) tlsConfig() (*tls.Config, error) {
	if c.o.Dial.TLS == nil {
		return nil, nil
	}
	return c.o.Dial.TLS()
}

// faultOf tests the connection to one member, and returns its fault.
func faultOf(ctx context.Context, endpoint string, config *tls.Config) fault {
	_, address, ok := strings.Cut(endpoint, "://")
	if !ok {
		address = endpoint
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fault{err: err}
	}
	defer func() { _ = conn.Close() }()
	host, _, _ := net.SplitHostPort(address)
	if config != nil {
		return handshake(ctx, conn, host, config)
	}
	if f := handshake(ctx, conn, host, &tls.Config{MinVersion: tls.VersionTLS12}); f.secured {
		return fault{err: errors.New("it speaks TLS: use https://"), lasting: true}
	}
	return fault{}
}

// handshake tests TLS to a member, and returns its fault.
func handshake(ctx context.Context, conn net.Conn, host string, config *tls.Config) fault {
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName = host
	}
	config.NextProtos = []string{"h2"}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return tlsFault(err, config.ServerName)
	}
	// A server that refuses the client's certificate says so after the handshake, in
	// place of its first message.
	if deadline, ok := ctx.Deadline(); ok {
		_ = secured.SetReadDeadline(deadline)
	}
	if _, err := secured.Read(make([]byte, 1)); err != nil {
		return tlsFault(err, config.ServerName)
	}
	return fault{secured: true}
}

// tlsFault puts the error of a handshake into words.
func tlsFault(err error, name string) fault {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var alert *net.OpError // "remote error": what the other side rejects
	switch {
	case errors.As(err, &authority):
		return fault{err: fmt.Errorf("its certificate is signed by none of the authorities that are trusted: %w", err), lasting: true, secured: true}
	case errors.As(err, &host):
		return fault{err: fmt.Errorf("its certificate is not for the name %q: %w", name, err), lasting: true, secured: true}
	case errors.As(err, &invalid):
		return fault{err: fmt.Errorf("its certificate cannot be used: %w", err), lasting: true, secured: true}
	case errors.As(err, &record):
		return fault{err: errors.New("it does not speak TLS: use http:// if it may be reached without"), lasting: true}
	case errors.As(err, &alert) && alert.Op == "remote error":
		return fault{err: fmt.Errorf("it does not take this client's certificate, or wants one: %w", err), lasting: true, secured: true}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) {
		return fault{err: errors.New("it takes connections and does not answer in TLS: use http:// if it is to be reached without, or see whether it hangs")}
	}
	return fault{err: err}
}
