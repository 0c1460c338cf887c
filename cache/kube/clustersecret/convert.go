package clustersecret

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// fields leaves out what never has certificates for gateways. The API server does not even
// send it.
const fields = "type!=kubernetes.io/service-account-token,type!=helm.sh/release.v1,type!=kubernetes.io/dockerconfigjson," +
	"type!=kubernetes.io/dockercfg,type!=kubernetes.io/basic-auth,type!=kubernetes.io/ssh-auth,type!=bootstrap.kubernetes.io/token"

// served are the entries that proxies get. All others are forgotten at once.
var served = []string{
	secret.Cert, secret.Key, secret.Authority, secret.Revoked,
	secret.TLSCert, secret.TLSKey, secret.TLSAuthority, secret.TLSRevoked,
}

// sealer makes the kept form of secrets.
type sealer struct {
	ring *seal.Ring
	id   string // of the key that seals
}

// newSealer returns a sealer with a key that nothing but this process ever has.
func newSealer() sealer {
	ring, id := seal.Ring{}.WithNew()
	return sealer{&ring, id}
}

// convert returns the sealed form of a secret of a cluster, nil if no proxy can use it. Its
// error has all faults, and nothing of the data.
func (s sealer) convert(o cluster.Object) (*config.Config, error) {
	from := o.(*corev1.Secret)
	kind := secret.Opaque
	if from.Type == secret.TLS {
		kind = secret.TLS
	}
	if from.Type == secret.CertificateAuthority {
		return nil, nil
	}
	entries := map[string][]byte{}
	for _, name := range served {
		if value, ok := from.Data[name]; ok {
			entries[name] = value
		}
	}
	var faults []string
	secret.Check(kind, entries, func(name, format string, args ...any) {
		faults = append(faults, strings.TrimPrefix("data."+name+": ", "data.: ")+fmt.Sprintf(format, args...))
	})
	if len(faults) > 0 {
		return nil, errors.New(strings.Join(faults, "; "))
	}
	out := &config.Config{Meta: config.Meta{
		GroupVersionKind: schema.Secret, Namespace: from.Namespace, Name: from.Name, CreationTimestamp: from.CreationTimestamp.Time,
	}}
	sealed, err := sealing.With(*s.ring, s.id, out.Key(), entries)
	if err != nil {
		return nil, err
	}
	spec := &secret.Spec{Type: kind, Sealed: sealed}
	_, _, pair := spec.Pair()
	if _, roots := spec.Roots(); !pair && !roots {
		return nil, nil
	}
	out.Spec = spec
	return out, nil
}

// same says whether two secrets have the same data.
func (s sealer) same(a, b *config.Config) bool {
	if a == nil || b == nil || a.Spec.(*secret.Spec).Type != b.Spec.(*secret.Spec).Type {
		return a == b
	}
	before, err := sealing.Open(*s.ring, a)
	if err != nil {
		return false
	}
	after, err := sealing.Open(*s.ring, b)
	return err == nil && maps.EqualFunc(before, after, bytes.Equal)
}
