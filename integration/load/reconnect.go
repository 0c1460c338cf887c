package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/integration/load/fleet"
)

// reconnect brings proxies up, restarts the server while they are disconnected, and lets them
// all reconnect at once with what they have.
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

// restart ends the server and starts another one on its data.
func (m *run) restart(ctx context.Context, dir string) error {
	if err := m.server.stop(); err != nil {
		return err
	}
	s, err := startServer(ctx, m.binary, dir, m.flags...)
	if err != nil {
		m.server.stop = func() error { return nil } // it has ended
		return err
	}
	m.server = s
	return errors.Join(wait(ctx, settle), s.collect(ctx), s.ResetPeak())
}

// comeBack reconnects a stopped fleet. When all proxies had their turns it makes a change. A
// proxy that has received the change has had all its stated resources checked.
func (m *run) comeBack(ctx context.Context, f *fleet.Fleet) error {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	counts, opened := f.Counts(), f.Reconnects()
	before, err := m.server.Usage()
	if err != nil {
		return err
	}
	profiled := m.startProfile(ctx, "reconnect", 5*time.Second)
	began := time.Now()
	change := makeChange(m.cell.mesh, "routes", int(began.UnixNano())) // no other cell has made this change
	expect, _ := expected("routes", m.cell.variant, change.Mark)
	receipt := f.Expect(expect...)
	f.Move(m.server.xds)
	defer goOn(ctx, f)()
	if err := errors.Join(m.awaitBack(ctx), m.server.apply(ctx, change)); err != nil {
		return err
	}
	times, err := receipt.Await(ctx)
	if err = errors.Join(err, f.AwaitSilence(ctx, m.silence)); err != nil {
		return err
	}
	used, err := m.server.Usage()
	got := f.Counts().Since(counts).Total()
	m.add(againTime, seconds, slices.MaxFunc(times, time.Time.Compare).Sub(began).Seconds())
	m.add(againCPU, seconds, (used.CPU - before.CPU).Seconds())
	m.add(againMemory, bytes, float64(used.Peak))
	m.add(againStated, bytes, m.perProxy(f.Stated()))
	m.add(againBytes, bytes, m.perProxy(got.Bytes))
	m.add(againMessages, count, m.perProxy(got.Messages))
	m.add(againResources, count, m.perProxy(got.Resources))
	held, err2 := m.server.memory(ctx)
	m.add(againHeld, bytes, float64(held))
	if n := f.Reconnects() - opened; n > m.cell.proxies {
		m.note("%d streams were opened again after they had ended", n-m.cell.proxies)
	}
	return errors.Join(err, err2, profiled())
}

// lookAgain is how often it asks a server for the number of its proxies.
const lookAgain = 20 * time.Millisecond

// awaitBack waits until all proxies have streams and none is being brought up.
func (m *run) awaitBack(ctx context.Context) error {
	for {
		gauges, err := m.server.gauges(ctx)
		if err != nil {
			return err
		}
		n := int(gauges["portolan_connected_proxies"])
		if n == m.cell.proxies && gauges["portolan_first_syncs"] == 0 {
			return nil
		}
		if err := wait(ctx, lookAgain); err != nil {
			return fmt.Errorf("%d of %d proxies are back: %w", n, m.cell.proxies, err)
		}
	}
}
