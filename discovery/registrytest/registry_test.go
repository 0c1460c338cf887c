package registrytest_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/registrytest"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// polled is a complete registry. It polls a program, such as a web server, for its services.
// The program answers a line for each endpoint: namespace, name, address with port, and
// labels.
type polled struct {
	discovery.ServiceDiscovery // the index, for reading

	index    *discovery.Index
	handlers discovery.Handlers
	xds      discovery.XDSUpdater
	worker   *cache.Worker
	ask      func(context.Context) (string, error)
	every    time.Duration
	synced   atomic.Bool

	rows map[string]discovery.Row // only the worker uses it: rows with services, by host and namespace
}

func newPolled(xds discovery.XDSUpdater, worker *cache.Worker, ask func(context.Context) (string, error), every time.Duration) *polled {
	index := &discovery.Index{}
	return &polled{ServiceDiscovery: index, index: index, xds: xds, worker: worker, ask: ask, every: every, rows: map[string]discovery.Row{}}
}

func (p *polled) Provider() discovery.Provider { return discovery.Memory }
func (p *polled) Cluster() string              { return "polled" }
func (p *polled) HasSynced() bool              { return p.synced.Load() }
func (p *polled) Fork() discovery.Fork         { return p.index.Fork() }

func (p *polled) AppendServiceHandler(f discovery.ServiceHandler) { p.handlers.AppendServiceHandler(f) }
func (p *polled) AppendWorkloadHandler(f discovery.WorkloadHandler) {
	p.handlers.AppendWorkloadHandler(f)
}

// Run polls until ctx ends. If an answer cannot be read, the content stays.
func (p *polled) Run(ctx context.Context) error {
	p.handlers.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for last := "never"; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if text, err := p.ask(ctx); err == nil && text != last {
			if rows, err := rowsOf(text); err == nil {
				p.worker.Post(p, func() { p.write(rows) })
				last = text
			}
		}
		timer.Reset(p.every)
	}
}

// rowsOf parses an answer into the services and endpoints of each host.
func rowsOf(text string) (map[string]discovery.Row, error) {
	rows := map[string]discovery.Row{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("%q: want NAMESPACE NAME ADDRESS:PORT", line)
		}
		at, err := netip.ParseAddrPort(fields[2])
		if err != nil {
			return nil, err
		}
		namespace, name := fields[0], fields[1]
		key := namespace + "/" + name
		row, known := rows[key]
		if !known {
			row.Hostname, row.Namespace = host.Name(name+".polled"), namespace
			row.Services = []*discovery.Service{{
				Hostname: row.Hostname, Address: discovery.UnspecifiedIP, Resolution: discovery.ClientSideLB,
				Ports:      []discovery.Port{{Name: "http", Number: int(at.Port()), Protocol: discovery.HTTP}},
				Attributes: discovery.Attributes{Provider: discovery.Memory, Name: name, Namespace: namespace},
			}}
		}
		own := labels.Instance{}
		for _, label := range fields[3:] {
			name, value, _ := strings.Cut(label, "=")
			own[name] = value
		}
		row.Endpoints = append(row.Endpoints, &discovery.Endpoint{
			Address: at.Addr().String(), Port: int(at.Port()), ServicePortName: "http", Labels: own, Weight: 1,
			Namespace: namespace, WorkloadName: name, TLSMode: discovery.TLSModeDisabled, Locality: discovery.Locality{Cluster: "polled"},
		})
		slices.SortStableFunc(row.Endpoints, discovery.CompareEndpoints)
		rows[key] = row
	}
	return rows, nil
}

// write publishes the rows that differ, and an empty row for each that is gone. It runs on the
// worker.
func (p *polled) write(rows map[string]discovery.Row) {
	for key, was := range p.rows {
		if _, stays := rows[key]; !stays {
			rows[key] = discovery.Row{Hostname: was.Hostname, Namespace: was.Namespace}
		}
	}
	services := 0
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		change := p.index.Publish(p.xds, discovery.ShardKey{Provider: p.Provider(), Cluster: p.Cluster()}, rows[key])
		if change.Services {
			services++
		}
		p.handlers.ServicesChanged(change)
		if len(rows[key].Services) == 0 {
			delete(rows, key)
		}
	}
	p.rows = rows
	if services > 0 {
		p.xds.ConfigUpdate(&discovery.PushRequest{Full: true, Reason: map[string]int{discovery.ReasonService: services}, Start: time.Now()})
	}
	if !p.synced.Load() {
		p.worker.Then(func() { p.synced.Store(true) }) // once the rows are committed
	}
}

// TestARegistryOfAHundredLines: the registry above fulfils the contract.
func TestARegistryOfAHundredLines(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, func(_ *testing.T, xds discovery.XDSUpdater, worker *cache.Worker) registrytest.Source {
		var mu sync.Mutex // guards text
		text := ""
		p := newPolled(xds, worker, func(context.Context) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return text, nil
		}, time.Millisecond)
		return registrytest.Source{
			Registry: p, Provider: discovery.Memory, Cluster: "polled",
			Offer: func(services ...registrytest.Service) {
				var lines strings.Builder
				for _, s := range services {
					for _, i := range s.Instances {
						fmt.Fprintf(&lines, "%s %s %s", s.Namespace, s.Name, netip.AddrPortFrom(netip.MustParseAddr(i.Address), uint16(s.Port)))
						for _, name := range slices.Sorted(maps.Keys(i.Labels)) {
							fmt.Fprintf(&lines, " %s=%s", name, i.Labels[name])
						}
						lines.WriteString("\n")
					}
				}
				mu.Lock()
				defer mu.Unlock()
				text = lines.String()
			},
		}
	})
}
