package xdstest

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
)

func newSealer(tb testing.TB, records sealing.Records) *sealing.Sealer {
	return sealing.New(filepath.Join(tb.TempDir(), "sealing.key"), records)
}

// sealed returns an object as it is stored: a secret has its data sealed. An object without
// data in the clear stays as it is.
func sealed(tb testing.TB, sealer *sealing.Sealer, object, stored *config.Config) *config.Config {
	tb.Helper()
	if spec, ok := object.Spec.(*secret.Spec); !ok || !spec.InClear() {
		return object
	}
	out, err := sealer.Seal(context.Background(), object, stored, false)
	if err != nil {
		tb.Fatalf("seal %s: %v", object.Key(), err)
	}
	return out
}

// Secret writes the YAML of a Secret: "namespace/name" (the namespace may be left out), and its
// data.
func Secret(name string, data map[string][]byte) string {
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		namespace, short = "default", name
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\ndata:\n", short, namespace)
	for _, entry := range secret.Names(data) {
		fmt.Fprintf(&b, "  %s: %s\n", entry, base64.StdEncoding.EncodeToString(data[entry]))
	}
	return b.String()
}

// PutSecret stores a secret, named as in "shop/web", with entries such as secret.TLSCert. It
// lists its entries but has no content, so it is for generators that only check that a secret
// exists. Without entries it deletes the secret.
func (w *World) PutSecret(name string, entries ...string) {
	w.tb.Helper()
	w.revision++
	w.inputs.SealingKeys = w.sealer.Keys()
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		namespace, short = "default", name
	}
	spec := &secret.Spec{Type: secret.Opaque, Sealed: &secret.Sealed{Box: &seal.Box{}}}
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
