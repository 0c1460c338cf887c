package serve

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	// settleInterval is how often the settler looks for hosts without an address. settleAll is
	// how often it reads the owners of all addresses to find other faults.
	settleInterval = 30 * time.Second
	settleAll      = 10 * time.Minute
)

// A settler allocates addresses for hosts that got none when they were written, because an
// older server wrote them or no address was left. It frees addresses without an owner, and
// those of hosts that no source has any more.
type settler struct {
	store   *etcd.Store
	configs *mirror.Cache
	facts   func() *statuses.Reports
	without prometheus.Gauge
	logger  *slog.Logger
}

func newSettler(store *etcd.Store, configs *mirror.Cache, facts func() *statuses.Reports, metrics prometheus.Registerer, logger *slog.Logger) (*settler, error) {
	s := &settler{
		store: store, configs: configs, facts: facts, logger: logger,
		without: prometheus.NewGauge(prometheus.GaugeOpts{Name: "portolan_hosts_without_address",
			Help: "Hosts of ServiceEntries for which no address was left, as of the last look of the leader; 0 at other servers."}),
	}
	return s, metrics.Register(s.without)
}

// run implements job.
func (s *settler) run(ctx context.Context, leader *election.Leader) error {
	store := s.store.Fenced(leader.Client())
	defer s.without.Set(0)
	ticker := time.NewTicker(settleInterval)
	defer ticker.Stop()
	if _, err := s.configs.Await(ctx, 1); err != nil {
		return nil // ctx ended
	}
	free := newFreer(addressHold)
	var all time.Time // when the owners of all addresses were last read
	for {
		if time.Since(all) >= settleAll || s.lacksAddress() || free.pending(s.facts(), time.Now()) {
			begun := time.Now()
			err := s.settle(ctx, store, free)
			switch {
			case ctx.Err() != nil || errors.Is(err, election.ErrNotLeader):
				return nil
			case err != nil:
				s.logger.Warn("addresses of hosts were not settled, it will be tried again", "err", err, "after", settleInterval)
			default:
				all = begun
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// lacksAddress says whether a host should have an address and has none.
func (s *settler) lacksAddress() bool {
	snapshot := s.configs.Snapshot()
	for object := range snapshot.List(schema.ServiceEntry, "") {
		for _, host := range address.Hosts(object) {
			if snapshot.Addresses().Value(address.Path(object.Namespace, host)) == nil {
				return true
			}
		}
	}
	return false
}

// settle compares all objects with the owners of addresses, and corrects the differences.
func (s *settler) settle(ctx context.Context, store *etcd.Store, free *freer) error {
	facts := s.facts() // read before the owners, to be no newer
	owners, err := store.AddressOwners(ctx)
	if err != nil {
		return err
	}
	doubts := address.Doubts(s.configs.Snapshot().List(schema.ServiceEntry, ""), owners)
	without, err := store.SettleAddresses(ctx, doubts)
	if err != nil {
		return err
	}
	if freed := free.claimsToFree(owners, facts, time.Now()); len(freed) > 0 {
		if _, err := store.ClaimAddresses(ctx, freed); err != nil {
			return err
		}
		s.logger.Info("addresses of hosts are free that no server has in its sources any more", "hosts", len(freed), "after", addressHold)
	}
	s.without.Set(float64(len(without)))
	switch {
	case len(without) > 0:
		s.logger.Warn("hosts of ServiceEntries have no address, since none is left: give servers a larger --auto-address-ipv4",
			"hosts", len(without), "first", without[0].String())
	case len(doubts) > 0:
		s.logger.Info("addresses of hosts settled", "objects", len(doubts))
	}
	return nil
}
