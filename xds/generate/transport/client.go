package transport

import (
	"cmp"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
)

// ClientOptions describe the destination, beyond the TLS settings.
type ClientOptions struct {
	// ServerName is the default SNI within the mesh.
	ServerName string
	// SubjectAltNames are the names of the servers according to the service. They count
	// only if the TLS settings have none.
	SubjectAltNames []string
	// HTTP2: the connection speaks only HTTP/2.
	HTTP2 bool
	// Speaks is what a connection within the mesh carries.
	Speaks Speech
	// Selected: the rule selects its client proxies, and so may give sidecars a credential.
	Selected bool
	// Resolves: the proxy resolves the host that a request names.
	Resolves bool
}

// Speech is what a connection within the mesh carries.
type Speech int

// The kinds of content. SpeaksHTTP is of either version.
const (
	SpeaksBytes Speech = iota
	SpeaksHTTP1
	SpeaksHTTP2
	SpeaksHTTP
	SpeaksGRPC // of a client without a proxy
)

// offers returns the ALPN protocols that a client of the mesh offers.
func (s Speech) offers() []string {
	switch s {
	case SpeaksHTTP1:
		return meshHTTP1
	case SpeaksHTTP2:
		return meshHTTP2
	case SpeaksHTTP:
		return meshWhichever
	case SpeaksGRPC:
		return alpnH2
	}
	return meshBytes
}

// Client makes the transport socket for connections to a service, plaintext if tls is nil
// or its mode is DISABLE. It returns false if something is missing: then no connection
// may be opened. If the mode verifies the server, the socket never omits that.
func Client(v *mesh.View, tls *networking.ClientTLSSettings, o ClientOptions) (Socket, bool) {
	s, lacks := client(v, tls, o)
	return s, len(lacks) == 0
}

// ClientLacks says what a client's socket lacks, in a fixed order. It is empty where
// Client is true.
func ClientLacks(v *mesh.View, tls *networking.ClientTLSSettings, o ClientOptions) []Lack {
	_, lacks := client(v, tls, o)
	return lacks
}

func client(v *mesh.View, tls *networking.ClientTLSSettings, o ClientOptions) (Socket, []Lack) {
	m := &maker{view: v}
	switch tls.GetMode() {
	case networking.ClientTLSSettings_SIMPLE, networking.ClientTLSSettings_MUTUAL:
		if v.Shape().Type == discovery.Proxyless {
			m.lack("mode", "", "a gRPC client speaks no TLS but that of the mesh")
			return m.result(nil)
		}
		return m.origination(tls, o)
	case networking.ClientTLSSettings_ISTIO_MUTUAL:
		if v.Shape().Type == discovery.Proxyless {
			return m.grpcClient(tls, o)
		}
		return m.meshClient(tls, o)
	case networking.ClientTLSSettings_DISABLE:
		return Socket{}, nil
	}
	m.lack("mode", "", "%s is unknown", tls.GetMode())
	return m.result(nil)
}

// PeerNames returns the names of which the certificate of a server must have one. One that ends
// with * stands for all that begin so. Empty accepts any.
func PeerNames(v *mesh.View, tls *networking.ClientTLSSettings, o ClientOptions) []string {
	if tls.GetMode() != networking.ClientTLSSettings_ISTIO_MUTUAL {
		return peerNames(tls, o)
	}
	validation := (&maker{view: v}).meshPeer(tls, o)
	out := slices.Clone(validation.SubjectAltNames)
	for _, prefix := range validation.SubjectAltPrefixes {
		out = append(out, prefix+"*")
	}
	return out
}

// Offers returns the ALPN protocols that a client of the mesh offers.
func (o ClientOptions) Offers() []string { return o.Speaks.offers() }

// parameters returns the TLS versions of outgoing connections. (Istio:
// defaultUpstreamCommonTLSContext.)
func (m *maker) parameters() socket.TLSOptions {
	return socket.TLSOptions{MinVersion: socket.TLSv1_2, MaxVersion: socket.TLSv1_3}
}

// meshClient makes the socket for a server in the mesh.
func (m *maker) meshClient(tls *networking.ClientTLSSettings, o ClientOptions) (Socket, []Lack) {
	m.meshHas("mode")
	out := socket.UpstreamTLSOptions{TLSOptions: m.parameters(), SNI: cmp.Or(tls.GetSni(), o.ServerName)}
	out.Certificates = []socket.SecretRef{m.own(names.WorkloadCertificate)}
	out.Peer = m.meshPeer(tls, o)
	out.ALPN = o.Speaks.offers()
	return m.result(func() *corev3.TransportSocket { return socket.UpstreamTLS(out) })
}

