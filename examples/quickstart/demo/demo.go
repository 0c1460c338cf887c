package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Paths from the root of the repository.
const (
	portolanBinary = "bin/portolan"
	envoyBinary    = ".tools/envoy"
	quickstart     = "examples/quickstart"
	serviceHost    = "reviews.shop.example"
)

// demo is a run of the demonstration.
type demo struct {
	console *console
	dir     string // directory of all files that it writes
	ports   ports

	portolan  *process
	instances []*process // v1, v2, v2
	proxies   []*proxy   // the gateway, the sidecar
	traffic   []*counter // traffic through each proxy
	endCount  func()     // ends traffic
	broken    []string   // claims that did not hold
}

// ports holds ports of 127.0.0.1.
type ports struct {
	api, xds         int
	gateway, service int
	instances        [3]int
	admin            [2]int
}

func newDemo(c *console) (*demo, error) {
	if err := needFiles(portolanBinary, envoyBinary, quickstart); err != nil {
		return nil, err
	}
	free, err := freePorts(9)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "portolan-demo-")
	if err != nil {
		return nil, err
	}
	d := &demo{
		console: c, dir: dir,
		ports: ports{
			api: free[0], xds: free[1], gateway: free[2], service: free[3],
			instances: [3]int{free[4], free[5], free[6]}, admin: [2]int{free[7], free[8]},
		},
		endCount: func() {},
	}
	return d, d.copyExamples()
}

// copyExamples copies the YAML files of the quickstart into the demo's directory, and replaces
// their ports by free ones.
func (d *demo) copyExamples() error {
	toFree := strings.NewReplacer(
		"8080", strconv.Itoa(d.ports.gateway), "9080", strconv.Itoa(d.ports.service),
		"9001", strconv.Itoa(d.ports.instances[0]), "9002", strconv.Itoa(d.ports.instances[1]), "9003", strconv.Itoa(d.ports.instances[2]),
	)
	files, err := filepath.Glob(filepath.Join(quickstart, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(d.path(filepath.Base(file)), []byte(toFree.Replace(string(text))), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) path(name string) string { return filepath.Join(d.dir, name) }

// play shows all steps. An error ends it; a claim that does not hold does not.
func (d *demo) play(ctx context.Context) error {
	d.console.say("One control plane, two stock Envoys, three instances of a service, on free ports of")
	d.console.say("127.0.0.1. You can type every command below in another terminal, after:")
	d.console.typed("export DEMO=" + d.dir)
	d.console.typed("export PORTOLAN_SERVER=" + d.server())
	for _, step := range []func(context.Context) error{
		d.startControlPlane, d.startService, d.applyShop, d.startProxies, d.startTraffic,
		d.splitEvenly, d.loseBackend, d.twoEditors, d.showObject, d.killControlPlane, d.restartControlPlane, d.total,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// claim prints a claim of the demo, and remembers it if it does not hold.
func (d *demo) claim(holds bool, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if holds {
		d.console.say("%s", text)
		return
	}
	d.broken = append(d.broken, text)
	d.console.say("NOT SO: %s", text)
}

// await waits until check returns nil.
func (d *demo) await(ctx context.Context, what string, check func() error) error {
	limit := time.Now().Add(30 * time.Second)
	for range time.Tick(10 * time.Millisecond) {
		err := check()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(limit):
			return fmt.Errorf("%s: not within 30 s: %w", what, err)
		}
		d.console.live(d.traffic)
	}
	return nil
}

// count starts the counters, which run until endCount.
func (d *demo) count(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	d.traffic = []*counter{
		{name: "gateway", url: "http://" + local(d.ports.gateway) + "/"},
		{name: "sidecar", url: "http://" + local(d.ports.service) + "/"},
	}
	for _, c := range d.traffic {
		running.Go(func() { c.run(ctx) })
	}
	d.endCount = func() {
		cancel()
		running.Wait()
	}
}

// close ends everything that the demo started.
func (d *demo) close(keep bool) {
	d.endCount()
	for _, p := range d.proxies {
		p.stop()
	}
	for _, p := range d.instances {
		p.stop()
	}
	if d.portolan != nil {
		d.portolan.stop()
	}
	if keep {
		d.console.say("%d claims did not hold:", len(d.broken))
		for _, text := range d.broken {
			d.console.say("  - %s", text)
		}
		d.console.say("The logs are kept in %s", d.dir)
		return
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.console.say("%v", err)
	}
	d.console.say("Everything that the demo started has ended, and what it wrote is gone.")
}
