package etcd

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
)

// AddressOwners returns the owners of the address of each host, in order:
// ServiceEntries, and sources (address.OwnerOf). It leaves out values that cannot be
// decoded.
func (s *Store) AddressOwners(ctx context.Context) (map[address.Key][]string, error) {
	var out map[address.Key][]string
	err := restartIfCompacted(func() error {
		out = map[address.Key][]string{}
		_, err := s.walk(ctx, Range{Prefix: AddressPrefix}, func(kv *mvccpb.KeyValue) {
			if value, err := openAddress(kv); err == nil {
				out[address.Key{Namespace: value.Namespace, Host: value.Host}] = ownersOf(value)
			}
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read who owns addresses: %w", s.readError(err))
	}
	return out, nil
}

// SettleAddresses repairs the addresses of objects that a store without
// Options.Addresses wrote: hosts get their addresses, and lose those without an owner.
// It writes nothing if nothing is wrong. It returns the hosts for which no address is
// free.
func (s *Store) SettleAddresses(ctx context.Context, doubts []address.Doubt) (without []address.Key, err error) {
	for len(doubts) > 0 {
		n := s.fitDoubts(doubts)
		some, err := s.settle(ctx, doubts[:n])
		without = append(without, some...)
		if err != nil {
			return without, fmt.Errorf("settle the addresses of %s: %w", doubts[0].Key, err)
		}
		doubts = doubts[n:]
	}
	return without, nil
}

// doubtHosts is the estimated number of hosts of a ServiceEntry in doubt, not counting
// hosts that it may have to lose.
const doubtHosts = 2

// fitDoubts says how many doubts, at least one, are likely to fit one transaction.
func (s *Store) fitDoubts(doubts []address.Doubt) int {
	size := 1 // the format
	for i, d := range doubts {
		if size += 1 + 2*(doubtHosts+len(d.Hosts)); i > 0 && size > s.o.MaxTxnOps {
			return i
		}
	}
	return len(doubts)
}

// settle settles some doubts, on condition that the objects are as read: in one
// transaction if they fit, else in several. If an answer is lost it tries again; doubts
// already settled stay settled.
func (s *Store) settle(ctx context.Context, doubts []address.Doubt) (without []address.Key, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	keys := make([]config.Key, len(doubts))
	for i, d := range doubts {
		keys[i] = d.Key
	}
	backoff := newBackoff()
	for attempt := 1; ; attempt++ {
		found, err := s.read(ctx, keys, nil)
		if err != nil {
			return nil, s.readError(err)
		}
		without, settled, err := s.settleClaims(ctx, keys, address.ClaimsFor(doubts, found.objects), found)
		if settled || err != nil {
			return without, err
		}
		if err := backoff.Wait(ctx); err != nil {
			return nil, fmt.Errorf("%w: others changed them before each of %d attempts: %w", storage.ErrUnavailable, attempt, err)
		}
	}
}

// settleClaims decides and writes claims, as many at a time as surely fit beside the
// conditions on the objects. settled is false if something has changed since it was
// read.
func (s *Store) settleClaims(ctx context.Context, keys []config.Key, claims []address.Claim, found *targets) (without []address.Key, settled bool, err error) {
	for part := range slices.Chunk(claims, max(1, (s.o.MaxTxnOps-1-len(keys))/2)) {
		clear(found.addresses) // the previous part may have changed them
		allotted, err := s.allot(ctx, part, found, s.o.Now())
		if err != nil {
			return without, false, err
		}
		if len(allotted.keys) > 0 {
			if settled, err := s.commitSettlement(ctx, keys, found, allotted); err != nil || !settled {
				return without, false, err
			}
		}
		without = append(without, allotted.without...)
	}
	return without, true, nil
}

// commitSettlement says whether the transaction landed. It does not if something has
// changed since it was read.
func (s *Store) commitSettlement(ctx context.Context, keys []config.Key, found *targets, allotted allotment) (bool, error) {
	if err := found.format.Writable(); err != nil {
		return false, err
	}
	m := &mutation{found: found}
	m.compares = append(m.compares, found.format.unchanged())
	for _, key := range keys {
		m.require(ConfigKey(key), found.revisionOf(key))
	}
	for _, key := range allotted.keys {
		m.require(key, found.addresses[key].GetModRevision())
	}
	for _, w := range allotted.writes {
		m.write(w)
	}
	seen := s.seen.Load()
	answer, err := s.client.Txn(ctx).If(m.compares...).Then(m.writes...).Commit()
	if err != nil {
		return false, s.writeError(err)
	}
	s.noteHeader(seen, answer.Header)
	return answer.Succeeded, nil
}
