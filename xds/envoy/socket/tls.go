package socket

import (
	"cmp"
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

const (
	tlsSocket  = "envoy.transport_sockets.tls"
	quicSocket = "envoy.transport_sockets.quic"
)

// TLSVersion is a TLS version, 0 for Envoy's choice.
type TLSVersion = tlsv3.TlsParameters_TlsProtocol

// The versions.
const (
	TLSAuto = tlsv3.TlsParameters_TLS_AUTO
	TLSv1_0 = tlsv3.TlsParameters_TLSv1_0
	TLSv1_1 = tlsv3.TlsParameters_TLSv1_1
	TLSv1_2 = tlsv3.TlsParameters_TLSv1_2
	TLSv1_3 = tlsv3.TlsParameters_TLSv1_3
)

// SecretRef refers to a secret by its name and its source.
type SecretRef struct {
	Name string
	// Source is where the proxy has it from; nil for its ADS stream. Envoy identifies a secret
	// by its name and the bytes of its source: if the source changes, the secret never arrives.
	// So every secret has one source while a proxy runs.
	// https://github.com/envoyproxy/envoy/issues/47309
	Source *corev3.ConfigSource
}

// TLSOptions are common to both ends of a TLS connection. Certificates come as secrets.
type TLSOptions struct {
	// Certificates refer to the secrets with the certificates and keys to present. Envoy
	// chooses one whose key type the peer accepts.
	Certificates []SecretRef
	// Peer verifies the other end's certificate; nil accepts any.
	Peer *PeerValidation
	// ALPN are the application protocols to offer, in order of preference.
	ALPN                   []string
	MinVersion, MaxVersion TLSVersion
	// CipherSuites are for TLS 1.2 and older, and Curves for the key exchange; empty means
	// Envoy's defaults.
	CipherSuites, Curves []string
}

// PeerValidation verifies that a certificate chains to one of the Roots, and the other
// conditions that are set.
type PeerValidation struct {
	// Roots refers to the secret with the CA certificates.
	Roots SecretRef
	// SubjectAltNames are the accepted names, and SubjectAltPrefixes the beginnings of
	// accepted URIs; the certificate must have one of either. Without both, any name is
	// accepted.
	SubjectAltNames, SubjectAltPrefixes []string
	// PublicKeys are key hashes in base64, and Certificates are certificate hashes in
	// hexadecimal. If there are any, the certificate or its key must match one.
	PublicKeys, Certificates []string
	// AcceptUntrusted accepts certificates that chain to none of the Roots.
	AcceptUntrusted bool
}

// UpstreamTLSOptions describe a client.
type UpstreamTLSOptions struct {
	TLSOptions
	// SNI is the server name to send, unless the cluster takes it from the request.
	SNI string
}

// DownstreamTLSOptions describe a server.
type DownstreamTLSOptions struct {
	TLSOptions
	// RequireClient closes connections of clients without a certificate.
	RequireClient bool
	// QUIC is for an HTTP/3 listener.
	QUIC bool
}

// UpstreamTLS makes the socket for a proxy's outgoing connections.
func UpstreamTLS(o UpstreamTLSOptions) *corev3.TransportSocket {
	return socket(tlsSocket, &corev3.TransportSocket_TypedConfig{TypedConfig: message.Pack(&tlsv3.UpstreamTlsContext{
		CommonTlsContext: o.message(), Sni: o.SNI,
	})})
}

// DownstreamTLS makes the socket for a proxy's incoming connections. It issues no session
// tickets. If it verifies clients, it resumes no sessions at all, so that a client cannot
// return with a certificate that was revoked meanwhile.
func DownstreamTLS(o DownstreamTLSOptions) *corev3.TransportSocket {
	context := &tlsv3.DownstreamTlsContext{
		CommonTlsContext:                 o.message(),
		RequireClientCertificate:         wrapperspb.Bool(o.RequireClient),
		SessionTicketKeysType:            &tlsv3.DownstreamTlsContext_DisableStatelessSessionResumption{DisableStatelessSessionResumption: true},
		DisableStatefulSessionResumption: o.Peer != nil,
	}
	if o.QUIC {
		return socket(quicSocket, &corev3.TransportSocket_TypedConfig{TypedConfig: message.Pack(&quicv3.QuicDownstreamTransport{DownstreamTlsContext: context})})
	}
	return socket(tlsSocket, &corev3.TransportSocket_TypedConfig{TypedConfig: message.Pack(context)})
}

func socket(name string, config *corev3.TransportSocket_TypedConfig) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: name, ConfigType: config}
}

func (o TLSOptions) message() *tlsv3.CommonTlsContext {
	out := &tlsv3.CommonTlsContext{AlpnProtocols: o.ALPN}
	for _, ref := range o.Certificates {
		out.TlsCertificateSdsSecretConfigs = append(out.TlsCertificateSdsSecretConfigs, ref.message())
	}
	if o.MinVersion != TLSAuto || o.MaxVersion != TLSAuto || len(o.CipherSuites)+len(o.Curves) > 0 {
		out.TlsParams = &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: o.MinVersion, TlsMaximumProtocolVersion: o.MaxVersion,
			CipherSuites: o.CipherSuites, EcdhCurves: o.Curves,
		}
	}
	if o.Peer != nil {
		out.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         o.Peer.message(),
				ValidationContextSdsSecretConfig: o.Peer.Roots.message(),
			},
		}
	}
	return out
}

func (p *PeerValidation) message() *tlsv3.CertificateValidationContext {
	out := &tlsv3.CertificateValidationContext{VerifyCertificateSpki: p.PublicKeys, VerifyCertificateHash: p.Certificates}
	for _, name := range p.SubjectAltNames {
		out.MatchTypedSubjectAltNames = append(out.MatchTypedSubjectAltNames, &tlsv3.SubjectAltNameMatcher{
			SanType: kindOfName(name),
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}},
		})
	}
	for _, prefix := range p.SubjectAltPrefixes {
		out.MatchTypedSubjectAltNames = append(out.MatchTypedSubjectAltNames, &tlsv3.SubjectAltNameMatcher{
			SanType: tlsv3.SubjectAltNameMatcher_URI,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}},
		})
	}
	if p.AcceptUntrusted {
		out.TrustChainVerification = tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED
	}
	return out
}

func kindOfName(name string) tlsv3.SubjectAltNameMatcher_SanType {
	switch _, err := netip.ParseAddr(name); {
	case err == nil:
		return tlsv3.SubjectAltNameMatcher_IP_ADDRESS
	case strings.Contains(name, ":"):
		return tlsv3.SubjectAltNameMatcher_URI
	case strings.Contains(name, "@"):
		return tlsv3.SubjectAltNameMatcher_EMAIL
	}
	return tlsv3.SubjectAltNameMatcher_DNS
}

func (r SecretRef) message() *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: r.Name, SdsConfig: cmp.Or(r.Source, message.ADS())}
}
