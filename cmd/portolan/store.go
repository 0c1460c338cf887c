package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
)

// newStoreCommand has the commands of the store. "run" is how serve starts the
// embedded member; it is of no use to people.
func newStoreCommand(env *environment) *cobra.Command {
	c := &cobra.Command{Use: "store", Short: "The embedded store", Hidden: true}
	c.AddCommand(&cobra.Command{
		Use:    "run",
		Short:  "Run the embedded etcd of a server (started by serve)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			logger := slog.New(slog.NewTextHandler(env.stderr, nil)).With("process", "store")
			return member.RunChild(context.WithoutCancel(c.Context()), logger)
		},
	})
	return c
}

// openedStore is the etcd that the server uses, however it is run.
type openedStore struct {
	client *clientv3.Client
	limits etcd.Options // MaxTxnOps and MaxRequestBytes
	// run keeps it alive until its context ends; nil where nothing is to be run.
	run func(context.Context) error
	// healthy says why it cannot be used at present.
	healthy func() error
	// metrics are those of the embedded store; nil for another's.
	metrics prometheus.Collector
	close   func() error
}

// openStore starts the embedded member, or connects to a cluster.
func openStore(ctx context.Context, o serveOptions, logger *slog.Logger) (*openedStore, error) {
	switch {
	case len(o.etcdEndpoints) > 0:
		client, err := member.Dial(o.etcdEndpoints, logger)
		if err != nil {
			return nil, err
		}
		return &openedStore{client: client, healthy: func() error { return nil }, close: client.Close}, nil
	case o.storeInProcess:
		return openInProcess(ctx, o, logger)
	}
	return openChild(ctx, o, logger)
}

// embedded are the limits of the embedded member.
func embedded() etcd.Options {
	return etcd.Options{MaxTxnOps: member.MaxTxnOps, MaxRequestBytes: member.MaxRequestBytes}
}

func openInProcess(ctx context.Context, o serveOptions, logger *slog.Logger) (*openedStore, error) {
	m, err := member.Start(ctx, member.Options{DataDir: o.dataDir, Quota: o.storeQuota.Value(), Upkeep: o.upkeep(), Logger: logger})
	if err != nil {
		return nil, err
	}
	logger.Warn("the store runs in this process: a fatal error in etcd ends the server, xDS included")
	return &openedStore{
		client: m.Client(), limits: embedded(), run: m.Run, close: m.Close,
		healthy: degraded(m.Ready), metrics: m,
	}, nil
}

func openChild(ctx context.Context, o serveOptions, logger *slog.Logger) (*openedStore, error) {
	child, err := member.NewChild(member.ChildOptions{
		DataDir: o.dataDir, Args: []string{"store", "run"}, Quota: o.storeQuota.Value(), Upkeep: o.upkeep(), Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	if _, err := child.Start(ctx); err != nil {
		return nil, err
	}
	client, err := child.Dial(logger)
	if err != nil {
		return nil, errors.Join(err, child.Close())
	}
	return &openedStore{
		client: client, limits: embedded(), run: child.Run,
		healthy: degraded(child.Ready), metrics: child,
		close: func() error { return errors.Join(client.Close(), child.Close()) },
	}, nil
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

// upkeep is how the embedded store is to be kept.
func (o serveOptions) upkeep() upkeep.Policy { return upkeep.Policy{Retention: o.storeRetention} }
