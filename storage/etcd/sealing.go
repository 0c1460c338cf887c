package etcd

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/sealing"
)

// SealingKey holds, in JSON, the record of the key that seals the secrets of the store.
const SealingKey = MetaPrefix + "sealing"

// SealingRecord implements sealing.Records.
func (s *Store) SealingRecord(ctx context.Context) (out sealing.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	response, err := s.get(ctx, SealingKey)
	if err != nil {
		return out, fmt.Errorf("read %s: %w", SealingKey, s.readError(err))
	}
	for _, kv := range response.Kvs {
		if err := json.Unmarshal(kv.Value, &out); err != nil || out.Key == "" {
			return out, fmt.Errorf("%w: read %s: it is damaged, or a newer server wrote it", storage.ErrUnavailable, SealingKey)
		}
		out.Revision = kv.ModRevision
	}
	return out, nil
}

// SetSealingRecord implements sealing.Records.
func (s *Store) SetSealingRecord(ctx context.Context, from, to sealing.Record) (bool, error) {
	value, err := json.Marshal(to)
	if err != nil {
		return false, err
	}
	return s.WriteSide(ctx, []SideWrite{{Key: SealingKey, Value: value, Revision: from.Revision}})
}
