package secret

import (
	"cmp"
	"iter"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Generator makes secrets by name: stored ones of the proxy's own namespace, or files on
// the proxy's machine. It makes only those that the proxy may have. The proxy's clusters
// and listeners decide which it needs.
type Generator struct{}

var _ generate.Generator = Generator{}

// TypeURL implements generate.Generator.
func (Generator) TypeURL() string { return resource.SecretType }

// Affected implements generate.Generator. It yields none: other resources' needs decide
// which secrets exist.
func (Generator) Affected(*mesh.View, mesh.Delta) iter.Seq[string] { return func(func(string) bool) {} }

// Build implements generate.Generator.
func (Generator) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	message, err := build(v, name)
	return message, nil, err
}

func build(v *mesh.View, name string) (proto.Message, error) {
	if chain, key, ok := names.ParseFileCert(name); ok {
		return socket.CertificateFileSecret(name, chain, key), nil
	}
	if roots, revoked, ok := names.ParseFileRoots(name); ok {
		if roots == names.SystemFile {
			roots = cmp.Or(v.SystemRoots(), SystemRoots)
		}
		return socket.RootsFileSecret(name, roots, revoked), nil
	}
	if credential, ok := strings.CutPrefix(name, names.CredentialPrefix); ok {
		return stored(v, name, credential)
	}
	own := v.CertificateFiles()
	switch {
	case name == names.WorkloadCertificate && own.Chain != "":
		return socket.CertificateFileSecret(name, own.Chain, own.Key), nil
	case name == names.WorkloadRoots && own.Roots != "":
		return socket.RootsFileSecret(name, own.Roots, ""), nil
	}
	return nil, nil
}

// SystemRoots is the CA file of Debian, Ubuntu, Alpine and the images of Envoy. Envoy has
// no default for it.
const SystemRoots = "/etc/ssl/certs/ca-certificates.crt"

// stored makes a secret of the store. A name with the suffix RootsSuffix means the CA
// certificates of the credential before it. Only if there are none, it is the full name
// of a pair.
func stored(v *mesh.View, name, credential string) (proto.Message, error) {
	if !v.MayHaveSecrets() {
		return nil, nil
	}
	if of, ok := strings.CutSuffix(credential, names.RootsSuffix); ok && of != "" {
		if from := RootsOf(v, of); from != "" {
			return roots(v, name, from)
		}
	}
	if !v.Secret(credential).Pair {
		return nil, nil
	}
	data, spec, err := v.OpenSecret(credential)
	if err != nil || spec == nil {
		return nil, err
	}
	chain, key, _ := spec.Pair()
	return socket.CertificateSecret(name, data[chain], data[key]), nil
}

func roots(v *mesh.View, name, from string) (proto.Message, error) {
	data, spec, err := v.OpenSecret(from)
	if err != nil || spec == nil {
		return nil, err
	}
	entry, _ := spec.Roots()
	var revoked []byte
	if list, ok := spec.Revoked(); ok {
		revoked = data[list]
	}
	return socket.RootsSecret(name, data[entry], revoked), nil
}

// RootsOf returns the name of the secret, in the proxy's namespace, with the CA
// certificates of a credential: the one with the suffix RootsSuffix, else the credential
// itself; empty for none. (Istio: CredentialsController.GetCaCert.)
func RootsOf(v *mesh.View, credential string) string {
	for _, name := range [...]string{credential + names.RootsSuffix, credential} {
		if v.Secret(name).Roots {
			return name
		}
	}
	return ""
}
