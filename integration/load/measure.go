package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/portolan-mesh/portolan/integration/load/fleet"
	"github.com/portolan-mesh/portolan/integration/load/floor"
	"github.com/portolan-mesh/portolan/integration/load/meter"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// settle is how long a started server is left alone. afterSync is the same after a first sync,
// in which it records the proxies and collects garbage.
const settle, afterSync = time.Second, 5 * time.Second

// run measures one cell.
type run struct {
	options
	*results
	server *server
	flags  []string // of the server
	mutual *mutual  // nil in plaintext
	kube   *cluster // with half of the mesh, and etcd of the server with the other; nil if an embedded store has all
	etcd   *etcdServer
	fleet  *fleet.Fleet
	record *recorder // of the responses to the first proxy
	floor  floor.Recording
	marks  map[string]refmesh.Change // the last of each kind
}

// measureCell runs a server on a directory and measures.
func measureCell(ctx context.Context, o options, dir string, r *results) (err error) {
	m := &run{options: o, results: r, record: &recorder{}, marks: map[string]refmesh.Change{}}
	if r.cell.mutual {
		if m.mutual, err = newMutual(filepath.Join(dir, "mutual")); err != nil {
			return err
		}
	}
	if r.cell.kubernetes {
		stop, err2 := m.startHalves(ctx, dir)
		if err2 != nil {
			return err2
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	if m.flags, err = m.serverFlags(dir); err != nil {
		return err
	}
	if m.server, err = startServer(ctx, o.binary, dir, m.flags...); err != nil {
		return err
	}
	m.floor = floor.Recording{Variant: r.cell.variant, Changes: map[string][][]byte{}}
	defer func() { err = errors.Join(err, m.server.stop()) }()
	if err := wait(ctx, settle); err != nil {
		return err
	}
	switch {
	case r.cell.connections:
		return m.connections(ctx)
	case r.cell.reconnect:
		return m.reconnect(ctx, dir)
	case r.cell.files:
		return m.files(ctx, dir)
	case r.cell.kubernetes:
		return m.besideCluster(ctx)
	}
	return errors.Join(m.changes(ctx), m.besideFloor(ctx, dir))
}

// serverFlags returns the flags of the server. The files that they name are in a directory.
func (m *run) serverFlags(dir string) ([]string, error) {
	out := m.cell.flags()
	if m.mutual != nil {
		out = append(out, m.mutual.flags()...)
	}
	if m.kube != nil {
		out = slices.Concat(out, m.kube.flags(), m.etcd.flags())
	}
	if !m.cell.noAutoMTLS {
		return out, nil
	}
	file := filepath.Join(dir, "mesh.yaml")
	return append(out, "--mesh-config", file), os.WriteFile(file, []byte("enableAutoMtls: false\n"), 0o600)
}

// over returns how proxies connect. first is the number of the first of them in the cell.
func (m *run) over(first, proxies int) (func(int) *tls.Config, error) {
	if m.mutual == nil {
		return nil, nil
	}
	return m.mutual.proxies(proxies, m.node(m.cell, first))
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// node returns the nodes of the proxies of a cell, from the proxy with number first on.
func (o options) node(c cell, first int) func(int) *corev3.Node {
	p := refmesh.Proxies{Mesh: c.mesh, Spread: c.spread, Gateways: c.gateways, Interception: o.interception}
	return func(n int) *corev3.Node { return p.Node(first + n) }
}

// follow runs a new fleet until the caller calls stop.
func follow(ctx context.Context, o fleet.Options) (f *fleet.Fleet, stop func()) {
	f = fleet.New(o)
	return f, goOn(ctx, f)
}

// goOn runs a fleet until the caller calls stop. It may have run before.
func goOn(ctx context.Context, f *fleet.Fleet) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

// connectAll connects all proxies, and measures their first sync. The caller calls stop, unless it
// fails.
func (m *run) connectAll(ctx context.Context) (stop func(), err error) {
	if err := errors.Join(m.server.collect(ctx), m.server.ResetPeak()); err != nil {
		return nil, err
	}
	profiled := m.startProfile(ctx, "sync", 5*time.Second)
	f, stop, err := m.firstSync(ctx, m.server.Process, m.server.xds, m.record.take, m.add)
	if err != nil {
		return nil, err
	}
	m.fleet, m.floor.Responses = f, m.record.byType()
	if err := errors.Join(profiled(), wait(ctx, afterSync)); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// changes connects all proxies, measures changes, and then the idle server.
func (m *run) changes(ctx context.Context) error {
	stop, err := m.connectAll(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for _, kind := range m.cell.changes {
		if m.options.changes.MatchString(kind) {
			if err := m.change(ctx, kind); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
		}
	}
	if m.cell.quiet {
		return m.quiet(ctx)
	}
	return nil
}

// adding adds a figure.
type adding func(name string, u unit, v float64)

// firstSync connects proxies to a server and waits until they have everything.
func (m *run) firstSync(ctx context.Context, p meter.Process, address string, record func(string, []byte), add adding) (*fleet.Fleet, func(), error) {
	limit, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	over, err := m.over(0, m.cell.proxies)
	before, err2 := usage(p)
	own, err3 := self.CPU()
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, nil, err
	}
	began := time.Now()
	f, stop := follow(ctx, fleet.Options{
		Address: address, TLS: over, Proxies: m.cell.proxies, Variant: m.cell.variant, Node: m.node(m.cell, 0), Record: record, States: m.cell.reconnect,
	})
	got, err := f.AwaitSync(limit, m.silence)
	used, err2 := usage(p)
	ownAfter, err3 := self.CPU()
	if err := errors.Join(err, err2, err3); err != nil {
		stop()
		return nil, nil, err
	}
	all := got.Counts.Total()
	add(syncTime, seconds, got.At.Sub(began).Seconds())
	if p != unmeasured {
		add(syncCPU, seconds, (used.CPU - before.CPU).Seconds())
		add(syncMemory, bytes, float64(used.Peak))
	}
	add(syncBytes, bytes, m.perProxy(all.Bytes))
	add(syncMessages, count, m.perProxy(all.Messages))
	from := "the server"
	if address != m.server.xds {
		from = "the floor"
	}
	m.note("first sync from %s: the simulated proxies took %s of CPU besides", from, seconds.text((ownAfter - own).Seconds()))
	if got.Reconnects > 0 {
		m.note("%d streams were opened again during the first sync: %v", got.Reconnects, got.Reason)
	}
	return f, stop, nil
}

// self is this process, which simulates the proxies. Its usage is kept apart from the server's.
var self = meter.Process(os.Getpid())

// unmeasured is no process: only what clients see of the server is measured.
const unmeasured meter.Process = 0

func usage(p meter.Process) (meter.Usage, error) {
	if p == unmeasured {
		return meter.Usage{}, nil
	}
	return p.Usage()
}

func (m *run) perProxy(n int64) float64 { return float64(n) / float64(m.cell.proxies) }

// expected returns the responses that proxies must receive after a change, and the types that
// the server may send.
func expected(kind string, v protocol.Variant, mark []byte) (is []fleet.Expectation, types []string) {
	routes := []string{fleet.RouteType, fleet.VirtualHostType}
	of := func(types ...string) fleet.Expectation { return fleet.Expectation{Types: types, Mark: mark} }
	everything := append(routes, fleet.ClusterType, fleet.EndpointType, fleet.ListenerType)
	switch kind {
	case "endpoint":
		return []fleet.Expectation{of(fleet.EndpointType)}, []string{fleet.EndpointType}
	case "routes":
		return []fleet.Expectation{of(routes...)}, routes
	case "rule": // a changed cluster makes its endpoints be sent again
		return []fleet.Expectation{of(fleet.ClusterType)}, []string{fleet.ClusterType, fleet.EndpointType}
	case "secret":
		return []fleet.Expectation{of(fleet.SecretType)}, []string{fleet.SecretType}
	case "policy":
		return []fleet.Expectation{of(fleet.ExtensionType)}, []string{fleet.ExtensionType}
	case "new":
		return []fleet.Expectation{of(fleet.ClusterType), of(fleet.EndpointType), of(routes...)}, everything
	case "deleted":
		gone := of(fleet.ClusterType)
		gone.Absent = v == protocol.StateOfTheWorld
		return []fleet.Expectation{gone}, everything
	}
	panic("no such change: " + kind)
}

// makeChange returns a change of a kind; n makes each a different one.
func makeChange(mesh refmesh.Mesh, kind string, n int) refmesh.Change {
	return changeOf(mesh, kind, refmesh.Target, n)
}

// changeOf returns a change of a kind, of a service if it concerns one.
func changeOf(mesh refmesh.Mesh, kind string, service, n int) refmesh.Change {
	switch kind {
	case "endpoint":
		return mesh.ChangeEndpoint(service, n)
	case "routes":
		return mesh.ChangeRoutes(service, n)
	case "rule":
		return mesh.ChangeRule(service, n)
	case "secret":
		return mesh.ChangeSecret(n + 1)
	case "policy":
		return mesh.ChangePolicy(n)
	case "new":
		return mesh.NewService(n)
	case "deleted":
		return mesh.DeleteService(n)
	}
	panic("no such change: " + kind)
}

// changed has the results of the repetitions of a change.
type changed struct {
	took   []time.Duration // of each proxy and repetition
	p99s   []time.Duration // of each repetition
	cpu    time.Duration   // of all
	later  time.Duration   // with what followed before the next
	own    time.Duration   // of this process, whose proxies took them
	counts fleet.Counts    // of all
	reps   int
}

// pause is the silence after which a change is over. Within cleaned a server collects its
// garbage. After that it is left alone for some more time, in which it writes statuses.
const pause, cleaned = 100 * time.Millisecond, 400 * time.Millisecond

// change measures changes of a kind, one after another. The first warms up, and is not counted.
func (m *run) change(ctx context.Context, kind string) error {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	profiled := func() error { return nil }
	var all changed
	for n := range m.reps + 1 {
		change := makeChange(m.cell.mesh, kind, n)
		if n == 1 {
			profiled = m.startProfile(ctx, kind, time.Duration(m.reps)*(pause+cleaned+m.rest))
		}
		m.record.reset()
		err := m.once(ctx, m.fleet, m.server.Process, kind, change.Mark, &all, func() error { return m.server.apply(ctx, change) })
		if err != nil {
			return err
		}
		if n == 0 {
			all = changed{}
		}
		m.marks[kind], m.floor.Changes[kind] = change, m.record.all()
	}
	m.addChange(kind, kind, all, m.add)
	each := func(d time.Duration) string { return seconds.text(d.Seconds() / float64(all.reps)) }
	m.note("%s: %s of CPU with all that follows within %s, and %s of the simulated proxies", kind, each(all.later), cleaned+m.rest, each(all.own))
	return profiled()
}

// once makes one change and waits until all proxies have it, nothing more comes, and the server
// is idle again.
func (m *run) once(ctx context.Context, f *fleet.Fleet, p meter.Process, kind string, mark []byte, to *changed, do func() error) error {
	expect, _ := expected(kind, m.cell.variant, mark)
	receipt := f.Expect(expect...)
	counts := f.Counts()
	before, err := p.CPU()
	own, err2 := self.CPU()
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	times, err := receipt.Await(ctx)
	if err != nil {
		return err
	}
	if err := f.AwaitSilence(ctx, pause); err != nil {
		return err
	}
	ownAfter, err := self.CPU()
	if err != nil {
		return err
	}
	to.own += ownAfter - own
	runtime.GC() // of this process
	if err := wait(ctx, cleaned); err != nil {
		return err
	}
	after, err := p.CPU()
	if err := errors.Join(err, wait(ctx, m.rest)); err != nil {
		return err
	}
	later, err := p.CPU()
	took := make([]time.Duration, 0, len(times))
	for _, at := range times {
		took = append(took, at.Sub(began))
	}
	to.took, to.p99s = append(to.took, took...), append(to.p99s, quantile(took, 0.99))
	to.cpu += after - before
	to.later += later - before
	to.counts = to.counts.Plus(f.Counts().Since(counts))
	to.reps++
	return err
}

// addChange adds the results of a change of a kind as figures of a name.
func (m *run) addChange(name, kind string, c changed, add adding) {
	_, types := expected(kind, m.cell.variant, nil)
	var other int64
	for typeURL, n := range c.counts {
		if !slices.Contains(types, typeURL) {
			other += n.Messages
		}
	}
	reps := float64(c.reps)
	add(median(name), seconds, quantile(c.took, 0.5).Seconds())
	add(p99(name), seconds, quantile(c.took, 0.99).Seconds())
	add(usual(name), seconds, quantile(c.p99s, 0.5).Seconds())
	add(changeCPU(name), seconds, c.cpu.Seconds()/reps)
	add(bytesOf(name), bytes, m.perProxy(c.counts.Total().Bytes)/reps)
	add(others(name), count, m.perProxy(other)/reps)
}

// quantile returns a quantile of the times, of which there must be some. It sorts them.
func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

// quiet measures an idle server.
func (m *run) quiet(ctx context.Context) error {
	store, err := m.server.storeCPU()
	before, err2 := m.server.CPU()
	began := time.Now()
	profiled := m.startProfile(ctx, "quiet", m.idle)
	if err := errors.Join(err, err2, wait(ctx, m.idle), profiled()); err != nil {
		return err
	}
	after, err := m.server.CPU()
	storeAfter, err2 := m.server.storeCPU()
	took := time.Since(began)
	m.add(quietCPU, share, float64(after-before)/float64(took))
	m.note("while quiet the process of the store took %.2f %% of a core besides", 100*float64(storeAfter-store)/float64(took))
	return errors.Join(err, err2)
}

// connections measures the memory of a connection: what the server has in use with all proxies,
// minus that with a quarter of them, after garbage collection.
func (m *run) connections(ctx context.Context) error {
	few := max(m.cell.proxies/4, 1)
	var held [2]int64
	for i, part := range []struct{ first, proxies int }{{0, few}, {few, m.cell.proxies - few}} {
		over, err := m.over(part.first, part.proxies)
		if err != nil {
			return err
		}
		f, stop := follow(ctx, fleet.Options{
			Address: m.server.xds, TLS: over, Proxies: part.proxies, Variant: m.cell.variant, Node: m.node(m.cell, part.first),
		})
		defer stop()
		limit, cancel := context.WithTimeout(ctx, m.timeout)
		_, err = f.AwaitSync(limit, m.silence)
		cancel()
		if err != nil {
			return err
		}
		if held[i], err = m.server.memory(ctx); err != nil {
			return err
		}
	}
	m.add(connectionMemory, bytes, float64(held[1]-held[0])/float64(m.cell.proxies-few))
	m.note("%s in use with %d proxies, %s with %d", size(float64(held[0])), few, size(float64(held[1])), m.cell.proxies)
	return nil
}

// startProfile profiles the server if the options want it.
func (m *run) startProfile(ctx context.Context, what string, length time.Duration) (wait func() error) {
	if m.profiles == "" {
		return func() error { return nil }
	}
	name := strings.NewReplacer(":", "-", "/", "-").Replace(m.cell.name) + "-" + what + ".prof"
	return m.server.profile(ctx, filepath.Join(m.profiles, name), cmp.Or(length, time.Second))
}

// recorder keeps the responses to the first proxy.
type recorder struct {
	mu   sync.Mutex // guards sent
	sent []recorded
}

type recorded struct {
	typeURL string
	bytes   []byte
}

func (r *recorder) take(typeURL string, response []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, recorded{typeURL, slices.Clone(response)})
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = nil
}

// all returns everything since reset.
func (r *recorder) all() (out [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.sent {
		out = append(out, one.bytes)
	}
	return out
}

// byType returns everything since reset, by type URL.
func (r *recorder) byType() map[string][][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string][][]byte{}
	for _, one := range r.sent {
		out[one.typeURL] = append(out[one.typeURL], one.bytes)
	}
	return out
}
