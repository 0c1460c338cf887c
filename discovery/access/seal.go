package access

import (
	"context"
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Seal turns a User that somebody writes into the one to store. The config API calls it for each write.
// Only the token paths create tokens. So a document without tokens keeps the stored ones, a
// document with tokens drops those that it does not name, and no document brings back a
// dropped one. The result carries the version of the stored user, so that the write fails if a
// token was revoked in the meantime.
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
