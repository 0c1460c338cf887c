package memory

import (
	"context"
	"iter"
	"maps"
	"net/netip"

	"github.com/portolan-mesh/portolan/storage/address"
)

// allotted has the holdings of all hosts and the slots of all addresses, as an
// address.Reader.
type allotted struct {
	holdings map[address.Key]*address.Holding
	slots    map[netip.Addr]*address.Slot
}

func newAllotted() allotted {
	return allotted{map[address.Key]*address.Holding{}, map[netip.Addr]*address.Slot{}}
}

// Holding implements address.Reader.
func (a allotted) Holding(k address.Key) (h *address.Holding, known bool) { return a.holdings[k], true }

// Slot implements address.Reader.
func (a allotted) Slot(ipv4 netip.Addr) (s *address.Slot, known bool) { return a.slots[ipv4], true }

// Slots implements address.Reader.
func (a allotted) Slots() (all iter.Seq2[netip.Addr, *address.Slot], known bool) {
	return maps.All(a.slots), true
}

// allot decides the claims and applies the decision to next. If it fails, nothing has
// changed. The caller holds mu.
func (s *Store) allot(ctx context.Context, next *state, claims []address.Claim) error {
	decision, err := s.ranges.Decide(ctx, claims, s.allotted, s.now())
	if err != nil {
		return err
	}
	for _, change := range decision.Changes {
		if change.Slot != nil {
			s.allotted.slots[change.IPv4] = change.Slot
		}
		path := address.Path(change.Namespace, change.Host)
		if change.Holding == nil {
			delete(s.allotted.holdings, change.Key)
			next.Addresses = next.Addresses.Delete(path)
			continue
		}
		s.allotted.holdings[change.Key] = change.Holding
		if next.Addresses.Value(path) == nil {
			next.Addresses = next.Addresses.Set(path, &address.Assignment{
				Namespace: change.Namespace, Host: change.Host,
				IPv4: change.Holding.IPv4, IPv6: change.Holding.IPv6, Revision: next.revision,
			})
		}
	}
	return nil
}