// grpcClient makes the socket of a gRPC client for a server in the mesh. The client reads its
// certificate itself.
func (m *maker) grpcClient(tls *networking.ClientTLSSettings, o ClientOptions) (Socket, []Lack) {
	m.meshHas("mode")
	peer := m.meshPeer(tls, o)
	m.needs = nil
	return m.result(func() *corev3.TransportSocket {
		return socket.GRPCUpstreamTLS(cmp.Or(tls.GetSni(), o.ServerName), peer)
	})
}

// meshPeer accepts the servers that the settings name, else those of the service.
func (m *maker) meshPeer(tls *networking.ClientTLSSettings, o ClientOptions) *socket.PeerValidation {
	if names := tls.GetSubjectAltNames(); len(names) > 0 {
		return m.meshValidation(names)
	}
	return m.meshValidation(underAliases(m.view, o.SubjectAltNames))
}

// meshValidation accepts the certificates of the mesh with one of the given names; without
// names those of any identity of its trust domain.
func (m *maker) meshValidation(subjects []string) *socket.PeerValidation {
	out := &socket.PeerValidation{Roots: m.own(names.WorkloadRoots), SubjectAltNames: subjects}
	if len(subjects) == 0 {
		out.SubjectAltPrefixes = MeshIdentities(m.view)
	}
	return out
}

// peerNames returns the names of which the server's certificate must have one.
func peerNames(tls *networking.ClientTLSSettings, o ClientOptions) []string {
	if names := tls.GetSubjectAltNames(); len(names) > 0 {
		return names
	}
	return o.SubjectAltNames
}

// origination makes the socket for any other server. (Istio: constructUpstreamTLS.)
func (m *maker) origination(tls *networking.ClientTLSSettings, o ClientOptions) (Socket, []Lack) {
	out := socket.UpstreamTLSOptions{TLSOptions: m.parameters(), SNI: tls.GetSni()}
	defaults(m.view, &out.TLSOptions)
	if o.HTTP2 {
		out.ALPN = alpnH2
	}
	credential := tls.GetCredentialName()
	if credential != "" && m.view.Shape().Type != discovery.Router && !o.Selected {
		m.lack("credentialName", "", "a sidecar has the credential of no rule but one with a workloadSelector")
		return m.result(nil)
	}
	mutual, skips := tls.GetMode() == networking.ClientTLSSettings_MUTUAL, tls.GetInsecureSkipVerify().GetValue()
	switch {
	case !mutual:
	case credential != "":
		out.Certificates = []socket.SecretRef{m.pair("credentialName", credential)}
	case tls.GetClientCertificate() == "" || tls.GetPrivateKey() == "":
		m.lack("clientCertificate", "", "no certificate is named: set credentialName, or clientCertificate and privateKey")
	default:
		out.Certificates = []socket.SecretRef{m.filePair(tls.GetClientCertificate(), tls.GetPrivateKey())}
	}
	if !skips {
		out.Peer = m.serverValidation(tls, o)
	}
	s, lacks := m.result(func() *corev3.TransportSocket { return socket.UpstreamTLS(out) })
	s.AutoSNI = tls.GetSni() == ""
	s.AutoSAN = !skips && (s.AutoSNI && len(tls.GetSubjectAltNames()) == 0 || o.Resolves)
	return s, lacks
}

// serverValidation verifies servers' certificates: with the CA certificates of the
// credential, of a file, or of the machine.
func (m *maker) serverValidation(tls *networking.ClientTLSSettings, o ClientOptions) *socket.PeerValidation {
	out := &socket.PeerValidation{SubjectAltNames: peerNames(tls, o)}
	switch {
	case tls.GetCredentialName() != "":
		out.Roots = m.roots("credentialName", tls.GetCredentialName())
	case tls.GetCaCertificates() != "":
		out.Roots = m.fileRoots(tls.GetCaCertificates(), tls.GetCaCrl())
	default:
		out.Roots = m.fileRoots(names.SystemFile, tls.GetCaCrl())
	}
	return out
}
