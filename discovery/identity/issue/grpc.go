package issue

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	istio "istio.io/api/security/v1alpha1"
)

// Register adds Istio's IstioCertificateService to a gRPC server. The service answers only
// over TLS and to this machine.
func (i *Issuer) Register(g grpc.ServiceRegistrar) {
	istio.RegisterIstioCertificateServiceServer(g, service{issuer: i})
}

type service struct {
	istio.UnimplementedIstioCertificateServiceServer
	issuer *Issuer
}

// CreateCertificate implements istio.v1.auth.IstioCertificateService. The last element of
// the chain has all roots.
func (s service) CreateCertificate(ctx context.Context, in *istio.IstioCertificateRequest) (*istio.IstioCertificateResponse, error) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil, status.Error(codes.Internal, "the connection is not known")
	}
	request := Request{CSR: []byte(in.GetCsr()), From: AddressOf(from.Addr.String())}
	const longest = int64(1<<63-1) / int64(time.Second)
	switch seconds := in.GetValidityDuration(); {
	case seconds < 0 || seconds > longest:
		return nil, status.Error(codes.InvalidArgument, "validity_duration is no time")
	default:
		request.Life = time.Duration(seconds) * time.Second
	}
	tls, secure := from.AuthInfo.(credentials.TLSInfo)
	if secure {
		request.Certificates = tls.State.PeerCertificates
	} else if from.Addr.Network() != "unix" && !request.From.IsLoopback() {
		return nil, status.Error(codes.PermissionDenied, "certificates are issued over TLS alone")
	}
	sent, _ := metadata.FromIncomingContext(ctx)
	if agents := sent.Get("user-agent"); len(agents) > 0 {
		request.Tool = agents[0]
	}
	var err error
	if request.Credential, err = Bearer(sent.Get("authorization")); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	signed, _, err := s.issuer.Issue(ctx, request)
	if err != nil {
		return nil, asStatus(err)
	}
	out := &istio.IstioCertificateResponse{}
	for _, c := range signed.Chain {
		out.CertChain = append(out.CertChain, string(c))
	}
	out.CertChain = append(out.CertChain, string(signed.Roots))
	return out, nil
}

var statusCodes = map[Reason]codes.Code{
	Invalid: codes.InvalidArgument, Unproven: codes.Unauthenticated, Forbidden: codes.PermissionDenied,
	Throttled: codes.ResourceExhausted, Unavailable: codes.Unavailable,
}

// asStatus returns the gRPC status for a refused request.
func asStatus(err error) error {
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		return status.FromContextError(err).Err()
	}
	return status.Error(statusCodes[refusal.Reason], refusal.Error())
}

// Bearer returns the bearer token of a request, empty if it has none.
func Bearer(headers []string) (string, error) {
	if len(headers) == 0 {
		return "", nil
	}
	scheme, credential, _ := strings.Cut(headers[0], " ")
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(credential) == "" {
		return "", fmt.Errorf("authorization is not Bearer and one credential")
	}
	return strings.TrimSpace(credential), nil
}

// AddressOf returns the address of a peer, the zero Addr if it cannot be read.
func AddressOf(text string) netip.Addr {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
