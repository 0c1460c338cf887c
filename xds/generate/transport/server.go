package transport

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
)

// ServerOptions describe the server, beyond the TLS settings.
type ServerOptions struct {
	// QUIC: the server speaks HTTP/3.
	QUIC bool
}

// Server makes the transport socket of a Gateway's or Sidecar's server that terminates
// TLS. It returns false if something is missing: then the caller must not make a filter
// chain.
func Server(v *mesh.View, tls *networking.ServerTLSSettings, o ServerOptions) (Socket, bool) {
	s, lacks := server(v, tls, o)
	return s, len(lacks) == 0
}

// Mesh makes the socket with which a workload takes mutual TLS of the mesh. It returns false if
// the proxy has no certificate.
func Mesh(v *mesh.View) (Socket, bool) {
	return Server(v, &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_ISTIO_MUTUAL}, ServerOptions{})
}

// ServerLacks says what a server's socket lacks, in a fixed order. It is empty where
// Server is true.
func ServerLacks(v *mesh.View, tls *networking.ServerTLSSettings, o ServerOptions) []Lack {
	_, lacks := server(v, tls, o)
	return lacks
}

func server(v *mesh.View, tls *networking.ServerTLSSettings, o ServerOptions) (Socket, []Lack) {
	m := &maker{view: v}
	mode := tls.GetMode()
	out := socket.DownstreamTLSOptions{QUIC: o.QUIC, TLSOptions: socket.TLSOptions{ALPN: alpnHTTP}}
	verifies := mode == networking.ServerTLSSettings_OPTIONAL_MUTUAL
	switch mode {
	case networking.ServerTLSSettings_MUTUAL, networking.ServerTLSSettings_ISTIO_MUTUAL:
		out.RequireClient, verifies = true, true
	case networking.ServerTLSSettings_SIMPLE, networking.ServerTLSSettings_OPTIONAL_MUTUAL:
	default:
		m.lack("mode", "", "%s does not end TLS", mode)
	}
	if o.QUIC && verifies {
		m.lack("mode", "", "%s asks for certificates of clients, which Envoy does not verify over QUIC", mode)
	}
	if tls == nil {
		m.lack("", "", "there are no TLS settings")
	}
	if o.QUIC {
		out.ALPN = alpnHTTP3
	}
	m.serverCertificates(tls, &out)
	if verifies {
		out.Peer = m.clientValidation(tls)
	}
	if mode == networking.ServerTLSSettings_ISTIO_MUTUAL {
		meshParameters(v, &out.TLSOptions)
	} else {
		serverParameters(v, tls, &out.TLSOptions)
	}
	return m.result(func() *corev3.TransportSocket { return socket.DownstreamTLS(out) })
}

// serverCertificates adds the server's certificates: the mesh's, stored ones, or files.
func (m *maker) serverCertificates(tls *networking.ServerTLSSettings, out *socket.DownstreamTLSOptions) {
	add := func(ref socket.SecretRef) { out.Certificates = append(out.Certificates, ref) }
	switch {
	case tls.GetMode() == networking.ServerTLSSettings_ISTIO_MUTUAL:
		m.meshHas("mode")
		add(m.own(names.WorkloadCertificate))
	case len(tls.GetCredentialNames()) > 0:
		for _, name := range tls.GetCredentialNames() {
			add(m.pair("credentialNames", name))
		}
	case tls.GetCredentialName() != "":
		add(m.pair("credentialName", tls.GetCredentialName()))
	case len(tls.GetTlsCertificates()) > 0:
		for _, c := range tls.GetTlsCertificates() {
			add(m.filePair(c.GetServerCertificate(), c.GetPrivateKey()))
		}
	case tls.GetServerCertificate() == "" || tls.GetPrivateKey() == "":
		m.lack("credentialName", "", "no certificate is named: set credentialName, or serverCertificate and privateKey")
	default:
		add(m.filePair(tls.GetServerCertificate(), tls.GetPrivateKey()))
	}
}

