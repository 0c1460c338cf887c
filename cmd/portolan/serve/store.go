package serve

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/peercert"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
)

// openedStore is the etcd that the server uses, however it is run.
type openedStore struct {
	client *clientv3.Client
	limits etcd.Options // MaxTxnOps and MaxRequestBytes
	// run keeps it alive until its context ends; nil where nothing is to be run.
	run func(context.Context) error
	// healthy says why it cannot be used at present.
	healthy func() error
	// metrics are the metrics of the embedded store; nil for another's.
	metrics prometheus.Collector
	// keeper is the keeper of the embedded store; nil for another's.
	keeper *upkeep.Keeper
	// backups are made of it by schedule; nil where none are.
	backups *backup.Scheduler
	// members are the members of the embedded store; nil in process, and for another's.
	members *cluster.Roster
	// papers keeps the certificate of the embedded member, and place is how it has joined the
	// store; each is nil for none.
	papers *peercert.Keeper
	place  *peercert.Place
	// certificate is the files of the member's certificate, those of papers or others; nil for
	// a member without TLS.
	certificate *peercert.Files
	// hangUp ends what the client still has under way, before run is to end: etcd waits
	// for its clients. It may be called more than once.
	hangUp func()
	close  func() error
}

// openStore starts the embedded member, or connects to a cluster.
func openStore(ctx context.Context, o *Options) (*openedStore, error) {
	if o.Etcd != nil {
		return o.Etcd.open(ctx, o.Logger)
	}
	return o.Embedded.open(ctx, o.Logger)
}

// certified is why the certificate of the member needs care; nil where it does not.
func (s *openedStore) certified() error {
	if s.papers != nil {
		return s.papers.Degraded()
	}
	return s.certificate.Degraded()
}

// whole says what is missing of a store that can be used all the same.
func whole(healthy, complete func() error) func() error {
	return func() error {
		if err := healthy(); err != nil {
			return err
		}
		return complete()
	}
}

// degraded says what a store that is away means for the server.
func degraded(ready func() error) func() error {
	return func() error {
		if err := ready(); err != nil {
			return fmt.Errorf("proxies are served from memory, and writes fail: %w", err)
		}
		return nil
	}
}
