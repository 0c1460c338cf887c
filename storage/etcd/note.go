package etcd

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
)

// Note records events about things that are not stored as objects, such as issued
// certificates: the store need not serve their kind. Pruning treats the record like the
// records of deleted objects. Note changes no configuration.
func (s *Store) Note(ctx context.Context, at time.Time, origin storage.Origin, made []config.Key) error {
	origin = storage.OriginOf(storage.WithOrigin(ctx, origin)) // as text
	record := &envelope.Record{Time: at.UnixMilli(), User: origin.User, Address: origin.Address, Tool: origin.Tool, Message: origin.Message}
	for _, key := range made {
		record.Entries = append(record.Entries, &envelope.Entry{
			Group: key.Kind.Group, Kind: key.Kind.Kind, Namespace: key.Namespace, Name: key.Name, Outcome: envelope.Outcome_OUTCOME_CREATED,
		})
	}
	value, err := encodeRecord(record)
	if err != nil {
		return fmt.Errorf("note: %w", err)
	}
	_, err = s.WriteSide(ctx, []SideWrite{{Key: HistoryPrefix + uuid.NewString(), Value: value}})
	return err
}
