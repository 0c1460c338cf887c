package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks"
	"github.com/portolan-mesh/portolan/discovery/identity/oidc"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// addProofs creates what verifies the credentials of machines without a certificate, and of
// users.
func (s *server) addProofs() error {
	s.tokens = join.New(join.Options{Store: s.configs, TrustDomain: s.o.Mesh.TrustDomain, Held: s.heldToken, Roots: s.roots, May: s.mayMakeToken})
	s.keys = jwks.New(jwks.Options{Logger: s.log(loglevel.Identity)})
	s.issuers = oidc.New(oidc.Options{Issuers: s.tokenIssuers, Keys: s.keys, TrustDomain: s.o.Mesh.TrustDomain})
	s.proof = identity.NewLimited(identity.Proofs{s.tokens, s.issuers, wrongSorts{}}, nil)
	s.security.bearers = bearers{s.issuers, identity.NewLimited(s.issuers, nil)}
	s.keeper = s.newKeeper()
	return nil
}

// heldToken returns the object of a join token from the cache, nil if it is not there.
func (s *server) heldToken(key config.Key) *config.Config {
	snapshot := s.mirror.Snapshot()
	if snapshot == nil {
		return nil
	}
	return snapshot.Get(key)
}

// mayMakeToken returns why the sender of a request may not make a join token for an identity,
// nil if the sender may.
func (s *server) mayMakeToken(ctx context.Context, who identity.Identity) error {
	if who.Namespace == s.o.Mesh.GetRootNamespace() && who.ServiceAccount == authority.ServerAccount {
		return refusal.Invalid(
			fmt.Sprintf("serviceAccount: %s is the identity of the servers, which no machine gets: name another account (a server joins the store by portolan store member invite)", who))
	}
	return s.keeper.MayIssueFor(rest.IdentityOf(ctx), who)
}

// tokenIssuers returns the issuers in the root namespace of the store, or false before the
// store is read.
func (s *server) tokenIssuers() (out []oidc.Issuer, known bool) {
	snapshot := s.mirror.Snapshot()
	if snapshot == nil {
		return nil, false
	}
	for object := range snapshot.List(schema.TokenIssuer, s.o.Mesh.GetRootNamespace()) {
		if spec, ok := object.Spec.(*access.TokenIssuer); ok {
			out = append(out, oidc.Issuer{Name: object.Name, Spec: spec})
		}
	}
	return out, true
}

// issuersDegraded returns which issuers' keys cannot be fetched, nil if all can.
func (s *server) issuersDegraded() error {
	all, _ := s.tokenIssuers()
	for _, one := range all {
		if err := s.keys.Problem(oidc.SourceOf(one.Spec)); err != nil {
			return fmt.Errorf("tokenissuer/%s: its keys are as they were last fetched, or not known: %w", one.Name, err)
		}
	}
	return nil
}

// sealers returns what seals objects of kinds with content that only servers may set.
func (s *server) sealers() rest.Sealer {
	return rest.Sealers{schema.Secret: clusterSealer{s.secrets.sealer, s.o.Mesh.GetRootNamespace()}, schema.JoinToken: s.tokens, schema.User: s.keeper}
}

// cleanInterval is how often old expired join tokens are removed.
const cleanInterval = 10 * time.Minute

// A tokenCleaner removes join tokens that expired long ago.
type tokenCleaner struct {
	store    *etcd.Store
	snapshot func() *cache.Snapshot
	logger   *slog.Logger
}

// run implements job.
func (c *tokenCleaner) run(ctx context.Context, leader *election.Leader) error {
	store := c.store.Fenced(leader.Client())
	ctx = storage.WithOrigin(ctx, storage.Origin{User: "portolan", Message: "expired a day ago"})
	ticker := time.NewTicker(cleanInterval)
	defer ticker.Stop()
	for {
		if snapshot := c.snapshot(); snapshot != nil {
			removed, err := join.Clean(ctx, store, slices.Collect(snapshot.List(schema.JoinToken, "")), time.Now())
			switch {
			case ctx.Err() != nil || errors.Is(err, election.ErrNotLeader):
				return nil
			case err != nil:
				c.logger.Warn("expired join tokens were not removed, it will be tried again", "err", err, "after", cleanInterval)
			case removed > 0:
				c.logger.Info("expired join tokens removed", "tokens", removed)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
