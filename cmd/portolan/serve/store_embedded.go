package serve

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/etcd/peercert"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
)

// open starts the member.
func (o *Embedded) open(ctx context.Context, founding member.Founding, logger *slog.Logger, levels *loglevel.Levels) (*openedStore, error) {
	if o.InProcess {
		return o.openInProcess(ctx, founding, logger)
	}
	return o.openChild(ctx, founding, logger, levels)
}

func embeddedLimits() etcd.Options {
	return etcd.Options{MaxTxnOps: member.MaxTxnOps, MaxRequestBytes: member.MaxRequestBytes}
}

func (o *Embedded) openInProcess(ctx context.Context, founding member.Founding, logger *slog.Logger) (*openedStore, error) {
	m, err := member.Start(ctx, member.Options{DataDir: o.DataDir, Quota: o.Quota, Founding: founding, Upkeep: o.upkeep(), Logger: logger})
	if err != nil {
		return nil, err
	}
	logger.Warn("the store runs in this process: a fatal error in etcd ends the server, xDS included")
	return &openedStore{
		client: m.Client(), limits: embeddedLimits(), run: m.Run, close: m.Close,
		hangUp:  func() {}, // the member closes its client first
		healthy: degraded(m.Ready), metrics: m, keeper: m.Keeper(),
	}, nil
}

func (o *Embedded) openChild(ctx context.Context, founding member.Founding, logger *slog.Logger, levels *loglevel.Levels) (*openedStore, error) {
	if err := member.CheckFounding(o.DataDir, founding, o.Cluster); err != nil {
		return nil, err // before anything is made in the directory
	}
	cluster, papers, err := o.certified()
	if err != nil {
		return nil, err
	}
	place, err := peercert.In(o.DataDir).Place()
	if err != nil {
		return nil, err
	}
	child, err := member.NewChild(member.ChildOptions{
		DataDir: o.DataDir, Args: o.Args, Quota: o.Quota, Founding: founding,
		Cluster: cluster, Upkeep: o.upkeep(), Logger: logger, UserRuntimeDir: o.UserRuntimeDir,
	})
	if err != nil {
		return nil, err
	}
	if levels != nil {
		tell := func() { child.SetLogLevels(levels.Spec().String()) }
		tell()
		levels.Watch(tell)
	}
	if _, err := child.Start(ctx); err != nil {
		return nil, err
	}
	client, err := child.Dial(logger)
	if err != nil {
		return nil, errors.Join(err, child.Close())
	}
	hangUp := sync.OnceValue(client.Close)
	var certificate *peercert.Files
	if cluster != nil && cluster.TLS != nil {
		files := peercert.Files(*cluster.TLS)
		certificate = &files
	}
	return &openedStore{
		client: client, limits: embeddedLimits(), certificate: certificate, run: child.Run, hangUp: func() { _ = hangUp() },
		healthy: bothChecks(degraded(child.Ready), child.Whole), metrics: child, members: child.Roster(), keeper: child.Keeper(),
		papers: papers, place: place, close: func() error { return errors.Join(hangUp(), child.Close()) },
	}, nil
}

// certified returns the cluster with the certificate that this server keeps itself, if the
// URLs use TLS and no flag names certificate files. Otherwise papers is nil.
func (o *Embedded) certified() (c *member.Cluster, papers *peercert.Keeper, err error) {
	if o.Cluster == nil || o.Cluster.TLS != nil {
		return o.Cluster, nil, nil
	}
	hosts, secure := urlHosts(o.Cluster.PeerURL, o.Cluster.ClientURL)
	if !secure {
		return o.Cluster, nil, nil
	}
	if papers, err = peercert.In(o.DataDir).Open(hosts...); err != nil {
		return nil, nil, err
	}
	with, files := *o.Cluster, papers.Files()
	with.TLS = &files
	return &with, papers, nil
}

func (o *Embedded) upkeep() upkeep.Policy { return upkeep.Policy{Retention: o.Retention} }
