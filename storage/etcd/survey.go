package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/portolan-mesh/portolan/storage/plan"
)

// Survey is what a store holds, as this binary sees it.
type Survey struct {
	Format Format
	// Objects are those of the kinds served, among which those of UnknownFields
	// have something that this binary does not know.
	Objects, UnknownFields int
	// UnknownKinds may be objects of kinds that this binary does not know. Of
	// Undecodable the values cannot be read, and Malformed are keys of no object.
	UnknownKinds, Undecodable, Malformed int
}

// Survey reads everything under ConfigPrefix, as of one revision.
func (s *Store) Survey(ctx context.Context) (Survey, error) {
	format, err := s.Format(ctx)
	if err != nil {
		return Survey{}, fmt.Errorf("survey: %w", err)
	}
	var out Survey
	err = restarting(func() error {
		out = Survey{Format: format}
		_, err := s.walk(ctx, scan{prefix: ConfigPrefix, limit: pageSize}, func(kv *mvccpb.KeyValue) { s.count(&out, kv) })
		return err
	})
	if err != nil {
		return Survey{}, fmt.Errorf("survey: %w", s.readError(err))
	}
	return out, nil
}

// count adds a key and its value to a survey.
func (s *Store) count(to *Survey, kv *mvccpb.KeyValue) {
	key, err := ParseConfigKey(string(kv.Key), s.Schemas())
	if err == nil {
		object, wrapper, broken := decode(kv, key, s.Schemas().Kind(key.Kind), s.o.Domain)
		if err = broken; err == nil {
			to.Objects++
			if plan.HasUnknown(wrapper) || plan.HasUnknown(object.Spec) {
				to.UnknownFields++
			}
			return
		}
	}
	switch {
	case errors.Is(err, ErrUndecodable):
		to.Undecodable++
	case errors.Is(err, ErrUnknownKind):
		to.UnknownKinds++
	default:
		to.Malformed++
	}
}
