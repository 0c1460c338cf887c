package transport

import (
	"fmt"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/generate/secret"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Socket is the TLS of one end of connections.
type Socket struct {
	// Transport encrypts and decrypts; nil for plaintext.
	Transport *corev3.TransportSocket
	// Needs are the secrets that it names.
	Needs []resource.Need
	// AutoSNI makes a client send the request's host as SNI. AutoSAN makes it accept only
	// a certificate for that host. Both are settings of the cluster.
	AutoSNI, AutoSAN bool
}

// Lack is something without which a socket cannot be made.
type Lack struct {
	// Field is the field of the TLS settings that requires it.
	Field string
	// Secret is the name of the secret that is missing or incomplete, empty for none.
	Secret string
	What   string
}

// String returns What, a sentence about the field.
func (l Lack) String() string { return l.What }

// The ALPN protocols of servers and of clients outside the mesh.
var (
	alpnHTTP  = []string{"h2", "http/1.1"}
	alpnHTTP3 = []string{"h3"}
	alpnH2    = []string{"h2"}
)

// The ALPN protocols that clients of the mesh offer (docs/decisions/mesh-alpn.md). Servers
// find the filter chain by the first, and agree on the last. Nobody offers
// istio-peer-exchange, for which Istio's own proxies would send a preamble.
var (
	meshBytes     = []string{"istio"}
	meshHTTP1     = []string{"istio-http/1.1", "istio", "http/1.1"}
	meshHTTP2     = []string{"istio-h2", "istio", "h2"}
	meshWhichever = []string{"istio-http/1.1", "istio"}
)

// MeshIdentities are the beginnings of the identities of the mesh: those of its trust domain
// and of the aliases.
func MeshIdentities(v *mesh.View) []string {
	var out []string
	for _, domain := range trustDomains(v) {
		out = append(out, "spiffe://"+domain+"/")
	}
	return out
}

// trustDomains returns the trust domain of the mesh, then its aliases.
func trustDomains(v *mesh.View) []string {
	return append([]string{v.Mesh(mesh.TrustDomain).GetTrustDomain()}, v.Mesh(mesh.TrustDomainAliases).GetTrustDomainAliases()...)
}

// underAliases returns identities of the mesh's trust domain under each of its aliases, too.
func underAliases(v *mesh.View, identities []string) []string {
	domains := trustDomains(v)
	if len(domains) == 1 {
		return identities
	}
	var out []string
	for _, id := range identities {
		out = append(out, id)
		if path, ok := strings.CutPrefix(id, "spiffe://"+domains[0]+"/"); ok {
			for _, alias := range domains[1:] {
				out = append(out, "spiffe://"+alias+"/"+path)
			}
		}
	}
	return out
}

// maker collects the needs of a socket, and what it lacks.
type maker struct {
	view  *mesh.View
	needs []resource.Need
	lacks []Lack
}

// need records that the socket needs a secret of this server, and refers to it.
func (m *maker) need(name string) socket.SecretRef {
	m.needs = append(m.needs, resource.Need{TypeURL: resource.SecretType, Name: name, Kind: resource.Once})
	return socket.SecretRef{Name: name}
}

// own refers to a secret with the proxy's own certificate or the roots of the mesh. If the
// proxy's machine serves it, this server does not send it, and nothing waits for it.
func (m *maker) own(name string) socket.SecretRef {
	if cluster := m.view.SecretCluster(); cluster != "" {
		return socket.SecretRef{Name: name, Source: message.SDS(cluster)}
	}
	return m.need(name)
}

func (m *maker) lack(field, of, format string, args ...any) {
	if l := (Lack{Field: field, Secret: of, What: fmt.Sprintf(format, args...)}); !slices.Contains(m.lacks, l) {
		m.lacks = append(m.lacks, l)
	}
}

// builtinCredential is the credential that stands for the proxy's own certificate.
const builtinCredential = "builtin://"

// stored returns the name of the stored secret of a credential. It must be in the proxy's
// own namespace: NAME, kubernetes://NAME or, with that namespace,
// kubernetes://NAMESPACE/NAME.
func (m *maker) stored(field, credential string) (string, bool) {
	name := strings.TrimPrefix(credential, names.CredentialPrefix)
	if strings.Contains(name, "://") {
		m.lack(field, "", "%q is of no kind of secret that is stored here: name a Secret", credential)
		return "", false
	}
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		if !m.view.InNamespace(namespace) {
			m.lack(field, "", "%q is of another namespace: a proxy has the secrets of its own namespace alone", credential)
			return "", false
		}
		name = rest
	}
	return name, true
}

// pair returns the secret with the certificate and key of a credential.
func (m *maker) pair(field, credential string) socket.SecretRef {
	if credential == builtinCredential {
		m.meshHas(field)
		return m.own(names.WorkloadCertificate)
	}
	name, ok := m.stored(field, credential)
	if ok && !m.view.Secret(name).Pair {
		m.lack(field, name, "no certificate with its key is stored as secret %s in the namespace of the proxy", name)
	}
	return m.need(names.Credential(name))
}

// roots returns the secret with the CA certificates of a credential. A secret with the
// suffix RootsSuffix comes first.
func (m *maker) roots(field, credential string) socket.SecretRef {
	if credential == builtinCredential {
		m.meshHas(field)
		return m.own(names.WorkloadRoots)
	}
	name, ok := m.stored(field, credential)
	name = strings.TrimSuffix(name, names.RootsSuffix)
	if ok && secret.RootsOf(m.view, name) == "" {
		m.lack(field, name, "no certificate of an authority is stored as secret %s or %s in the namespace of the proxy", name, name+names.RootsSuffix)
	}
	return m.need(names.CredentialRoots(name))
}

// meshHas records a lack if the proxy has no certificate of the mesh.
func (m *maker) meshHas(field string) {
	if !m.view.HasCertificate() {
		m.lack(field, "", "the proxy has no certificate of the mesh")
	}
}

// filePair returns the secret for certificate files on the proxy's machine.
func (m *maker) filePair(certificate, key string) socket.SecretRef {
	return m.need(names.FileCert(certificate, key))
}

// fileRoots returns the secret for a CA file. It contains the revocation list, too: if a
// list is invalid, Envoy must refuse only this secret, not one that others use.
func (m *maker) fileRoots(file, revoked string) socket.SecretRef {
	return m.need(names.FileRoots(file, revoked))
}

// result returns the socket, unless it lacks something.
func (m *maker) result(transport func() *corev3.TransportSocket) (Socket, []Lack) {
	if len(m.lacks) > 0 {
		return Socket{}, m.lacks
	}
	return Socket{Transport: transport(), Needs: m.needs}, nil
}

// defaults sets the mesh's cipher suites and curves, except those that no Envoy knows.
func defaults(v *mesh.View, o *socket.TLSOptions) {
	d := v.Mesh(mesh.TLSDefaults).GetTlsDefaults()
	o.CipherSuites, _ = schema.CipherSuites(d.GetCipherSuites())
	o.Curves, _ = schema.Curves(d.GetEcdhCurves())
}
