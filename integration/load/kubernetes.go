package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/portolan-mesh/portolan/integration/load/fleet"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// startHalves starts a cluster with its half of the mesh, and an etcd for the store of the server. So
// both halves are written to an etcd of the same kind, and can be watched there.
func (m *run) startHalves(ctx context.Context, dir string) (stop func() error, err error) {
	for _, name := range []string{"store", "cluster"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	if m.etcd, err = startEtcd(ctx, filepath.Join(dir, "store")); err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	if m.kube, err = startCluster(ctx, m.options, m.cell.mesh, filepath.Join(dir, "cluster")); err != nil {
		return nil, errors.Join(fmt.Errorf("cluster: %w", err), m.etcd.stop())
	}
	return func() error { return errors.Join(m.kube.stop(), m.etcd.stop()) }, nil
}

// besideCluster writes the half of the store, and measures the first sync. Then it measures changes
// in the store and in the cluster in turns, with the same proxies. So a disturbance of the machine
// affects both.
func (m *run) besideCluster(ctx context.Context) error {
	if err := m.server.write(ctx, m.cell.mesh.Objects()); err != nil {
		return err
	}
	if err := m.awaitReady(ctx); err != nil {
		return err
	}
	stop, err := m.connectAll(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for _, kind := range m.cell.changes {
		if !m.options.changes.MatchString(kind) {
			continue
		}
		if err := m.storeAndCluster(ctx, kind, m.fleet); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

// awaitReady waits until the server has the objects of the cluster.
func (m *run) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	for {
		err := m.server.get(ctx, "/readyz", io.Discard)
		if err == nil {
			return nil
		}
		if wait(ctx, lookAgain) != nil {
			return err
		}
	}
}

// half is the store or the cluster, with the results of changes of a kind there.
type half struct {
	service int
	// apart is added to the numbers of changes: no two halves make a change with the same mark.
	apart   int
	apply   func(context.Context, refmesh.Change) error
	watch   *watching
	changed changed
	// shown are the times after which a bare watch shows the changes, and since the p99s from then on.
	shown, since []time.Duration
}

// storeAndCluster makes changes of a kind, alternately in the store and in the cluster. The first
// pair warms up, and is not counted.
func (m *run) storeAndCluster(ctx context.Context, kind string, f *fleet.Fleet) error {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	objectOf := func(service int) *config.Config { return changeOf(m.cell.mesh, kind, service, 0).Objects[0] }
	atStore, err := m.etcd.watch(ctx, objectOf(refmesh.Target))
	if err != nil {
		return err
	}
	defer atStore.stop()
	atCluster, err := m.kube.watch(ctx, objectOf(refmesh.TargetInCluster))
	if err != nil {
		return err
	}
	defer atCluster.stop()
	stored := &half{service: refmesh.Target, apply: m.server.apply, watch: atStore}
	clustered := &half{service: refmesh.TargetInCluster, apart: 10_000, watch: atCluster, apply: func(ctx context.Context, c refmesh.Change) error {
		return m.kube.change(ctx, c.Objects[0])
	}}
	for n := range m.reps + 1 {
		if n == 1 {
			stored.forget()
			clustered.forget()
		}
		if err := m.changeHalf(ctx, kind, n, f, stored); err != nil {
			return fmt.Errorf("in the store: %w", err)
		}
		if err := m.changeHalf(ctx, kind, n, f, clustered); err != nil {
			return fmt.Errorf("in the cluster: %w", err)
		}
	}
	for _, h := range []struct {
		name string
		*half
	}{{kind, stored}, {inCluster(kind), clustered}} {
		m.addChange(h.name, kind, h.changed, m.add)
		m.add(onceShown(h.name), seconds, quantile(h.since, 0.5).Seconds())
		m.note("%s: a bare watch shows the change %s after it is sent (median)", h.name, seconds.text(quantile(h.shown, 0.5).Seconds()))
	}
	one, other := stored.changed.counts.Total(), clustered.changed.counts.Total()
	if one.Messages != other.Messages || one.Resources != other.Resources {
		return fmt.Errorf("%d messages with %d resources after changes in the cluster, %d with %d after those in the store", other.Messages, other.Resources, one.Messages, one.Resources)
	}
	return nil
}

func (h *half) forget() { h.changed, h.shown, h.since = changed{}, nil, nil }

// changeHalf makes one change of a half, and adds its results.
func (m *run) changeHalf(ctx context.Context, kind string, n int, f *fleet.Fleet, h *half) error {
	change := changeOf(m.cell.mesh, kind, h.service, h.apart+n)
	var began time.Time
	err := m.once(ctx, f, m.server.Process, kind, change.Mark, &h.changed, func() error {
		began = time.Now()
		return h.apply(ctx, change)
	})
	if err != nil {
		return err
	}
	at, err := h.watch.after(ctx, began)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	shown := at.Sub(began)
	h.shown = append(h.shown, shown)
	h.since = append(h.since, h.changed.p99s[len(h.changed.p99s)-1]-shown)
	return nil
}
