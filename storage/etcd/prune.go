package etcd

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/history"
)

// pruneOps bounds one transaction of Prune, so that it delays no other.
const pruneOps = 512

// Prune reads every record and the keys of all objects. It deletes expired records in
// transactions that also raise the floors of history. Several servers may prune at once:
// all find the same records expired, and each reads a floor again if another raised it.
func (s *Store) Prune(ctx context.Context, r storage.Retention) (removed int, err error) {
	if err := history.CheckRetention(r); err != nil {
		return 0, fmt.Errorf("prune: %w", err)
	}
	p := &pruning{Store: s}
	if err := restartIfCompacted(func() error { return p.read(ctx) }); err != nil {
		return 0, fmt.Errorf("prune: %w", s.readError(err))
	}
	live := func(key config.Key) bool { return p.live[key.Path()] }
	expired := history.Expired(p.records, live, r, s.o.Now())
	for len(expired) > 0 {
		n := p.countFitting(expired)
		deleted, err := p.remove(ctx, expired[:n])
		removed += deleted
		if err != nil {
			return removed, fmt.Errorf("prune: %w", err)
		}
		expired = expired[n:]
	}
	return removed, nil
}

// pruning holds what Prune reads, as of one revision.
type pruning struct {
	*Store
	records []history.Record // newest first, without values
	keys    map[int64]string // of the records, by revision
	live    map[string]bool  // objects, by path
}

func (p *pruning) read(ctx context.Context) error {
	p.records, p.keys, p.live = nil, map[int64]string{}, map[string]bool{}
	every := func(config.Key) bool { return true }
	revision, err := p.walk(ctx, Range{Prefix: HistoryPrefix, LargeValues: true}, func(kv *mvccpb.KeyValue) {
		record, err := p.openRecord(kv, every, false)
		if err != nil {
			p.leaveOut(ctx, kv, err)
			return
		}
		p.records = append(p.records, record)
		p.keys[record.Revision] = string(kv.Key)
	})
	if err != nil {
		return err
	}
	history.Sort(p.records)
	_, err = p.walk(ctx, Range{Prefix: ConfigPrefix, Revision: revision, KeysOnly: true}, func(kv *mvccpb.KeyValue) {
		p.live[string(kv.Key[len(ConfigPrefix):])] = true
	})
	return err
}

// countFitting says how many of the expired records, at least one, fit one transaction with the
// floors that they raise. One record always fits. Its batch of n objects fitted with its
// record and the format, and so do n floors, the deletion of the record and the format.
func (p *pruning) countFitting(expired []int) int {
	scopes := map[config.Key]bool{}
	for i, place := range expired {
		for _, e := range p.records[place].Entries {
			scopes[history.Scope(e.Key)] = true
		}
		if i > 0 && i+1+len(scopes) > min(pruneOps, p.o.MaxTxnOps) {
			return i
		}
	}
	return len(expired)
}

// remove deletes records that still exist, and raises floors.
func (p *pruning) remove(ctx context.Context, expired []int) (removed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.RequestTimeout)
	defer cancel()
	floors := history.Floors(p.records, expired)
	backoff := newBackoff()
	for attempt := 1; ; attempt++ {
		compares, writes, err := p.raise(ctx, floors)
		if err != nil {
			return 0, err
		}
		for _, place := range expired {
			writes = append(writes, clientv3.OpDelete(p.keys[p.records[place].Revision]))
		}
		answer, err := p.client.Txn(ctx).If(compares...).Then(writes...).Commit()
		if err != nil {
			return 0, p.writeError(err)
		}
		p.noteHeader(0, answer.Header)
		if answer.Succeeded {
			for _, r := range answer.Responses {
				removed += int(r.GetResponseDeleteRange().GetDeleted())
			}
			return removed, nil
		}
		if err := backoff.Wait(ctx); err != nil {
			return 0, fmt.Errorf("%w: others raised the same floors or the storage format before each of %d attempts: %w", storage.ErrUnavailable, attempt, err)
		}
	}
}

// raise returns the puts that raise lower floors, and the condition that no floor and
// not the storage format changes meanwhile.
func (p *pruning) raise(ctx context.Context, floors map[config.Key]int64) (compares []clientv3.Cmp, puts []clientv3.Op, err error) {
	scopes := slices.Collect(maps.Keys(floors))
	reads := make([]clientv3.Op, len(scopes), len(scopes)+1)
	for i, scope := range scopes {
		reads[i] = clientv3.OpGet(floorKey(scope))
	}
	reads = append(reads, clientv3.OpGet(FormatKey))
	answer, err := p.client.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return nil, nil, p.readError(err)
	}
	format := formatOf(answer, len(scopes))
	if err := format.Writable(); err != nil {
		return nil, nil, err
	}
	compares = append(compares, format.unchanged())
	for i, scope := range scopes {
		var revision, floor int64
		for _, kv := range answer.Responses[i].GetResponseRange().Kvs {
			revision = kv.ModRevision
			if floor, err = decodeFloor(kv); err != nil {
				floor = 0
			}
		}
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(floorKey(scope)), "=", revision))
		if floor < floors[scope] {
			value, err := encodeFloor(floors[scope])
			if err != nil {
				return nil, nil, err
			}
			puts = append(puts, clientv3.OpPut(floorKey(scope), string(value)))
		}
	}
	return compares, puts, nil
}
