package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache/rest"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/discovery/identity/journal"
	"github.com/portolan-mesh/portolan/discovery/identity/secure"
	"github.com/portolan-mesh/portolan/xds/admission"
)

// TLS says how the server shows who it is, and whom it trusts. The zero TLS serves this
// machine alone.
type TLS struct {
	// Cert and Key are the files of the server's certificate, with its chain, and of its key.
	// They may be replaced at any time. Without them the authority of the mesh makes the
	// certificate.
	Cert, Key string
	// ClientCA is the file of authorities that sign the certificates of clients, beside that of
	// the mesh; empty for none. It may be replaced at any time.
	ClientCA string
	// SecureXDSAddress is HOST:PORT of xDS with TLS; empty for none.
	SecureXDSAddress string
	// Names are names and addresses by which clients call the server, beside those in the files
	// of the certificate.
	Names []string
}

// security is the TLS of the ports.
type security struct {
	tls    TLS
	logger *slog.Logger
	pair   *secure.Pair  // nil for none
	roots  *secure.Roots // nil for none
	// authority is that of the mesh. Where the server has no pair, and other machines reach it,
	// own is its certificate, for ownNames.
	authority *authority.Authority
	own       func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	ownNames  []string
	// apiAddress is HOST:PORT of the config API.
	apiAddress string
	// bearers are the clients of xDS that have a token and no certificate.
	bearers bearers

	// refused takes the certificates that are turned away.
	refused *journal.Refusals

	// exposed says that --xds-address is plaintext that other machines reach.
	exposed bool

	mu     sync.Mutex // guards the fields below
	bundle []byte     // what pool was made of
	pool   *x509.CertPool
}

// newSecurity reads the files of the options.
func newSecurity(o *Options) (*security, error) {
	s := &security{tls: o.TLS, logger: o.Logger, exposed: !loopback(o.XDSAddress), apiAddress: o.APIAddress, refused: journal.NewRefusals()}
	var err error
	if o.TLS.Cert != "" {
		if s.pair, err = secure.LoadPair(o.TLS.Cert, o.TLS.Key); err != nil {
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
	}
	if o.TLS.ClientCA != "" {
		if s.roots, err = secure.LoadRoots(o.TLS.ClientCA); err != nil {
			return nil, fmt.Errorf("--client-ca: %w", err)
		}
	}
	if s.exposed {
		s.logger.Warn("xDS is served without TLS to other machines: whoever reaches the port reads the configuration of every proxy, and nobody is told apart; "+
			"use --secure-xds-address instead of --insecure-xds-anywhere", "address", o.XDSAddress)
	}
	return s, nil
}

// loopback says whether an address is of this machine alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// use has the authority of the mesh sign for the server, if other machines reach that and it
// has no pair, and verify clients.
func (s *security) use(a *authority.Authority) {
	s.authority = a
	if s.pair != nil || s.tls.SecureXDSAddress == "" && loopback(s.apiAddress) {
		return
	}
	s.ownNames = ownNames(append([]string{hostOf(s.apiAddress), hostOf(s.tls.SecureXDSAddress)}, s.tls.Names...))
	s.own = a.ServerCertificate(s.ownNames...)
}

// begin makes the certificate that the authority signs, before the first client comes.
func (s *security) begin() {
	if s.own == nil {
		return
	}
	if _, err := s.own(&tls.ClientHelloInfo{}); err != nil {
		s.logger.Error("clients of other machines cannot connect", "err", err)
	}
}

// hostOf is the host of HOST:PORT, empty for that of any address.
func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		return ""
	}
	return host
}

// ownNames are some names and addresses, those of this machine, and localhost.
func ownNames(more []string) []string {
	out := append(more, "localhost", "127.0.0.1", "::1")
	if name, err := os.Hostname(); err == nil {
		out = append(out, strings.ToLower(name))
	}
	addresses, _ := net.InterfaceAddrs() // without them, names and --api-name remain
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().IsGlobalUnicast() {
			out = append(out, prefix.Addr().String())
		}
	}
	out = slices.DeleteFunc(out, func(name string) bool { return name == "" })
	slices.Sort(out)
	return slices.Compact(out)
}

// certificate returns the certificate of the server.
func (s *security) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s.pair == nil {
		return s.own(hello)
	}
	return s.pair.Certificate(hello)
}

// certifies says whether the certificate of the server is for a name or address.
func (s *security) certifies(host string) bool {
	return s.pair != nil && s.pair.Leaf().VerifyHostname(host) == nil || slices.Contains(s.ownNames, host)
}

