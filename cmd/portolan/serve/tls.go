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

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
	"github.com/portolan-mesh/portolan/discovery/identity/journal"
	"github.com/portolan-mesh/portolan/discovery/identity/secure"
	"github.com/portolan-mesh/portolan/xds/admission"
)

// TLS configures how the server proves its identity, and which clients it trusts. The zero TLS
// serves only this machine.
type TLS struct {
	// Cert and Key are the files of the server's certificate, with its chain, and its key.
	// They may be replaced at any time. Without them the mesh's authority makes the
	// certificate.
	Cert, Key string
	// ClientCA is the file of authorities that may sign client certificates, besides the
	// mesh's authority; empty for none. It may be replaced at any time.
	ClientCA string
	// SecureXDSAddress is HOST:PORT of xDS with TLS; empty for none.
	SecureXDSAddress string
	// Names are further names and addresses by which clients call the server, besides those in
	// the certificate files.
	Names []string
}

// security manages the TLS of the ports.
type security struct {
	tls    TLS
	logger *slog.Logger
	pair   *secure.Pair  // nil for none
	roots  *secure.Roots // nil for none
	// authority is the mesh's authority. If the server has no pair and other machines can
	// reach it, own returns its certificate, which is for ownNames.
	authority *authority.Authority
	own       func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	ownNames  []string
	// apiAddress is HOST:PORT of the config API.
	apiAddress string
	// bearers identifies clients of xDS that have a token and no certificate.
	bearers bearers

	// refused records the certificates that were refused.
	refused *journal.Refusals

	// exposed is true if other machines can reach --xds-address, which is plaintext.
	exposed bool

	mu     sync.Mutex // guards the fields below
	bundle []byte     // the PEM that pool was made from
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

// loopback says whether only this machine can reach an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// useAuthority makes the mesh's authority verify clients, and sign the server's certificate if
// other machines can reach the server and it has no pair.
func (s *security) useAuthority(a *authority.Authority) {
	s.authority = a
	if s.pair != nil || s.tls.SecureXDSAddress == "" && loopback(s.apiAddress) {
		return
	}
	s.ownNames = ownNames(append([]string{hostOf(s.apiAddress), hostOf(s.tls.SecureXDSAddress)}, s.tls.Names...))
	s.own = a.ServerCertificate(s.ownNames...)
}

// makeCertificate makes the certificate that the authority signs, so that the first client need not
// wait.
func (s *security) makeCertificate() {
	if s.own == nil {
		return
	}
	if _, err := s.own(&tls.ClientHelloInfo{}); err != nil {
		s.logger.Error("clients of other machines cannot connect", "err", err)
	}
}

// unreachable returns why no other machine can connect, though the server listens for them; nil
// if they can, or if none should.
func (s *security) unreachable() error {
	if s.own == nil {
		return nil
	}
	if err := s.authority.Ready(); err != nil {
		return fmt.Errorf("no machine can connect, since this server has no certificate: %w", err)
	}
	return nil
}

// hostOf returns the host of HOST:PORT, empty for the unspecified address.
func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		return ""
	}
	return host
}

// ownNames returns the given names, localhost, and the names and addresses of this machine.
func ownNames(more []string) []string {
	out := append(more, "localhost", "127.0.0.1", "::1")
	if name, err := os.Hostname(); err == nil {
		out = append(out, strings.ToLower(name))
	}
	addresses, _ := net.InterfaceAddrs() // if this fails, names and --api-name remain
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().IsGlobalUnicast() {
			out = append(out, prefix.Addr().String())
		}
	}
	out = slices.DeleteFunc(out, func(name string) bool { return name == "" })
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *security) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s.pair == nil {
		return s.own(hello)
	}
	return s.pair.Certificate(hello)
}

// certifies says whether the server's certificate is valid for a name or address.
func (s *security) certifies(host string) bool {
	return s.pair != nil && s.pair.Leaf().VerifyHostname(host) == nil || slices.Contains(s.ownNames, host)
}

