package serve

import (
	"context"
	"net/netip"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/oidc"
)

// bearers identifies workloads that send an issuer's token with each stream. A join token
// cannot be used for that, because the stream would use it up.
type bearers struct {
	issuers *oidc.Verifier
	limit   *identity.Limited
}

// prove returns the identity of a token's bearer, and when the token expires. The errors are
// those of identity.Proof.
func (b bearers) prove(ctx context.Context, token string, from netip.Addr) (who identity.Identity, until time.Time, err error) {
	err = b.limit.Try(from, func() bool { return b.issuers.Knows(token, from) }, func() error {
		who, until, err = b.issuers.Workload(ctx, token)
		return err
	})
	return who, until, err
}
