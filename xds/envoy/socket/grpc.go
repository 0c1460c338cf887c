package socket

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/names"
)

// GRPCUpstreamTLS makes the socket for the calls of a gRPC client. Its certificate and roots
// come from the certificate provider names.CertificateProvider of its bootstrap. Of the peer's
// validation only the names count. (gRPC proposal A29.)
func GRPCUpstreamTLS(sni string, peer *PeerValidation) *corev3.TransportSocket {
	return socket(tlsSocket, &corev3.TransportSocket_TypedConfig{TypedConfig: message.Pack(&tlsv3.UpstreamTlsContext{
		CommonTlsContext: grpcTLS(peer), Sni: sni,
	})})
}

// GRPCDownstreamTLS makes the socket of a gRPC server, which demands a certificate of its
// clients. It cannot look at their names. (gRPC proposal A29.)
func GRPCDownstreamTLS() *corev3.TransportSocket {
	return socket(tlsSocket, &corev3.TransportSocket_TypedConfig{TypedConfig: message.Pack(&tlsv3.DownstreamTlsContext{
		CommonTlsContext: grpcTLS(&PeerValidation{}), RequireClientCertificate: wrapperspb.Bool(true),
	})})
}

func grpcTLS(peer *PeerValidation) *tlsv3.CommonTlsContext {
	provider := &tlsv3.CertificateProviderPluginInstance{InstanceName: names.CertificateProvider}
	validation := &tlsv3.CertificateValidationContext{CaCertificateProviderInstance: provider}
	for _, name := range peer.SubjectAltNames {
		//lint:ignore SA1019 gRPC reads this field alone.
		validation.MatchSubjectAltNames = append(validation.MatchSubjectAltNames, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}})
	}
	for _, prefix := range peer.SubjectAltPrefixes {
		//lint:ignore SA1019 gRPC reads this field alone.
		validation.MatchSubjectAltNames = append(validation.MatchSubjectAltNames, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}})
	}
	return &tlsv3.CommonTlsContext{
		TlsCertificateProviderInstance: provider,
		ValidationContextType:          &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: validation},
	}
}
