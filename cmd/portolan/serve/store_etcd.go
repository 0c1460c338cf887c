package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/external"
)

// open connects to the cluster. If the cluster is away the server waits for it; an error is a
// fault that does not pass.
func (o *Etcd) open(ctx context.Context, logger *slog.Logger) (*openedStore, error) {
	d := o.Dial
	d.Logger = logger
	cluster, err := external.New(external.Options{Dial: d, Logger: logger})
	if err != nil {
		return nil, err
	}
	if err := cluster.Start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("--etcd-endpoints: %w", err), cluster.Close())
	}
	return &openedStore{
		client: cluster.Client(), run: cluster.Run, close: cluster.Close,
		hangUp:  func() {}, // nothing here waits for the client
		limits:  etcd.Options{MaxTxnOps: o.MaxTxnOps, MaxRequestBytes: o.MaxRequestBytes},
		healthy: degraded(cluster.Ready), metrics: cluster,
	}, nil
}
