package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
)

// newStoreCommand has the commands of the store. "run" is how serve starts the
// embedded member; it is of no use to people.
func newStoreCommand(env *environment) *cobra.Command {
	c := &cobra.Command{Use: "store", Short: "See to the store of a server"}
	c.AddCommand(
		newStoreStatusCommand(env), newStoreSnapshotCommand(env),
		newStoreCompactCommand(env), newStoreDefragCommand(env), newStoreQuarantineCommand(env),
		newStoreMemberCommand(env), newStoreRunCommand(env),
	)
	return c
}

func newStoreRunCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:    "run",
		Short:  "Run the embedded etcd of a server (started by serve)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			logger := slog.New(slog.NewTextHandler(env.stderr, nil)).With("process", "store")
			return member.RunChild(context.WithoutCancel(c.Context()), logger)
		},
	}
}

// openedStore is the etcd that the server uses, however it is run.
type openedStore struct {
	client *clientv3.Client
	limits etcd.Options // MaxTxnOps, MaxRequestBytes and Addresses
	// run keeps it alive until its context ends; nil where nothing is to be run.
	run func(context.Context) error
	// healthy says why it cannot be used at present.
	healthy func() error
	// metrics are those of the embedded store; nil for another's.
	metrics prometheus.Collector
	// keeper and dataDir are those of the embedded store, nil and empty for
	// another's.
	keeper  *upkeep.Keeper
	dataDir string
	// backups are made of it by schedule; nil where none are.
	backups *backup.Scheduler
	// members are those of the embedded store; nil in process, and for another's.
	members *cluster.Roster
	close   func() error
}

// openStore starts the embedded member, or connects to a cluster.
func openStore(ctx context.Context, o serveOptions, logger *slog.Logger) (*openedStore, error) {
	if len(o.external.endpoints) > 0 {
		return o.external.open(ctx, logger)
	}
	return o.embedded.open(ctx, logger)
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