// clientRoots returns the authorities that sign the certificates of clients, nil for none:
// that of the mesh, once there is one, and those of --client-ca.
func (s *security) clientRoots() *x509.CertPool {
	bundle, _ := s.authority.Bundle()
	if s.roots != nil {
		bundle = append(bundle, s.roots.PEM()...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(bundle, s.bundle) {
		s.bundle, s.pool = bundle, x509.NewCertPool()
		s.pool.AppendCertsFromPEM(bundle)
	}
	return s.pool
}

// api makes the listener of the config API: with TLS, or without to clients of this machine.
// A server that no other machine reaches, and that has no certificate, serves without TLS.
func (s *security) api(l net.Listener) net.Listener {
	if s.pair == nil && s.own == nil {
		return secure.Plain(l, "--api-address", s.logger)
	}
	refusal, _ := json.Marshal(metav1.Status{ // which always encodes
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest,
		Message: "this port serves other machines over TLS alone: use https://",
	})
	return secure.Listen(l, secure.Options{
		Name: "--api-address", Certificate: s.certificate, Roots: s.clientRoots, Protocols: []string{"h2", "http/1.1"}, OnRefusal: s.certificateRefused("config API"), Logger: s.logger,
		Plain: withinThisMachine, Farewell: secure.HTTPFarewell("application/json", string(refusal)),
	})
}

// withinThisMachine says whether a connection came by a loopback address, at both ends.
func withinThisMachine(c net.Conn) bool {
	return isLoopback(c.RemoteAddr()) && isLoopback(c.LocalAddr())
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// xds makes the listener of xDS with TLS.
func (s *security) xds(l net.Listener) net.Listener {
	return secure.Listen(l, secure.Options{
		Name: "--secure-xds-address", Certificate: s.certificate, Roots: s.clientRoots, Protocols: []string{secure.Protocol}, OnRefusal: s.certificateRefused("xDS"), Logger: s.logger,
		Farewell: secure.GRPCFarewell("this port serves xDS over TLS alone: portolan bootstrap --tls makes a proxy connect with its certificate"),
	})
}

// errNobody ends the stream of a client that shows nothing.
var errNobody = status.Error(codes.Unauthenticated, "this port serves clients that show who they are: have the proxy connect with a certificate of the mesh (portolan bootstrap --tls), or with a bearer token of an issuer that the mesh trusts")

// peerOf returns who the client of a stream is. One that came without TLS has proved nothing.
func (s *security) peerOf(ctx context.Context) (admission.Peer, error) {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return admission.Peer{}, status.Error(codes.Internal, "the client of the stream is not known")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return admission.Peer{}, nil
	}
	certificate := secure.Peer(&info.State)
	if certificate == nil {
		return s.prove(ctx, p.Addr)
	}
	who, err := identity.OfCertificate(certificate)
	if err != nil {
		return admission.Peer{}, status.Errorf(codes.PermissionDenied, "the certificate of %q is of no workload: %v", certificate.Subject, err)
	}
	still := func(context.Context) error { return s.standing(who, authority.IssuedAt(certificate)) }
	return admission.Peer{Identity: who, Until: certificate.NotAfter, Still: still}, still(ctx)
}

// standing returns why an identity that was proved at a time, the zero one for now, is not
// served: it is revoked.
func (s *security) standing(who identity.Identity, proved time.Time) error {
	switch err := s.authority.Revoked(who, proved); {
	case errors.Is(err, authority.ErrRevoked):
		return status.Error(codes.PermissionDenied, err.Error())
	case err != nil:
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

// bearer begins the value of the header that has a token.
const bearer = "Bearer "

// prove returns who a client without a certificate is, by its token.
func (s *security) prove(ctx context.Context, from net.Addr) (admission.Peer, error) {
	given := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(given) != 1 || len(given[0]) <= len(bearer) || !strings.EqualFold(given[0][:len(bearer)], bearer) {
		return admission.Peer{}, errNobody
	}
	var address netip.Addr
	if tcp, ok := from.(*net.TCPAddr); ok {
		address = tcp.AddrPort().Addr().Unmap()
	}
	token := given[0][len(bearer):]
	who, until, err := s.bearers.prove(ctx, token, address)
	if err != nil {
		return admission.Peer{}, unproved(err)
	}
	still := func(ctx context.Context) error {
		now, _, err := s.bearers.issuers.Workload(ctx, token)
		switch {
		case err != nil:
			return unproved(err)
		case now != who:
			return status.Errorf(codes.Unauthenticated, "the rules of its issuer say by now that the bearer of the token is %s, and not %s: connect anew", now, who)
		}
		return s.standing(who, time.Time{})
	}
	return admission.Peer{Identity: who, Until: until, Still: still}, s.standing(who, time.Time{})
}

// unproved is the status of a client whose token proves nothing.
func unproved(err error) error {
	switch {
	case errors.Is(err, identity.ErrThrottled):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, identity.ErrUnavailable):
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Unauthenticated, err.Error())
}

// run follows the files until ctx ends.
func (s *security) run(ctx context.Context) error {
	var all errgroup.Group
	if s.pair != nil {
		all.Go(func() error { return s.pair.Run(ctx, s.logger) })
	}
	if s.roots != nil {
		all.Go(func() error { return s.roots.Run(ctx, s.logger) })
	}
	return all.Wait()
}

// checks are what /readyz says of the ports.
func (s *security) checks() (out []rest.Check) {
	if s.pair != nil {
		out = append(out, rest.Check{Name: "certificate", Degraded: func() error {
			if s.roots == nil {
				return s.pair.Degraded()
			}
			return errors.Join(s.pair.Degraded(), s.roots.Degraded())
		}})
	}
	if s.own != nil {
		out = append(out, rest.Check{Name: "certificate", Degraded: func() error {
			_, err := s.own(&tls.ClientHelloInfo{})
			return err
		}})
	}
	if s.exposed {
		out = append(out, rest.Check{Name: "plaintext xds", Remark: func() string {
			return "xDS is served without TLS to other machines (--insecure-xds-anywhere): whoever reaches the port reads the configuration of every proxy"
		}})
	}
	return out
}

// Describe implements prometheus.Collector.
func (s *security) Describe(to chan<- *prometheus.Desc) { to <- notAfter }

// notAfter is when the certificate of the server ends.
var notAfter = prometheus.NewDesc("portolan_server_certificate_expiry_timestamp_seconds", "When the certificate of the server expires, in Unix time.", nil, nil)

// Collect implements prometheus.Collector.
func (s *security) Collect(to chan<- prometheus.Metric) {
	if s.pair == nil && s.own == nil {
		return
	}
	if shown, err := s.certificate(&tls.ClientHelloInfo{}); err == nil {
		to <- prometheus.MustNewConstMetric(notAfter, prometheus.GaugeValue, float64(shown.Leaf.NotAfter.Unix()))
	}
}
