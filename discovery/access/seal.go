package access

import (
	"context"
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Seal makes of a user that somebody writes the one that is stored. The tokens of a user are
// made and revoked by themselves. So a document without tokens leaves them as they are, one
// with tokens drops those that it does not name, and none brings back one that is gone. The
// result names the version of the stored user: a token that is revoked meanwhile stays so. It
// implements rest.Sealer.
func (*Keeper) Seal(_ context.Context, object, stored *config.Config, _ bool) (*config.Config, error) {
	spec, ok := object.Spec.(*access.User)
	if !ok {
		return object, nil
	}
	for i, t := range spec.Tokens {
		if len(t.Hash) > 0 {
			return nil, fmt.Errorf("%w: spec.tokens[%d].hash: is what servers make: leave it out, and make tokens with portolan user token add", storage.ErrInvalid, i)
		}
	}
	version, had := storage.Absent, &access.User{}
	if stored != nil {
		version = stored.ResourceVersion
		if before, ok := stored.Spec.(*access.User); ok {
			had = before
		}
	}
	out := object.Clone()
	if out.ResourceVersion == "" {
		out.ResourceVersion = version
	}
	next := out.Spec.(*access.User)
	next.Tokens = nil
	for _, t := range had.Tokens {
		if len(spec.Tokens) == 0 || slices.ContainsFunc(spec.Tokens, func(named access.Token) bool { return named.ID == t.ID }) {
			next.Tokens = append(next.Tokens, t)
		}
	}
	return out, nil
}
