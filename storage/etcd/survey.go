package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Survey counts what a store holds, as this binary sees it.
type Survey struct {
	Format Format
	// Objects counts the objects of the kinds served, and UnknownFields those of them
	// that have a field unknown to this binary.
	Objects, UnknownFields int
	// UnknownKinds counts keys that may be objects of a kind unknown to this binary,
	// Undecodable counts values that cannot be decoded, and Malformed counts keys that no
	// object can have.
	UnknownKinds, Undecodable, Malformed int
}

// Survey reads everything under ConfigPrefix, as of one revision.
func (s *Store) Survey(ctx context.Context) (Survey, error) {
	format, err := s.Format(ctx)
	if err != nil {
		return Survey{}, fmt.Errorf("survey: %w", err)
	}
	var out Survey
	err = restartIfCompacted(func() error {
		out = Survey{Format: format}
		_, err := s.walk(ctx, Range{Prefix: ConfigPrefix}, func(kv *mvccpb.KeyValue) { s.count(&out, kv) })
		return err
	})
	if err != nil {
		return Survey{}, fmt.Errorf("survey: %w", s.readError(err))
	}
	return out, nil
}

func (s *Store) count(survey *Survey, kv *mvccpb.KeyValue) {
	key, err := ParseConfigKey(string(kv.Key), s.Schemas())
	if err == nil {
		kind := s.Schemas().Kind(key.Kind)
		object, wrapper, broken := decode(kv, key, kind, s.o.Domain)
		if err = broken; err == nil {
			survey.Objects++
			if plan.HasUnknown(wrapper) || hasUnknown(kind, wrapper.Spec, object.Spec) {
				survey.UnknownFields++
			}
			return
		}
	}
	switch {
	case errors.Is(err, ErrUndecodable):
		survey.Undecodable++
	case errors.Is(err, ErrUnknownKind):
		survey.UnknownKinds++
	default:
		survey.Malformed++
	}
}

// hasUnknown says whether a spec, stored or decoded, has fields that this binary does
// not know. Only protobuf messages can hold them.
func hasUnknown(kind *schema.Schema, stored *anypb.Any, spec any) bool {
	if m, ok := spec.(proto.Message); ok {
		return plan.HasUnknown(m)
	}
	return !kind.Codec.Known(stored)
}
