// Package authoritytest runs certificate authorities over a store in memory, for tests.
package authoritytest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	cachememory "github.com/portolan-mesh/portolan/cache/memory"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/sealing"
)

// Mesh is a store with its replica, and the sealing keys that its servers share.
type Mesh struct {
	Store  *memory.Store
	Cache  *cachememory.Cache
	Sealer *sealing.Sealer
}

// Start runs the store and the cache of a mesh until the test ends.
func Start(t testing.TB) *Mesh {
	t.Helper()
	worker := cache.NewWorker()
	store := memory.New(schema.Pilot(), memory.Options{})
	replica := cachememory.New(store, cachememory.Options{Worker: worker})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = worker.Run(ctx) })
	running.Go(func() { _ = replica.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	if _, err := replica.Await(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return &Mesh{Store: store, Cache: replica, Sealer: sealing.New(filepath.Join(t.TempDir(), "sealing.key"), store)}
}

// Options returns the options of the authority of a server of the mesh cluster.local.
func (m *Mesh) Options() authority.Options {
	return authority.Options{
		TrustDomain: "cluster.local", RootNamespace: "istio-system", Store: m.Store, Sealer: m.Sealer, Snapshot: m.Cache.Snapshot,
	}
}

// Server returns the authority of one more server, which knows all that is stored; configure
// may change its options.
func (m *Mesh) Server(t testing.TB, configure ...func(*authority.Options)) *authority.Authority {
	t.Helper()
	m.Await(t)
	o := m.Options()
	for _, f := range configure {
		f(&o)
	}
	a, err := authority.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Put stores an object, and waits until the cache has it.
func (m *Mesh) Put(t testing.TB, object *config.Config) {
	t.Helper()
	if _, err := m.Store.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	m.Await(t)
}

// Await waits until the cache has all that is stored.
func (m *Mesh) Await(t testing.TB) {
	t.Helper()
	revision, err := strconv.ParseInt(m.Store.Version(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Cache.Await(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
}

// Key returns a new private key.
func Key(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// CSR returns a certificate request in PEM, signed with the key, with these URIs as its names.
func CSR(t testing.TB, key crypto.Signer, uris ...string) []byte {
	t.Helper()
	template := &x509.CertificateRequest{}
	for _, text := range uris {
		uri, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, uri)
	}
	return Request(t, key, template)
}

// Request returns a certificate request in PEM, made from a template.
func Request(t testing.TB, key crypto.Signer, template *x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// Workload returns the identity of a service account of the mesh.
func Workload(namespace, serviceAccount string) identity.Identity {
	return identity.Identity{TrustDomain: "cluster.local", Namespace: namespace, ServiceAccount: serviceAccount}
}

// Issue returns a certificate of an authority with its key, valid for life.
func Issue(t testing.TB, by *authority.Authority, who identity.Identity, life time.Duration) (tls.Certificate, *authority.Certificate) {
	t.Helper()
	key := Key(t)
	request, err := authority.ParseRequest(CSR(t, key, who.String()))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := by.Sign(t.Context(), request, who, life)
	if err != nil {
		t.Fatal(err)
	}
	pair := tls.Certificate{PrivateKey: key, Leaf: signed.Leaf}
	for _, text := range signed.Chain {
		block, _ := pem.Decode(text)
		pair.Certificate = append(pair.Certificate, block.Bytes)
	}
	return pair, signed
}
