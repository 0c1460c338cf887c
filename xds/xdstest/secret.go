package xdstest

import (
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// PutSecret stores a secret, named as in "shop/web", with entries such as secret.TLSCert.
// It says what it has, and has no content: it is for generators that ask whether a secret is
// there. Without entries it goes.
func (w *World) PutSecret(name string, entries ...string) {
	w.tb.Helper()
	w.revision++
	if w.inputs.SealingKeys == nil {
		ring, id := seal.Ring{}.WithNew()
		w.inputs.SealingKeys, w.sealingKey = &ring, id
	}
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		namespace, short = "default", name
	}
	spec := &secret.Spec{Type: secret.Opaque, Sealed: &secret.Sealed{Box: &seal.Box{Key: w.sealingKey}}}
	for _, entry := range entries {
		spec.Sealed.Entries = append(spec.Sealed.Entries, secret.Entry{Name: entry})
		spec.Sealed.Certificates = append(spec.Sealed.Certificates, secret.Certificate{Entry: entry})
	}
	object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.Secret, Namespace: namespace, Name: short}, Spec: spec}
	if path := object.Key().Path(); len(entries) > 0 {
		w.configs = w.configs.Set(path, object)
	} else {
		w.configs = w.configs.Delete(path)
	}
	w.commit()
}
