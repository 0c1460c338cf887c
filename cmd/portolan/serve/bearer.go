package serve

import (
	"context"
	"net/netip"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/oidc"
)

// bearers are workloads that prove with each stream who they are, by the token of an issuer. A
// join token does not: the stream would use it up.
type bearers struct {
	issuers *oidc.Verifier
	limit   *identity.Limited
}

// prove returns who the bearer of a token is, and when the token expires. The errors are those
// of identity.Proof.
func (b bearers) prove(ctx context.Context, token string, from netip.Addr) (who identity.Identity, until time.Time, err error) {
	err = b.limit.Try(from, func() bool { return b.issuers.Knows(token, from) }, func() error {
		who, until, err = b.issuers.Workload(ctx, token)
		return err
	})
	return who, until, err
}