// clientValidation verifies clients' certificates.
func (m *maker) clientValidation(tls *networking.ServerTLSSettings) *socket.PeerValidation {
	if tls.GetMode() == networking.ServerTLSSettings_ISTIO_MUTUAL {
		out := m.meshValidation(tls.GetSubjectAltNames())
		out.PublicKeys, out.Certificates = tls.GetVerifyCertificateSpki(), tls.GetVerifyCertificateHash()
		out.AcceptUntrusted = tls.GetInsecureSkipVerify().GetValue()
		return out
	}
	out := &socket.PeerValidation{
		SubjectAltNames: tls.GetSubjectAltNames(),
		PublicKeys:      tls.GetVerifyCertificateSpki(), Certificates: tls.GetVerifyCertificateHash(),
		AcceptUntrusted: tls.GetInsecureSkipVerify().GetValue(),
	}
	switch {
	case tls.GetCaCertCredentialName() != "":
		out.Roots = m.roots("caCertCredentialName", tls.GetCaCertCredentialName())
	case len(tls.GetCredentialNames()) > 0:
		out.Roots = m.roots("credentialNames", tls.GetCredentialNames()[0])
	case tls.GetCredentialName() != "":
		out.Roots = m.roots("credentialName", tls.GetCredentialName())
	case tls.GetCaCertificates() == "":
		m.lack("caCertificates", "", "no authority is named, whose certificates clients must have: set caCertificates")
	default:
		out.Roots = m.fileRoots(tls.GetCaCertificates(), tls.GetCaCrl())
	}
	return out
}

// meshSuites are the cipher suites of TLS 1.2 between workloads. (Istio: SupportedCiphers of
// pilot/pkg/security/authn/utils.)
var meshSuites = []string{
	"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256",
	"AES256-GCM-SHA384", "AES128-GCM-SHA256",
}

// meshParameters takes the TLS parameters of a server in the mesh from meshMTLS. (Istio:
// BuildInboundTLS.)
func meshParameters(v *mesh.View, o *socket.TLSOptions) {
	d := v.Mesh(mesh.MeshMTLS).GetMeshMTLS()
	o.MinVersion, o.MaxVersion = socket.TLSv1_2, socket.TLSv1_3
	if d.GetMinProtocolVersion() == meshv1alpha1.MeshConfig_TLSConfig_TLSV1_3 {
		o.MinVersion = socket.TLSv1_3
	}
	if o.CipherSuites, _ = schema.CipherSuites(d.GetCipherSuites()); len(o.CipherSuites) == 0 {
		o.CipherSuites = meshSuites
	}
}

// serverParameters takes the TLS parameters from the settings, else from the mesh.
func serverParameters(v *mesh.View, tls *networking.ServerTLSSettings, o *socket.TLSOptions) {
	defaults(v, o)
	switch v.Mesh(mesh.TLSDefaults).GetTlsDefaults().GetMinProtocolVersion() {
	case meshv1alpha1.MeshConfig_TLSConfig_TLSV1_2:
		o.MinVersion = socket.TLSv1_2
	case meshv1alpha1.MeshConfig_TLSConfig_TLSV1_3:
		o.MinVersion = socket.TLSv1_3
	}
	if own, _ := schema.CipherSuites(tls.GetCipherSuites()); len(own) > 0 {
		o.CipherSuites = own
	}
	if least := version(tls.GetMinProtocolVersion()); least != socket.TLSAuto {
		o.MinVersion = least
	}
	o.MaxVersion = version(tls.GetMaxProtocolVersion())
	if o.MaxVersion != socket.TLSAuto && o.MinVersion > o.MaxVersion {
		o.MinVersion = o.MaxVersion // of the mesh: the server's own setting goes first
	}
}

func version(p networking.ServerTLSSettings_TLSProtocol) socket.TLSVersion {
	switch p {
	case networking.ServerTLSSettings_TLSV1_0:
		return socket.TLSv1_0
	case networking.ServerTLSSettings_TLSV1_1:
		return socket.TLSv1_1
	case networking.ServerTLSSettings_TLSV1_2:
		return socket.TLSv1_2
	case networking.ServerTLSSettings_TLSV1_3:
		return socket.TLSv1_3
	}
	return socket.TLSAuto
}
