package etcd

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
)

// AddressOwners returns the ServiceEntries that own the address of each host that
// has one. Values that cannot be read are left out.
func (s *Store) AddressOwners(ctx context.Context) (map[address.Key][]string, error) {
	var out map[address.Key][]string
	err := restarting(func() error {
		out = map[address.Key][]string{}
		_, err := s.walk(ctx, scan{prefix: AddressPrefix, limit: pageSize}, func(kv *mvccpb.KeyValue) {
			if value, err := openAddress(kv); err == nil {
				out[address.Key{Namespace: value.Namespace, Host: value.Host}] = value.Owners
			}
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read who owns addresses: %w", s.readError(err))
	}
	return out, nil
}

// SettleAddresses ends doubts: hosts of objects that were not written by a store
// with Options.Addresses get their addresses, and lose those that nobody owns any
// more. Nothing is written where all is well. It returns the hosts for which no
// address is left.
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

// doubtHosts is how many hosts a ServiceEntry in doubt is reckoned to have beside
// those that it may have to lose.
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

// settle ends some doubts in one transaction, on condition that the objects are
// as they were read. One whose answer is lost is tried again: what is settled is
// left alone.
func (s *Store) settle(ctx context.Context, doubts []address.Doubt) (without []address.Key, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	keys := make([]config.Key, len(doubts))
	for i, d := range doubts {
		keys[i] = d.Key
	}
	for attempt := 1; ; attempt++ {
		found, err := s.read(ctx, keys, nil)
		if err != nil {
			return nil, s.readError(err)
		}
		allotted, err := s.allot(ctx, address.Settled(doubts, found.objects), found, s.o.Now())
		if err != nil || len(allotted.keys) == 0 {
			return allotted.without, err
		}
		if len(doubts) > 1 && s.checkAddresses(len(keys), len(allotted.keys)) != nil {
			return s.settleHalves(ctx, doubts)
		}
		settled, err := s.commitSettlement(ctx, keys, found, allotted)
		if settled || err != nil {
			return allotted.without, err
		}
		if err := backOff(ctx, attempt); err != nil {
			return nil, fmt.Errorf("%w: others changed them before each of %d attempts: %w", storage.ErrUnavailable, attempt, err)
		}
	}
}

// settleHalves is for objects that have more hosts than was reckoned.
func (s *Store) settleHalves(ctx context.Context, doubts []address.Doubt) (without []address.Key, err error) {
	half := len(doubts) / 2
	first, err := s.settle(ctx, doubts[:half])
	if err != nil {
		return first, err
	}
	second, err := s.settle(ctx, doubts[half:])
	return append(first, second...), err
}

// commitSettlement says whether the transaction landed; it did not where something
// is no longer as it was found.
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
	s.saw(seen, answer.Header)
	return answer.Succeeded, nil
}
