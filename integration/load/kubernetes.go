package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/portolan-mesh/portolan/integration/load/fleet"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// besideCluster measures the first sync of a mesh of which a cluster has half. Then it measures
// changes in the store and in the cluster in turns, with the same proxies. So a disturbance of the
// machine affects both.
func (m *run) besideCluster(ctx context.Context) error {
	if err := m.awaitReady(ctx); err != nil {
		return err
	}
	if err := errors.Join(m.server.collect(ctx), m.server.ResetPeak()); err != nil {
		return err
	}
	profiled := m.startProfile(ctx, "sync", 5*time.Second)
	f, stop, err := m.firstSync(ctx, m.server.Process, m.server.xds, m.record.take, m.add)
	if err != nil {
		return err
	}
	defer stop()
	if err := errors.Join(profiled(), wait(ctx, afterSync)); err != nil {
		return err
	}
	for _, kind := range m.cell.changes {
		if !m.options.changes.MatchString(kind) {
			continue
		}
		if err := m.storeAndCluster(ctx, kind, f); err != nil {
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

// storeAndCluster makes changes of a kind, alternately in the store and in the cluster. The first
// pair warms up, and is not counted.
func (m *run) storeAndCluster(ctx context.Context, kind string, f *fleet.Fleet) error {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	const apart = 10_000 // keeps the marks of the cluster's changes from those of the store's
	w, err := m.kube.watch(ctx, changeOf(m.cell.mesh, kind, refmesh.TargetInCluster, 0).Objects[0])
	if err != nil {
		return err
	}
	defer w.stop()
	var stored, clustered changed
	var seen []time.Duration
	for n := range m.reps + 1 {
		if n == 1 {
			stored, clustered, seen = changed{}, changed{}, nil
		}
		change := changeOf(m.cell.mesh, kind, refmesh.Target, n)
		err := m.once(ctx, f, m.server.Process, kind, change.Mark, &stored, func() error { return m.server.apply(ctx, change) })
		if err != nil {
			return fmt.Errorf("in the store: %w", err)
		}
		change = changeOf(m.cell.mesh, kind, refmesh.TargetInCluster, apart+n)
		var version string
		var began time.Time
		err = m.once(ctx, f, m.server.Process, kind, change.Mark, &clustered, func() (err error) {
			began = time.Now()
			version, err = m.kube.change(ctx, change.Objects[0])
			return err
		})
		if err != nil {
			return fmt.Errorf("in the cluster: %w", err)
		}
		at, err := w.saw(ctx, version)
		if err != nil {
			return fmt.Errorf("watch the cluster: %w", err)
		}
		seen = append(seen, at.Sub(began))
	}
	m.addChange(kind, kind, stored, m.add)
	m.addChange(inCluster(kind), kind, clustered, m.add)
	middle := func(all []time.Duration) string { return seconds.text(quantile(all, 0.5).Seconds()) }
	m.note("%s: the store has answered the write after %s; the cluster after %s, and a bare watch of it shows it after %s (medians)",
		kind, middle(stored.answered), middle(clustered.answered), middle(seen))
	one, other := stored.counts.Total(), clustered.counts.Total()
	if one.Messages != other.Messages || one.Resources != other.Resources {
		return fmt.Errorf("%d messages with %d resources after changes in the cluster, %d with %d after those in the store", other.Messages, other.Resources, one.Messages, one.Resources)
	}
	return nil
}
