package refmesh

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"

	"github.com/go-jose/go-jose/v4"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Policy denies a path to all who call the workloads in the namespace of a service.
func (m Mesh) Policy(i int, path string) *config.Config {
	return &config.Config{Meta: meta(schema.AuthorizationPolicy, Namespace(i), "closed"), Spec: &security.AuthorizationPolicy{
		Action: security.AuthorizationPolicy_DENY,
		Rules:  []*security.Rule{{To: []*security.Rule_To{{Operation: &security.Operation{Paths: []string{path}}}}}},
	}}
}

// Authentication validates the tokens of an issuer in the whole mesh.
func (m Mesh) Authentication() *config.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // a system without random numbers
	}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "ES256"}}})
	if err != nil {
		panic(err) // a key that cannot be encoded
	}
	return &config.Config{Meta: meta(schema.RequestAuthentication, RootNamespace, "tokens"), Spec: &security.RequestAuthentication{
		JwtRules: []*security.JWTRule{{Issuer: "https://issuer.test", Jwks: string(keys)}},
	}}
}
