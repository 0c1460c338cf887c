package etcd

import (
	"context"
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
)

// ClaimAddresses makes sources other than the store owners of the addresses of hosts, or
// ends that ownership (address.OwnerOf). A host gets an address, or loses one that has
// no owner any more. ClaimAddresses writes nothing if nothing changes. It returns the
// hosts for which no address is free.
func (s *Store) ClaimAddresses(ctx context.Context, claims []address.Claim) (without []address.Key, err error) {
	for part := range slices.Chunk(claims, max(1, (s.o.MaxTxnOps-1)/2)) {
		some, err := s.claim(ctx, part)
		without = append(without, some...)
		if err != nil {
			return without, fmt.Errorf("the address of the host %s: %w", part[0].Key, err)
		}
	}
	return without, nil
}

// claim decides and writes some claims, which fit one transaction.
func (s *Store) claim(ctx context.Context, claims []address.Claim) (without []address.Key, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	backoff := newBackoff()
	for attempt := 1; ; attempt++ {
		found, err := s.read(ctx, nil, nil)
		if err != nil {
			return nil, s.readError(err)
		}
		without, settled, err := s.settleClaims(ctx, nil, claims, found)
		if settled || err != nil {
			return without, err
		}
		if err := backoff.Wait(ctx); err != nil {
			return nil, fmt.Errorf("%w: others changed it before each of %d attempts: %w", storage.ErrUnavailable, attempt, err)
		}
	}
}

// ownersOf are the owners of an address in order: ServiceEntries and sources.
func ownersOf(value *envelope.Address) []string {
	out := slices.Clone(value.Owners)
	for _, source := range value.Sources {
		out = append(out, address.OwnerOf(source))
	}
	slices.Sort(out)
	return out
}
