package serve

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/discovery/identity/oidc"
	"github.com/portolan-mesh/portolan/storage"
	rights "github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate/envoyfilter"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// newKeeper returns the authentication and authorization of the config API. It only uses
// objects of the store: no other source gives rights.
func (s *server) newKeeper() *access.Keeper {
	o := access.Options{
		Snapshot: func() *cache.Snapshot { return s.mirror.Snapshot() },
		Schemas:  schema.All(), Root: s.o.Mesh.GetRootNamespace(), Domain: s.o.Mesh.Domain, AnonymousLoopback: s.o.AnonymousLoopback,
		StoreFault: s.store.healthy, Revoked: s.security.revoked,
		Bearers: []access.Bearer{issuedUsers{s.issuers}}, Weakens: envoyfilter.Weakens,
	}
	if s.o.Mesh.HostConsent {
		o.Crossings = s.crossings
	}
	return access.NewKeeper(o)
}

// crossings returns, for each operation of a batch, the hosts of other namespaces for which its
// object speaks without their consent. An owner is one before the batch or after it; consent is
// what the batch leaves of it.
func (s *server) crossings(ops []storage.Op) ([][]claim.Crossing, error) {
	now, then, known := s.xds.WouldBe(s.judged(ops))
	if !known {
		return nil, refusal.Starting("the server has not read yet which namespaces own which hosts: try again in a moment")
	}
	out := make([][]claim.Crossing, len(ops))
	for i, op := range ops {
		if op.Config == nil {
			continue
		}
		object := *op.Config
		object.Domain = s.o.Mesh.Domain // as the store will have it: short names become complete
		claims := claim.Of(&object)
		seen := map[claim.Crossing]bool{}
		for _, at := range []*mesh.PushContext{now.Context, then.Context} {
			for c := range at.Crossings(&object, claims...) {
				from := claim.From{Kind: op.Config.Kind, Namespace: op.Config.Namespace}
				if !seen[c] && !then.Context.Consents(c.Owner, from) {
					out[i] = append(out[i], c)
				}
				seen[c] = true
			}
		}
	}
	return out, nil
}

// judged returns the operations that decide who owns a host and who consents. It leaves out
// those whose objects are not valid: the config API refuses these anyway.
func (s *server) judged(ops []storage.Op) []storage.Op {
	var out []storage.Op
	for _, op := range ops {
		kind := s.configs.Schemas().Kind(op.Target().Kind)
		if kind == nil || kind.GroupVersionKind != schema.HostGrant && !claim.Speaks(kind.Plural) {
			continue
		}
		if op.Config != nil {
			if _, err := kind.Validate(op.Config); err != nil {
				continue
			}
		}
		out = append(out, op)
	}
	return out
}

// issuedUsers authenticates users with the tokens of issuers.
type issuedUsers struct{ issuers *oidc.Verifier }

// Bear implements access.Bearer.
func (u issuedUsers) Bear(ctx context.Context, token string) (access.Identity, error) {
	user, err := u.issuers.User(ctx, token)
	if err != nil {
		return access.Identity{}, err
	}
	return access.Identity{User: user.Name, Groups: user.Groups, Until: user.Until}, nil
}

// revoked returns why the certificate of a workload no longer proves its identity, nil if it
// does.
func (s *security) revoked(who identity.Identity, certificate *x509.Certificate) error {
	switch err := s.authority.Revoked(who, authority.IssuedAt(certificate)); {
	case err == nil || errors.Is(err, authority.ErrRevoked):
		return err
	default:
		return refusal.Unavailable(err.Error())
	}
}

// endRevoked ends the streams of clients whose certificate, token or right is revoked, as that
// happens, until ctx ends.
func (s *server) endRevoked(ctx context.Context) error {
	var rights any
	at, err := s.mirror.Await(ctx, 0)
	for err == nil {
		if now := s.keeper.Rights(); now != rights {
			rights = now
			s.xds.Gate.CheckPeers(ctx)
		}
		if at, err = s.mirror.Next(ctx, at); errors.Is(err, storage.ErrCompacted) {
			at, err = s.mirror.Snapshot(), nil // the mirror has read the store anew
		}
	}
	return nil // ctx has ended
}

// mayExport returns why a workload may not read the objects of the mesh, nil if it may. It
// needs the right to watch, in all namespaces, all kinds that are exported to control planes.
func (s *server) mayExport(_ context.Context, who identity.Identity) error {
	as, err := s.keeper.Workload(who, time.Time{})
	if err != nil {
		return err
	}
	for _, kind := range s.configs.Schemas().All() {
		if kind.Internal {
			continue
		}
		for _, verb := range []string{rights.List, rights.Watch} {
			if !s.keeper.May(as, verb, kind.Plural, "", "") {
				return fmt.Errorf("user %q may not %s %s in all namespaces: bind a role such as viewer to it in the namespace %s", as.User, verb, kind.Plural, s.o.Mesh.GetRootNamespace())
			}
		}
	}
	return nil
}
