package rest

import (
	"context"
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Sealer turns an object with a config.Veiled spec into its stored form.
type Sealer interface {
	// Seal returns the object to store for object; stored is the present one, nil for
	// none. It does not change its arguments. In a trial it has no effects, and seals
	// nothing. If it sets a resource version, the stored object must have that version;
	// storage.Absent means that there must be none.
	Seal(ctx context.Context, object, stored *config.Config, trial bool) (*config.Config, error)
}

// Unsealer is a Sealer that can show what it has sealed, to the server alone.
type Unsealer interface {
	// Unseal returns a stored object as a request would send it: with its data in the clear,
	// and without what only servers make.
	Unseal(object *config.Config) (*config.Config, error)
}

// Sealers has a Sealer for each kind with config.Veiled specs. Objects of other such
// kinds are refused.
type Sealers map[config.GroupVersionKind]Sealer

// Seal implements Sealer.
func (s Sealers) Seal(ctx context.Context, object, stored *config.Config, trial bool) (*config.Config, error) {
	if one := s[object.GroupVersionKind]; one != nil {
		return one.Seal(ctx, object, stored, trial)
	}
	return nil, fmt.Errorf("%w: this server does not take objects of kind %s", storage.ErrInvalid, object.Kind)
}

// Unseal implements Unsealer. An object whose Sealer is no Unsealer is as documents show it.
func (s Sealers) Unseal(object *config.Config) (*config.Config, error) {
	if one, ok := s[object.GroupVersionKind].(Unsealer); ok {
		return one.Unseal(object)
	}
	return config.Shown(object), nil
}

// unsealed returns an object to be patched, with its data: a patch of one entry keeps the
// others. It never leaves the server so.
func (s *Server) unsealed(object *config.Config) (*config.Config, error) {
	if !s.schemas.Kind(object.GroupVersionKind).Codec.Veiled() {
		return object, nil
	}
	if unsealer, ok := s.sealer.(Unsealer); ok {
		open, err := unsealer.Unseal(object)
		if err != nil {
			return nil, fmt.Errorf("%w: %s cannot be patched: this server cannot open it: %w", storage.ErrUnavailable, object.Key(), err)
		}
		return open, nil
	}
	return config.Shown(object), nil
}

// sealed returns an operation with the stored form of its object.
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
		op.Served = false // the version comes from the store
		if op.Verb == storage.Create {
			object.ResourceVersion = ""
		}
	}
	op.Config = object
	return op, nil
}

// foreseen returns the operations with secrets in their stored form, for the advisor. An
// object that cannot be sealed stays unchanged: the write reports why.
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
