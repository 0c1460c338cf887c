package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

var _ storage.Leaser = (*Store)(nil)

// LeaseKey returns the key beside an object under a lease. Its value is empty.
func LeaseKey(key config.Key) string { return LeasePrefix + key.Path() }

// underLease returns the writes beside an object that comes under a lease: the key that shows
// the lease's end, and the object's health, if it has any, under the same lease.
func underLease(key config.Key, lease storage.LeaseID) []clientv3.Op {
	under, report := clientv3.WithLease(clientv3.LeaseID(lease)), healthKeyOf(key)
	return []clientv3.Op{
		clientv3.OpPut(LeaseKey(key), "", under),
		clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(report), ">", 0)},
			[]clientv3.Op{clientv3.OpPut(report, "", clientv3.WithIgnoreValue(), under)}, nil),
	}
}

// offLease returns the write beside an object that is taken from its lease, of its health. The key
// beside it goes with the lease, and the object is not under that any more.
func offLease(key config.Key) clientv3.Op {
	report := healthKeyOf(key)
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(report), ">", 0)},
		[]clientv3.Op{clientv3.OpPut(report, "", clientv3.WithIgnoreValue())}, nil)
}

// Grant implements storage.Leaser. etcd ends a lease at most half a second late. Of ten thousand
// that end at one time it ends the last nine seconds late.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (storage.LeaseID, error) {
	ttl, err := storage.LeaseTTL(ttl)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	granted, err := s.client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return 0, fmt.Errorf("grant a lease: %w", s.writeError(err))
	}
	return storage.LeaseID(granted.ID), nil
}

// Renew implements storage.Leaser.
func (s *Store) Renew(ctx context.Context, lease storage.LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	_, err := s.client.KeepAliveOnce(ctx, clientv3.LeaseID(lease))
	return s.leaseError("renew", lease, err)
}

// Revoke implements storage.Leaser.
func (s *Store) Revoke(ctx context.Context, lease storage.LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	_, err := s.client.Revoke(ctx, clientv3.LeaseID(lease))
	return s.leaseError("revoke", lease, err)
}

func (s *Store) leaseError(verb string, lease storage.LeaseID, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("%s lease %x: %w: it has ended", verb, int64(lease), storage.ErrNotFound)
	}
	return fmt.Errorf("%s lease %x: %w", verb, int64(lease), s.writeError(err))
}
