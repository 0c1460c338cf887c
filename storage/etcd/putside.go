package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/status"
)

// SideWrite is one change of the side tree. It puts a value, under a lease unless that
// is 0, or deletes the key if Value is nil.
type SideWrite struct {
	Key   string
	Value []byte
	Lease clientv3.LeaseID
	// Revision is the mod revision that the key must have: 0 for an absent key, Any for
	// no condition.
	Revision int64
}

// Any is a SideWrite.Revision without a condition.
const Any = -1

// WriteStatuses stores statuses of objects, and deletes others. After an error some of them may be
// stored.
func (s *Store) WriteStatuses(ctx context.Context, statuses []status.Write) error {
	writes := make([]SideWrite, 0, len(statuses))
	for _, one := range statuses {
		write := SideWrite{Key: ObjectStatusPrefix + one.Path, Revision: Any}
		if one.Report == nil {
			writes = append(writes, write, SideWrite{Key: ClientStatusPrefix + one.Path, Revision: Any})
			continue
		}
		var err error
		if write.Value, err = EncodeStatus(one.Report); err != nil {
			return err
		}
		writes = append(writes, write)
	}
	for some := range slices.Chunk(writes, SideBatch) {
		if _, err := s.WriteSide(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// WriteSide makes at most SideBatch changes of the side tree in one transaction. It
// returns false, and writes nothing, where a condition does not hold.
func (s *Store) WriteSide(ctx context.Context, writes []SideWrite) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	format, err := s.Format(ctx)
	if err == nil {
		err = format.Writable()
	}
	if err != nil {
		return false, fmt.Errorf("write %s: %w", writes[0].Key, err)
	}
	raised, err := raisedFor(format, writes)
	if err != nil {
		return false, fmt.Errorf("write %s: %w", writes[0].Key, err)
	}
	compares, ops := []clientv3.Cmp{format.unchanged()}, make([]clientv3.Op, len(writes))
	for i, w := range writes {
		if w.Revision != Any {
			compares = append(compares, clientv3.Compare(clientv3.ModRevision(w.Key), "=", w.Revision))
		}
		if w.Value == nil {
			ops[i] = clientv3.OpDelete(w.Key)
		} else {
			ops[i] = clientv3.OpPut(w.Key, string(w.Value), clientv3.WithLease(w.Lease))
		}
	}
	if raised != nil {
		ops = append(ops, clientv3.OpPut(FormatKey, string(raised)))
	}
	seen := s.seen.Load()
	answer, err := s.client.Txn(ctx).If(compares...).Then(ops...).Commit()
	if err != nil {
		return false, fmt.Errorf("write %s: %w", writes[0].Key, s.writeError(err))
	}
	s.noteHeader(seen, answer.Header)
	return answer.Succeeded, nil
}

// raisedFor returns the value of FormatKey that the writes need, nil for none. Only
// values under RegistryPrefix need the format: everything else under SidePrefix may be
// written beside older servers.
func raisedFor(format Format, writes []SideWrite) ([]byte, error) {
	if !slices.ContainsFunc(writes, func(w SideWrite) bool { return strings.HasPrefix(w.Key, RegistryPrefix) }) {
		return nil, nil
	}
	return format.raisedValue(objectFormat)
}

// SideBatch is the most changes of one WriteSide. They fit a stock etcd's limits on
// compares and on operations, also within the transaction of a leader.
const SideBatch = 60
