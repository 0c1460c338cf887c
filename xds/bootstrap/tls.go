package bootstrap

import (
	"fmt"
	"path"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
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
	out := map[string][]byte{}
	for name, secret := range map[string]*tlsv3.Secret{
		CertificateFile: socket.CertificateFileSecret(certificateName, o.Certificate.Chain, o.Certificate.Key),
		RootsFile:       socket.RootsFileSecret(rootsSecret, o.serverRoots(), ""),
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
func (o Options) serverTLS() *corev3.TransportSocket {
	if !o.TLS {
		return nil
	}
	certificate, roots := o.ownSecrets()
	return socket.UpstreamTLS(socket.UpstreamTLSOptions{SNI: o.sni(), TLSOptions: socket.TLSOptions{
		ALPN: []string{"h2"}, MinVersion: socket.TLSv1_2, MaxVersion: socket.TLSv1_3, Certificates: []socket.SecretRef{certificate},
		Peer: &socket.PeerValidation{Roots: roots, SubjectAltNames: o.serverNames()},
	}})
}

// ownSecrets refers to the proxy's certificate, and to the authorities of servers.
func (o Options) ownSecrets() (certificate, roots socket.SecretRef) {
	if o.SDSSocket != "" {
		return onSocket(names.WorkloadCertificate), onSocket(names.WorkloadRoots)
	}
	return o.inFile(certificateName, CertificateFile), o.inFile(rootsSecret, RootsFile)
}

// inFile refers to a secret in one of TLSFiles.
func (o Options) inFile(name, file string) socket.SecretRef {
	return socket.SecretRef{Name: name, Source: &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{PathConfigSource: &corev3.PathConfigSource{Path: path.Join(o.TLSDir, file)}},
	}}
}

// onSocket refers to a secret on SDSSocket as the server's resources do, so that Envoy has it once.
func onSocket(name string) socket.SecretRef {
	return socket.SecretRef{Name: name, Source: message.SDS(SDSClusterName)}
}

func (o Options) validateTLS(proxyless bool, fault func(format string, args ...any)) {
	if o.SDSSocket != "" && o.Certificate != (node.CertificateFiles{}) {
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
