package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/portolan-mesh/portolan/integration/load/fleet"
)

// reconnect brings proxies up, starts the server anew while they have none, and has
// them all come back at once with what they have.
func (m *run) reconnect(ctx context.Context, dir string) error {
	if err := errors.Join(m.server.collect(ctx), m.server.ResetPeak()); err != nil {
		return err
	}
	f, stop, err := m.firstSync(ctx, m.server.Process, m.server.xds, nil, m.add)
	if err != nil {
		return err
	}
	held, err := m.server.memory(ctx)
	stop()
	if err != nil {
		return err
	}
	if err := m.restart(ctx, dir); err != nil {
		return fmt.Errorf("start the server anew: %w", err)
	}
	if err := m.comeBack(ctx, f); err != nil {
		return err
	}
	m.note("after the first sync %s were in use", size(float64(held)))
	return nil
}

// restart ends the server and starts another on its data.
func (m *run) restart(ctx context.Context, dir string) error {
	if err := m.server.stop(); err != nil {
		return err
	}
	s, err := startServer(ctx, m.binary, dir, m.cell.flags()...)
	if err != nil {
		m.server.stop = func() error { return nil } // there is none
		return err
	}
	m.server = s
	return errors.Join(wait(ctx, settle), s.collect(ctx), s.ResetPeak())
}

// comeBack has a fleet that was stopped connect again, until the server has looked
// at what all of it say and is silent.
func (m *run) comeBack(ctx context.Context, f *fleet.Fleet) error {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	counts := f.Counts()
	before, err := m.server.Usage()
	if err != nil {
		return err
	}
	profiled := m.startProfile(ctx, "reconnect", 5*time.Second)
	f.Move(m.server.xds)
	began := time.Now()
	defer goOn(ctx, f)()
	err = m.awaitAll(ctx)
	took := time.Since(began)
	if err = errors.Join(err, f.AwaitSilence(ctx, m.silence)); err != nil {
		return err
	}
	used, err := m.server.Usage()
	got := f.Counts().Since(counts).Total()
	m.add(againTime, seconds, took.Seconds())
	m.add(againCPU, seconds, (used.CPU - before.CPU).Seconds())
	m.add(againMemory, bytes, float64(used.Peak))
	m.add(againStated, bytes, m.perProxy(f.Stated()))
	m.add(againBytes, bytes, m.perProxy(got.Bytes))
	m.add(againMessages, count, m.perProxy(got.Messages))
	m.add(againResources, count, float64(got.Resources))
	held, err2 := m.server.memory(ctx)
	m.add(againHeld, bytes, float64(held))
	if n := f.Reconnects(); n > m.cell.proxies {
		m.note("%d streams were opened again after they had ended", n-m.cell.proxies)
	}
	return errors.Join(err, err2, profiled())
}

// lookAgain is how often a server is asked how far it is.
const lookAgain = 20 * time.Millisecond

// awaitAll waits until all proxies are connected and none is being brought up, or
// waits for that.
func (m *run) awaitAll(ctx context.Context) error {
	for {
		gauges, err := m.server.gauges(ctx)
		switch {
		case err != nil:
			return err
		case int(gauges["portolan_connected_proxies"]) == m.cell.proxies && gauges["portolan_first_syncs"] == 0:
			return nil
		}
		if err := wait(ctx, lookAgain); err != nil {
			return fmt.Errorf("%v of %d proxies are back, %v of them being brought up: %w",
				gauges["portolan_connected_proxies"], m.cell.proxies, gauges["portolan_first_syncs"], err)
		}
	}
}
