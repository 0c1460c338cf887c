package bootstrap

import (
	"fmt"
	"path"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	envoysocket "github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/names"
)

// The names of TLSFiles in Options.TLSDir, and the secrets in them.
const (
	CertificateFile, RootsFile   = "xds-certificate.yaml", "xds-roots.yaml"
	certificateName, rootsSecret = "xds-certificate", "xds-roots"
)

// TLSFiles returns the files, by name, that an Envoy with Options.TLS reads besides its
// bootstrap. They are needed since Envoy rereads a replaced certificate only if a secrets
// file names it. Without TLS the map is nil.
// https://envoyproxy.io/docs/envoy/v1.24.5/operations/certificates
func TLSFiles(o Options) (map[string][]byte, error) {
	if !o.TLS || o.SDSSocket != "" {
		return nil, nil
	}
	file := func(path string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
	}
	watched := func(file string) *corev3.WatchedDirectory { return &corev3.WatchedDirectory{Path: path.Dir(file)} }
	out := map[string][]byte{}
	for name, secret := range map[string]*tlsv3.Secret{
		CertificateFile: {Name: certificateName, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: file(o.Certificate.Chain), PrivateKey: file(o.Certificate.Key), WatchedDirectory: watched(o.Certificate.Chain),
		}}},
		RootsFile: {Name: rootsSecret, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: file(o.serverRoots()), WatchedDirectory: watched(o.serverRoots()),
		}}},
	} {
		text, err := secretsFile(secret)
		if err != nil {
			return nil, err
		}
		out[name] = text
	}
	return out, nil
}

// secretsFile renders a secret as a file from which Envoy reads secrets.
func secretsFile(secret *tlsv3.Secret) ([]byte, error) {
	packed, err := anypb.New(secret)
	if err != nil {
		return nil, fmt.Errorf("render a secret: %w", err)
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{packed}})
	if err != nil {
		return nil, fmt.Errorf("render a secret: %w", err)
	}
	return config.JSONToYAML(raw)
}

// serverRoots is the CA file for the servers' certificates.
func (o Options) serverRoots() string {
	if o.ServerRoots != "" {
		return o.ServerRoots
	}
	return o.Certificate.Roots
}

// serverNames returns the accepted names of a server: its certificate must have one.
func (o Options) serverNames() []string {
	if o.ServerName != "" {
		return []string{o.ServerName}
	}
	var out []string
	for _, address := range o.XDSAddresses {
		if host, _, err := hostPort(address); err == nil && !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	return out
}

// sni is the SNI for servers: the first accepted name that is no IP address, empty for
// none.
func (o Options) sni() string {
	for _, name := range o.serverNames() {
		if !isIP(name) {
			return name
		}
	}
	return ""
}

// serverTLS makes the transport socket for the control plane, nil without TLS.
func (o Options) serverTLS() (*corev3.TransportSocket, error) {
	if !o.TLS {
		return nil, nil
	}
	from := func(name, file string) *tlsv3.SdsSecretConfig {
		return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
			ResourceApiVersion:    corev3.ApiVersion_V3,
			ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{PathConfigSource: &corev3.PathConfigSource{Path: path.Join(o.TLSDir, file)}},
		}}
	}
	// UpstreamTLS makes Envoy verify the names, as with every socket.
	socket := envoysocket.UpstreamTLS(envoysocket.UpstreamTLSOptions{SNI: o.sni(), TLSOptions: envoysocket.TLSOptions{
		ALPN: []string{"h2"}, MinVersion: envoysocket.TLSv1_2, MaxVersion: envoysocket.TLSv1_3, Certificates: []string{certificateName},
		Peer: &envoysocket.PeerValidation{Roots: rootsSecret, SubjectAltNames: o.serverNames()},
	}})
	var context tlsv3.UpstreamTlsContext
	if err := socket.GetTypedConfig().UnmarshalTo(&context); err != nil {
		return nil, fmt.Errorf("the transport to the control plane: %w", err)
	}
	common := context.GetCommonTlsContext()
	certificate, roots := from(certificateName, CertificateFile), from(rootsSecret, RootsFile)
	if o.SDSSocket != "" {
		certificate, roots = envoysocket.ClusterSecret(SDSClusterName, names.WorkloadCertificate), envoysocket.ClusterSecret(SDSClusterName, names.WorkloadRoots)
	}
	common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{certificate}
	common.GetCombinedValidationContext().ValidationContextSdsSecretConfig = roots
	packed := &anypb.Any{}
	if err := anypb.MarshalFrom(packed, &context, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("the transport to the control plane: %w", err)
	}
	socket.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: packed}
	return socket, nil
}

func (o Options) validateTLS(proxyless bool, fault func(format string, args ...any)) {
	if o.SDSSocket != "" && o.Certificate != (discovery.CertificateFiles{}) {
		fault("sds socket: excludes cert, key and ca: the proxy has one certificate")
	}
	for _, file := range []struct{ option, path string }{{"out", o.TLSDir}, {"xds ca", o.ServerRoots}, {"sds socket", o.SDSSocket}} {
		if file.path != "" && !path.IsAbs(file.path) {
			fault("%s %q: must be an absolute path, of the proxy's machine", file.option, file.path)
		}
	}
	if !o.TLS {
		if o.ServerRoots != "" || o.ServerName != "" {
			fault("tls: is needed for --xds-ca and --xds-name, which are about TLS")
		}
		return
	}
	if o.Certificate.Chain == "" && o.SDSSocket == "" {
		fault("tls: needs the proxy's certificate: name cert, key and ca, or sds socket")
	}
	if o.ServerRoots != "" && o.SDSSocket != "" {
		fault("xds ca: goes with cert, key and ca: over sds socket the servers' certificates are of the roots of the mesh")
	}
	if o.TLSDir == "" && !proxyless && o.SDSSocket == "" {
		fault("tls: needs a directory for the files that Envoy watches: name it with --out")
	}
	for _, address := range o.XDSAddresses {
		if names.IsUnix(address) {
			fault("xds address %q: a unix socket has no TLS", address)
		}
	}
}
