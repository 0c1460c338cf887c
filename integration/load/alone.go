package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/integration/load/fleet"
	"github.com/portolan-mesh/portolan/integration/load/meter"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// runAgainstServer simulates proxies against a running server. It knows only the server's
// address, and perhaps its process.
func runAgainstServer(ctx context.Context, o options) error {
	variant := protocol.Delta
	switch o.variant {
	case "delta":
	case "world":
		variant = protocol.StateOfTheWorld
	default:
		return fmt.Errorf("-variant %q is neither delta nor world", o.variant)
	}
	if (o.change == "") != (o.mark == "") {
		return errors.New("-change and -mark go together")
	}
	r := &results{cell: cell{
		name: o.address, proxies: o.proxies, variant: variant, spread: o.spread, mesh: refmesh.Mesh{Services: o.services},
	}, floors: map[string]float64{}, report: &report{}}
	m := &run{options: o, results: r}
	f, stop, err := m.firstSync(ctx, meter.Process(o.pid), o.address, nil, r.add)
	if err != nil {
		return err
	}
	defer stop()
	printCounts(f.Counts(), o.proxies)
	if o.change != "" {
		if err := m.commanded(ctx, f); err != nil {
			return err
		}
	}
	r.print(os.Stdout)
	return nil
}

// commanded measures a change that a command makes.
func (m *run) commanded(ctx context.Context, f *fleet.Fleet) error {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	before := f.Counts()
	receipt := f.Expect(fleet.Expectation{Mark: []byte(m.mark)})
	began := time.Now()
	command := exec.CommandContext(ctx, "sh", "-c", m.options.change)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("-change: %w", err)
	}
	times, err := receipt.Await(ctx)
	if err != nil {
		return err
	}
	if err := f.AwaitSilence(ctx, m.silence); err != nil {
		return err
	}
	slices.SortFunc(times, time.Time.Compare)
	m.add("change: p50, the command in it", seconds, times[len(times)/2].Sub(began).Seconds())
	m.add("change: last, the command in it", seconds, times[len(times)-1].Sub(began).Seconds())
	printCounts(f.Counts().Since(before), m.cell.proxies)
	return nil
}

// printCounts prints what proxies received of each type.
func printCounts(counts fleet.Counts, proxies int) {
	each := float64(proxies)
	for _, typeURL := range slices.Sorted(maps.Keys(counts)) {
		c := counts[typeURL]
		fmt.Printf("%-55s %8.4g messages %8.4g resources %8.4g removed %12s per proxy\n", path.Base(typeURL),
			float64(c.Messages)/each, float64(c.Resources)/each, float64(c.Removed)/each, size(float64(c.Bytes)/each))
	}
}
