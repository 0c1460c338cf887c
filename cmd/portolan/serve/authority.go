package serve

import (
	"errors"
	"fmt"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/discovery/identity/issue"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// certificates holds the certificate authority of the mesh, and the issuer that gives out its
// certificates.
type certificates struct {
	authority *authority.Authority
	issuer    *issue.Issuer
}

func (s *server) addAuthority() (err error) {
	s.certificates.authority, err = authority.New(authority.Options{
		TrustDomain: s.o.Mesh.GetTrustDomain(), RootNamespace: s.o.Mesh.GetRootNamespace(), Files: s.o.Authority,
		Store: s.configs, Sealer: s.secrets.sealer, Snapshot: func() *cache.Snapshot { return s.mirror.Snapshot() },
		MaxLife: s.o.MaxCertificateLife, RenewExpired: s.o.RenewExpired, Logger: s.log(loglevel.Identity),
	})
	if err != nil {
		return err
	}
	if err := s.metrics.Register(s.certificates.authority); err != nil {
		return err
	}
	s.certificates.issuer, err = issue.New(issue.Options{
		Authority: s.certificates.authority, Proofs: identity.Proofs{s.proof}, OnRefusal: s.issuanceRefused, Registerer: s.metrics, Logger: s.log(loglevel.Identity),
	})
	if err != nil {
		return err
	}
	s.checks = append(s.checks, rest.Check{Name: "certificate authority", Degraded: s.certificates.authority.Degraded})
	s.certificates.issuer.Register(s.proxies.grpc)
	s.security.useAuthority(s.certificates.authority)
	if s.security.own != nil && s.o.Authority == nil && s.o.sealingKeys() == "" {
		return errors.New("other machines reach the server, and it has no certificate: name one with --tls-cert and --tls-key, or a certificate authority with --ca-cert, or have it make one with --sealing-key")
	}
	return nil
}

// reserved refuses writes of what only servers may write: the authority's keys, PeerPhases and
// KeySets. It refuses a MeshConfig outside the root namespace, too.
func (s *server) reserved(op storage.Op, stored *config.Config) error {
	if fault := schema.MeshConfigElsewhere(op.Target(), s.o.Mesh.GetRootNamespace()); fault != nil && op.Verb != storage.Delete {
		return fmt.Errorf("%w: %s: %w", storage.ErrInvalid, op.Target(), fault)
	}
	if op.Target().Kind == schema.PeerPhase {
		return fmt.Errorf("%w: %s says how far proxies follow the PeerAuthentications of its namespace, and the leading server alone writes it: change these", storage.ErrReadOnly, op.Target())
	}
	if op.Target().Kind == schema.KeySet {
		return fmt.Errorf("%w: %s has the keys that the leading server fetched for RequestAuthentications, and that server alone writes it: change these", storage.ErrReadOnly, op.Target())
	}
	if op.Target().Kind.Kind != schema.Secret.Kind || !isAuthority(op.Config) && !isAuthority(stored) &&
		op.Target() != (config.Key{Kind: schema.Secret, Namespace: s.o.Mesh.GetRootNamespace(), Name: authority.SecretName}) {
		return nil
	}
	return fmt.Errorf("%w: %s has the keys of the mesh's certificate authority, which servers alone write: see portolan ca", storage.ErrReadOnly, op.Target())
}

// isAuthority says whether an object is a secret of the authority's type.
func isAuthority(object *config.Config) bool {
	if object == nil {
		return false
	}
	spec, ok := object.Spec.(*secret.Spec)
	return ok && spec.Type == secret.CertificateAuthority
}
