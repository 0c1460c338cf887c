package serve

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// The first and the longest wait before failed claims are tried again, and the wait of hosts
// for which no address was left.
const (
	claimRetryMin = 100 * time.Millisecond
	claimRetryMax = 5 * time.Second
	withoutRetry  = settleInterval
)

// A claimer claims addresses for hosts of objects from sources other than the store. Every
// server claims them for its own objects, as transactions do for objects in the store. The
// store gives each host one address, whoever is first. Only the leader takes claims back,
// never a claimer.
type claimer struct {
	store   *etcd.Store
	configs configCache
	logger  *slog.Logger

	last   *cache.Snapshot
	wanted map[ownedAddress]int // number of objects that want the address
	due    map[ownedAddress]bool
	failed string // the last failure that was logged
}

type ownedAddress struct {
	address.Key
	source string
}

func newClaimer(store *etcd.Store, configs configCache, logger *slog.Logger) *claimer {
	return &claimer{store: store, configs: configs, logger: logger, wanted: map[ownedAddress]int{}, due: map[ownedAddress]bool{}}
}

// run claims addresses until ctx ends, then returns nil.
func (c *claimer) run(ctx context.Context) error {
	backoff := retry.New(claimRetryMin, claimRetryMax)
	for ctx.Err() == nil {
		following, cancel := ctx, context.CancelFunc(func() {})
		if len(c.due) > 0 {
			pause := withoutRetry
			if !c.writeDue(ctx) {
				if err := backoff.Wait(ctx); err != nil {
					return nil
				}
				pause = claimRetryMin
			} else {
				backoff.Reset()
			}
			if len(c.due) > 0 {
				following, cancel = context.WithTimeout(ctx, pause)
			}
		}
		next, err := c.configs.Next(following, c.last)
		cancel()
		if err != nil {
			if next = c.configs.Snapshot(); next == c.last {
				continue // the wait is over
			}
		}
		c.follow(next)
	}
	return nil
}

// follow updates what to claim after a newer snapshot.
func (c *claimer) follow(next *cache.Snapshot) {
	for change := range cache.ChangedBeside(c.last, next) {
		for _, object := range change.New {
			for _, one := range ownedBy(object) {
				if c.wanted[one]++; c.wanted[one] == 1 {
					c.due[one] = true
				}
			}
		}
		for _, object := range change.Old {
			for _, one := range ownedBy(object) {
				if c.wanted[one]--; c.wanted[one] == 0 {
					delete(c.wanted, one)
					delete(c.due, one)
				}
			}
		}
	}
	if len(c.wanted) > 0 {
		c.markLostDue(next)
	}
	c.last = next
}

// markLostDue marks wanted addresses that are gone as due.
func (c *claimer) markLostDue(to *cache.Snapshot) {
	gone := map[string]bool{}
	for change := range pmap.Diff(c.last.Addresses(), to.Addresses()) {
		if change.New == nil {
			gone[change.Key] = true
		}
	}
	if len(gone) == 0 {
		return
	}
	for one := range c.wanted {
		if gone[one.String()] {
			c.due[one] = true
		}
	}
}

// ownedBy returns the addresses that an object of another source wants.
func ownedBy(object *config.Config) []ownedAddress {
	var out []ownedAddress
	for _, host := range address.Hosts(object) {
		out = append(out, ownedAddress{address.Key{Namespace: object.Namespace, Host: host}, object.Source})
	}
	return out
}

// writeDue returns false if writing fails.
func (c *claimer) writeDue(ctx context.Context) bool {
	byHost := map[address.Key]*address.Claim{}
	for one := range c.due {
		if byHost[one.Key] == nil {
			byHost[one.Key] = &address.Claim{Key: one.Key}
		}
		byHost[one.Key].Add = append(byHost[one.Key].Add, address.OwnerOf(one.source))
	}
	claims := make([]address.Claim, 0, len(byHost))
	for _, key := range slices.SortedFunc(maps.Keys(byHost), address.Key.Compare) {
		claims = append(claims, *byHost[key])
	}
	without, err := c.store.ClaimAddresses(ctx, claims)
	if err != nil {
		if text := err.Error(); text != c.failed && ctx.Err() == nil {
			c.failed = text
			c.logger.Warn("hosts of objects beside the store have no addresses yet, it will be tried again", "hosts", len(claims), "err", err)
		}
		return false
	}
	c.failed = ""
	lacking := map[address.Key]bool{}
	for _, key := range without {
		lacking[key] = true
	}
	maps.DeleteFunc(c.due, func(one ownedAddress, _ bool) bool { return !lacking[one.Key] })
	return true
}
