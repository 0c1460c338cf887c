package serve

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/rest"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// addProofs makes what earns machines a first certificate.
func (s *server) addProofs() error {
	s.tokens = join.New(join.Options{Store: s.configs, TrustDomain: s.o.Mesh.TrustDomain})
	s.proof = identity.NewLimited(identity.Proofs{s.tokens}, nil)
	return nil
}

// sealers are what seals the kinds that have something for servers alone.
func (s *server) sealers() rest.Sealer {
	return rest.Sealers{schema.Secret: s.secrets.sealer, schema.JoinToken: s.tokens}
}

// cleanInterval is how often join tokens are removed that ended long ago.
const cleanInterval = 10 * time.Minute

// A tokenCleaner removes join tokens that ended long ago.
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
