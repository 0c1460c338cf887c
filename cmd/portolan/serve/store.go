package serve

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/peercert"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
)

// openedStore is the etcd that the server uses, embedded or external.
type openedStore struct {
	client *clientv3.Client
	limits etcd.Options // MaxTxnOps and MaxRequestBytes
	// run runs the store until its context ends; nil if there is nothing to run.
	run func(context.Context) error
	// healthy returns why the store cannot be used now, nil if it can.
	healthy func() error
	// metrics are the metrics of the embedded store, nil for an external one.
	metrics prometheus.Collector
	// keeper is the keeper of the embedded store, nil for an external one.
	keeper *upkeep.Keeper
	// backups makes scheduled backups, nil if there are none.
	backups *backup.Scheduler
	// members knows the members of the embedded store; nil for a store in this process and for
	// an external one.
	members *cluster.Roster
	// papers keeps the certificate of the embedded member. place is its place in the store
	// that it has joined. Each may be nil.
	papers *peercert.Keeper
	place  *peercert.Place
	// certificate names the files of the member's certificate, those of papers or others; nil
	// for a member without TLS.
	certificate *peercert.Files
	// hangUp ends the client's requests under way. Call it before the context of run ends,
	// since etcd waits for its clients. It may be called more than once.
	hangUp func()
	close  func() error
}

// openStore starts the embedded member, or connects to a cluster.
func openStore(ctx context.Context, o *Options) (*openedStore, error) {
	if o.Etcd != nil {
		return o.Etcd.open(ctx, o.log(loglevel.Store))
	}
	return o.Embedded.open(ctx, o.Founding, o.log(loglevel.Store), o.LogLevels)
}

// certified returns why the certificate of the member needs attention, nil if it does not.
func (s *openedStore) certified() error {
	if s.papers != nil {
		return s.papers.Degraded()
	}
	return s.certificate.Degraded()
}

// bothChecks combines two checks of the store: if it is healthy, complete says what is missing all
// the same.
func bothChecks(healthy, complete func() error) func() error {
	return func() error {
		if err := healthy(); err != nil {
			return err
		}
		return complete()
	}
}

// degraded adds to the error of a check what a store that is away means for the server.
func degraded(ready func() error) func() error {
	return func() error {
		if err := ready(); err != nil {
			return fmt.Errorf("proxies are served from memory, and writes fail: %w", err)
		}
		return nil
	}
}
