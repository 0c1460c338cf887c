package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/external"
)

// open connects to the cluster. The server waits for a cluster that is away; an error
// is a fault that waiting does not mend.
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
		hangUp:  func() {}, // nothing of ours waits for it
		limits:  etcd.Options{MaxTxnOps: o.MaxTxnOps, MaxRequestBytes: o.MaxRequestBytes},
		healthy: degraded(cluster.Ready), metrics: cluster,
	}, nil
}
