package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// SideWrite is one change of the side tree: a value that is put, under a lease
// where that is not 0, or a key that is deleted where Value is nil.
type SideWrite struct {
	Key   string
	Value []byte
	Lease clientv3.LeaseID
	// Revision is the mod revision that the key must have, 0 for absent; Any is none.
	Revision int64
}

// Any is no condition on the revision of a key.
const Any = -1

// WriteSide does changes of the side tree in one transaction. It is false, and
// nothing was written, where a condition does not hold. No more than SideBatch
// fit.
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
	seen := s.seen.Load()
	answer, err := s.client.Txn(ctx).If(compares...).Then(ops...).Commit()
	if err != nil {
		return false, fmt.Errorf("write %s: %w", writes[0].Key, s.writeError(err))
	}
	s.saw(seen, answer.Header)
	return answer.Succeeded, nil
}

// SideBatch is how many changes WriteSide takes at once: few enough for a stock
// etcd, whose limit is on compares and operations alike, and for a transaction
// that is part of another.
const SideBatch = 60
