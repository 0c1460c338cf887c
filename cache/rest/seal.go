package rest

import (
	"context"
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Sealer makes of an object with a config.Veiled spec the one that is stored.
type Sealer interface {
	// Seal returns the object to store in place of another, nil for none. It does not
	// change its arguments. In a trial it changes nothing, and seals nothing. If it sets a
	// resource version the stored object must have that, as one that is not there must be
	// storage.Absent.
	Seal(ctx context.Context, object, stored *config.Config, trial bool) (*config.Config, error)
}

// Sealers are a Sealer for each kind of config.Veiled specs. Objects of other such kinds are
// refused.
type Sealers map[config.GroupVersionKind]Sealer

// Seal implements Sealer.
func (s Sealers) Seal(ctx context.Context, object, stored *config.Config, trial bool) (*config.Config, error) {
	if one := s[object.GroupVersionKind]; one != nil {
		return one.Seal(ctx, object, stored, trial)
	}
	return nil, fmt.Errorf("%w: this server does not take objects of kind %s", storage.ErrInvalid, object.Kind)
}

// sealed returns an operation on the object as it is to be stored.
func (s *Server) sealed(ctx context.Context, op storage.Op, trial bool) (storage.Op, error) {
	if op.Config == nil || !s.schemas.Kind(op.Config.GroupVersionKind).Codec.Veiled() {
		return op, nil
	}
	if s.sealer == nil {
		return op, fmt.Errorf("%w: this server cannot seal what %s has", storage.ErrUnavailable, op.Config.Key())
	}
	object, err := s.sealer.Seal(ctx, op.Config, s.cache.Snapshot().Stored(op.Config.Key()), trial)
	if err != nil {
		return op, fmt.Errorf("%s %s: %w", op.Verb, op.Config.Key(), err)
	}
	if object.ResourceVersion != op.Config.ResourceVersion {
		op.Served = false // it is the version of the store
		if op.Verb == storage.Create {
			object.ResourceVersion = ""
		}
	}
	op.Config = object
	return op, nil
}

// foreseen are operations with their secrets as they would be stored, which is what an advisor
// looks at. An object that cannot be sealed stays as it is: the write says why.
func (s *Server) foreseen(ctx context.Context, ops []storage.Op) []storage.Op {
	out := ops
	for i, op := range ops {
		if op.Config == nil || !s.schemas.Kind(op.Config.GroupVersionKind).Codec.Veiled() {
			continue
		}
		if sealed, err := s.sealed(ctx, op, true); err == nil {
			if &out[0] == &ops[0] {
				out = slices.Clone(ops)
			}
			out[i] = sealed
		}
	}
	return out
}
