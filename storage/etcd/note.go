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

// Note keeps a record of things that were made and are no objects of the store, such as
// certificates: their kind may be one that the store does not serve. The record is pruned as
// those of deleted objects are. No configuration changes by it.
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