// clientRoots returns the authorities that may sign client certificates, nil for none: the
// mesh's, once it exists, and those of --client-ca.
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

// api returns the listener of the config API: with TLS, or without for clients on this
// machine. If no other machine can reach the server and it has no certificate, it serves
// without TLS.
func (s *security) api(l net.Listener) net.Listener {
	if s.pair == nil && s.own == nil {
		return secure.Plain(l, "--api-address", s.logger)
	}
	refusal, _ := json.Marshal(metav1.Status{ // encoding it cannot fail
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest,
		Message: "this port serves other machines over TLS alone: use https://",
	})
	return secure.Listen(l, secure.Options{
		Name: "--api-address", Certificate: s.certificate, Roots: s.clientRoots, Protocols: []string{"h2", "http/1.1"}, OnRefusal: s.clientCertificateRefused("config API"), Logger: s.logger,
		Unverified: certificate.RenewalProtocol, Plain: withinThisMachine, Farewell: secure.HTTPFarewell("application/json", string(refusal)),
	})
}

// apiURL returns the URL by which clients and other servers call the config API: over TLS where
// other machines can reach it, by the first name that the operator gave, else by that of the
// machine.
func (s *security) apiURL(l net.Addr) string {
	host, port, err := net.SplitHostPort(l.String())
	if err != nil || isLoopback(l) || s.pair == nil && s.own == nil {
		return "http://" + l.String()
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			host = "localhost"
		}
		if len(s.tls.Names) > 0 {
			host = s.tls.Names[0]
		}
	}
	return "https://" + net.JoinHostPort(host, port)
}

// withinThisMachine says whether both ends of a connection are loopback addresses.
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
		Name: "--secure-xds-address", Certificate: s.certificate, Roots: s.clientRoots, Protocols: []string{secure.Protocol}, OnRefusal: s.clientCertificateRefused("xDS"), Logger: s.logger,
		Farewell: secure.GRPCFarewell("this port serves xDS over TLS alone: portolan bootstrap --tls makes a proxy connect with its certificate"),
	})
}

// errNobody ends the stream of a client without credentials.
var errNobody = status.Error(codes.Unauthenticated, "this port serves clients that show who they are: have the proxy connect with a certificate of the mesh (portolan bootstrap --tls), or with a bearer token of an issuer that the mesh trusts")

// peerOf returns the identity of a stream's client. A client without TLS has proved none.
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
		return s.proveByToken(ctx, p.Addr)
	}
	who, err := identity.OfCertificate(certificate)
	if err != nil {
		return admission.Peer{}, status.Errorf(codes.PermissionDenied, "the certificate of %q is of no workload: %v", certificate.Subject, err)
	}
	still := func(context.Context) error { return s.checkRevoked(who, authority.IssuedAt(certificate)) }
	return admission.Peer{Identity: who, Until: certificate.NotAfter, Still: still}, still(ctx)
}

// checkRevoked returns the status for an identity that was proved at a time and is revoked since,
// nil if it is not; the zero time means now. It is Unavailable if the server cannot tell.
func (s *security) checkRevoked(who identity.Identity, proved time.Time) error {
	switch err := s.authority.Revoked(who, proved); {
	case errors.Is(err, authority.ErrRevoked):
		return status.Error(codes.PermissionDenied, err.Error())
	case err != nil:
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

// bearer starts the value of a header with a token.
const bearer = "Bearer "

// proveByToken returns the identity of a client without a certificate, by its token.
func (s *security) proveByToken(ctx context.Context, from net.Addr) (admission.Peer, error) {
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
		return s.checkRevoked(who, time.Time{})
	}
	return admission.Peer{Identity: who, Until: until, Still: still}, s.checkRevoked(who, time.Time{})
}

// unproved returns the gRPC status for a client whose token proves nothing.
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

// notAfter is the metric of when the server's certificate expires.
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
