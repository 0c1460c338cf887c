package xds_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/kube/remote"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

// secretPlaces are what the Secrets of places are made of.
type secretPlaces struct {
	ring  seal.Ring
	key   string            // of the ring, which seals
	pairs []secrettest.Pair // of gateways
	// remote are two servers of the cluster north, which a Secret of the store names.
	remote [2]*clusterAPI
}

func newSecretPlaces(t testing.TB) secretPlaces {
	out := secretPlaces{remote: [2]*clusterAPI{newClusterAPI(t), newClusterAPI(t)}}
	out.ring, out.key = seal.Ring{}.WithNew()
	for range 2 {
		out.pairs = append(out.pairs, secrettest.New(t, time.Hour, "*.test"))
	}
	return out
}

// north writes the Secret that names the cluster north by one of its servers, or deletes it.
func (s *places) north(draw *rand.Rand) {
	s.t.Helper()
	const name = "north"
	if draw.IntN(3) == 0 {
		s.dropSecret(name)
		return
	}
	kubeconfig := fmt.Sprintf(`{"kind": "Config", "apiVersion": "v1", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
"clusters": [{"name": "c", "cluster": {"server": %q}}]}`, s.secrets.remote[draw.IntN(2)].URL)
	s.putSecret(name, secret.Opaque, map[string]string{remote.Label: "true"}, map[string][]byte{name: []byte(kubeconfig)})
}

// drawnPair draws the name and the content of a Secret for gateways.
func (s *places) drawnPair(draw *rand.Rand) (name string, data map[string][]byte) {
	pair := s.secrets.pairs[draw.IntN(len(s.secrets.pairs))]
	return fmt.Sprint("k", draw.IntN(2)), map[string][]byte{secret.TLSCert: pair.Cert, secret.TLSKey: pair.Key}
}

// pairOfStore writes or deletes a Secret for gateways in the store.
func (s *places) pairOfStore(draw *rand.Rand, gone bool) {
	s.t.Helper()
	name, data := s.drawnPair(draw)
	if gone {
		s.dropSecret(name)
		return
	}
	s.putSecret(name, secret.TLS, nil, data)
}

// pairOfCluster draws a Secret for gateways of a cluster.
func (s *places) pairOfCluster(draw *rand.Rand) document {
	s.t.Helper()
	name, data := s.drawnPair(draw)
	text, err := json.Marshal(data)
	s.check(err)
	return document{version: "v1", kind: "Secret", resource: "secrets", namespace: secretNamespace, name: name, body: `"type": "kubernetes.io/tls", "data": ` + string(text)}
}

// secretNamespace is the namespace of all Secrets: the root namespace, and that of the gateway.
const secretNamespace = "istio-system"

func (s *places) putSecret(name, kind string, labels map[string]string, data map[string][]byte) {
	s.t.Helper()
	object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.Secret, Namespace: secretNamespace, Name: name, Labels: labels}}
	sealed, err := sealing.With(s.secrets.ring, s.secrets.key, object.Key(), data)
	s.check(err)
	object.Spec = &secret.Spec{Type: kind, Sealed: sealed}
	_, _, err = s.store.Apply(s.t.Context(), []storage.Op{{Verb: storage.Put, Config: object}})
	s.check(err)
}

func (s *places) dropSecret(name string) {
	s.t.Helper()
	key := config.Key{Kind: schema.Secret, Namespace: secretNamespace, Name: name}
	if _, _, err := s.store.Apply(s.t.Context(), []storage.Op{{Verb: storage.Delete, Key: key}}); !errors.Is(err, storage.ErrNotFound) {
		s.check(err)
	}
}
