package serve

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
	"github.com/portolan-mesh/portolan/discovery/identity/oidc"
)

// sortOf returns the sort of a credential by its prefix, empty if the prefix is unknown. The
// prefix is no secret: it does not show whether the credential is genuine.
func sortOf(credential string) string {
	switch {
	case strings.HasPrefix(credential, access.TokenPrefix):
		return "the token of a user, who is let in at the config API by it (--token)"
	case strings.HasPrefix(credential, join.MemberPrefix):
		return "the token of a server that joins the store (serve --join --token-file)"
	case join.Is(credential):
		return "the join token of a machine (portolan certificate request --token)"
	case oidc.Is(credential):
		return "a JWT"
	}
	return ""
}

// wrongSorts is the last identity.Proof of a list. It tells the sender of a credential of the
// wrong sort which sort it is, and which is needed.
type wrongSorts struct{}

// Prove implements identity.Proof. It proves nothing.
func (wrongSorts) Prove(_ context.Context, credential string, _ netip.Addr) (identity.Identity, error) {
	is := "it is of no known sort"
	if sort := sortOf(credential); sort != "" {
		is = "it is " + sort
	}
	return identity.Identity{}, fmt.Errorf("%w: %s; a first certificate is earned by a join token (%s..., by portolan token create) or by a JWT of a TokenIssuer", identity.ErrUnproven, is, join.Prefix)
}
