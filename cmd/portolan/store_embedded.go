package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
)

// embeddedStore are the flags of the store that serve runs itself.
type embeddedStore struct {
	dataDir   string
	inProcess bool
	retention time.Duration
	quota     resource.QuantityValue
	cluster   storeCluster
}

func (o *embeddedStore) register(f *pflag.FlagSet) {
	f.StringVar(&o.dataDir, "data-dir", defaultDataDir(), "directory of the embedded store; created if missing")
	f.BoolVar(&o.inProcess, "store-in-process", false,
		"run the embedded store in this process: faster, but a fatal error in etcd, such as a full disk, ends the server")
	f.DurationVar(&o.retention, "store-retention", upkeep.DefaultRetention, "how long past revisions of the embedded store can be read, at least 1m")
	o.quota.Quantity = *resource.NewQuantity(member.DefaultQuota, resource.BinarySI)
	f.Var(&o.quota, "store-quota", "size at which the embedded store takes no more writes, at least 64Mi")
	o.cluster.register(f)
}

// exclude reports the flags that were given although another store is used.
func (o *embeddedStore) exclude(given func(flag string) bool, add addFault) {
	for _, flag := range append([]string{"data-dir", "store-in-process", "store-retention", "store-quota"}, clusterFlags...) {
		if given(flag) {
			add(flag, "is of the embedded store: leave it out with --etcd-endpoints")
		}
	}
}

func (o *embeddedStore) validate(given func(flag string) bool, add addFault) {
	o.cluster.validate(given, o.inProcess, add)
	if o.retention < upkeep.MinRetention {
		add("store-retention", "%s is too short: those who watch need the recent past: keep at least %s", o.retention, upkeep.MinRetention)
	}
	if o.quota.Value() < minQuota {
		add("store-quota", "%s is too small for an apply of some thousand objects: give at least 64Mi", o.quota.String())
	}
}

// open starts the member.
func (o *embeddedStore) open(ctx context.Context, logger *slog.Logger) (*openedStore, error) {
	if o.inProcess {
		return o.openInProcess(ctx, logger)
	}
	return o.openChild(ctx, logger)
}

// minQuota holds some of the largest batches that the store takes.
const minQuota = 64 << 20

// defaultDataDir is where the embedded store lives unless told otherwise.
func defaultDataDir() string {
	if os.Getuid() == 0 {
		return "/var/lib/portolan"
	}
	if state := os.Getenv("XDG_STATE_HOME"); state != "" {
		return filepath.Join(state, "portolan")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "portolan-data"
	}
	return filepath.Join(home, ".local", "state", "portolan")
}

// embedded are the limits of the embedded member.
func embedded() etcd.Options {
	return etcd.Options{MaxTxnOps: member.MaxTxnOps, MaxRequestBytes: member.MaxRequestBytes}
}

func (o *embeddedStore) openInProcess(ctx context.Context, logger *slog.Logger) (*openedStore, error) {
	m, err := member.Start(ctx, member.Options{DataDir: o.dataDir, Quota: o.quota.Value(), Upkeep: o.upkeep(), Logger: logger})
	if err != nil {
		return nil, err
	}
	logger.Warn("the store runs in this process: a fatal error in etcd ends the server, xDS included")
	return &openedStore{
		client: m.Client(), limits: embedded(), run: m.Run, close: m.Close,
		healthy: degraded(m.Ready), metrics: m, keeper: m.Keeper(), dataDir: o.dataDir,
	}, nil
}

func (o *embeddedStore) openChild(ctx context.Context, logger *slog.Logger) (*openedStore, error) {
	child, err := member.NewChild(member.ChildOptions{
		DataDir: o.dataDir, Args: []string{"store", "run"}, Quota: o.quota.Value(),
		Cluster: o.cluster.cluster(), Upkeep: o.upkeep(), Logger: logger,
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
		healthy: whole(degraded(child.Ready), child.Whole), metrics: child, members: child.Roster(), keeper: child.Keeper(), dataDir: o.dataDir,
		close: func() error { return errors.Join(client.Close(), child.Close()) },
	}, nil
}

// upkeep is how the embedded store is to be kept.
func (o *embeddedStore) upkeep() upkeep.Policy { return upkeep.Policy{Retention: o.retention} }
