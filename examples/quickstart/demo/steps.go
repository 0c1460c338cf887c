package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

func (d *demo) startControlPlane(ctx context.Context) error {
	d.console.step("The control plane, with an etcd of its own, on an empty store")
	return d.serve(ctx)
}

func (d *demo) startService(ctx context.Context) error {
	d.console.step("A service in two versions: v1 once, v2 twice")
	d.console.typed("go build -o $DEMO/reviews ./" + quickstart + "/service")
	build := exec.CommandContext(ctx, "go", "build", "-o", d.path("reviews"), "./"+quickstart+"/service")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the service: %w: %s", err, out)
	}
	for i, version := range []string{"v1", "v2", "v2"} {
		address := local(d.ports.instances[i])
		d.console.typed(fmt.Sprintf("$DEMO/reviews --version %s --address %s &", version, address))
		p, err := launch(d.dir, fmt.Sprintf("reviews-%d", i+1), d.path("reviews"), "--version", version, "--address", address)
		if err != nil {
			return err
		}
		d.instances = append(d.instances, p)
	}
	return nil
}

func (d *demo) applyShop(ctx context.Context) error {
	d.console.step("Its configuration in Istio's API: four objects, one change, one revision of the store")
	return d.show(ctx, "apply", "-f", "$DEMO/shop.yaml")
}

func (d *demo) startProxies(ctx context.Context) error {
	d.console.step("A gateway and a sidecar: stock Envoys that know who they are and where the control plane is")
	for i, who := range []identity{
		{name: "edge", kind: "gateway", ip: "10.0.0.1", labels: "app=edge"},
		{name: "client", kind: "sidecar", ip: "10.0.0.2", labels: "app=client"},
	} {
		p, err := d.startProxy(ctx, who, d.ports.admin[i])
		if err != nil {
			return err
		}
		d.proxies = append(d.proxies, p)
	}
	return d.showProxies(ctx)
}

func (d *demo) startTraffic(ctx context.Context) error {
	d.console.step("Traffic through both, counted from here to the end: 90 %% to v1")
	for _, port := range []int{d.ports.gateway, d.ports.service} {
		d.console.typed(fmt.Sprintf("curl -H 'Host: %s' http://%s/", serviceHost, local(port)))
		if err := d.await(ctx, "the first request", func() error {
			_, err := get(ctx, serviceHost, "http://"+local(port)+"/")
			return err
		}); err != nil {
			return err
		}
	}
	d.count(ctx)
	return d.showTraffic(ctx, 90)
}

func (d *demo) splitEvenly(ctx context.Context) error {
	d.console.step("Half and half")
	if _, err := d.apply(ctx, "even.yaml"); err != nil {
		return err
	}
	return d.showTraffic(ctx, 50)
}

func (d *demo) loseBackend(ctx context.Context) error {
	d.console.step("An instance of v2 dies, and then its endpoint is deleted")
	dying := d.instances[2]
	d.console.typed(fmt.Sprintf("kill -9 %d    # v2 on port %d", dying.pid(), d.ports.instances[2]))
	dying.kill()
	grown, err := d.apply(ctx, "fewer.yaml")
	if err != nil {
		return err
	}
	sent := byType(grown, "portolan_xds_responses_total")
	d.claim(strings.HasPrefix(sent, "EDS ") && !strings.Contains(sent, ","), "sent for it: %s, and nothing else", sent)
	return d.showTraffic(ctx, 50)
}

func (d *demo) twoEditors(ctx context.Context) error {
	d.console.step("Anna and Ben edit the same object; both read it as it is now")
	document, err := d.output(ctx, "get", "vs/reviews", "-n", "shop", "-o", "yaml")
	if err != nil {
		return err
	}
	for name, weights := range map[string][2]string{"anna": {"20", "80"}, "ben": {"70", "30"}} {
		text := setWeights(document, weights)
		if text == document {
			return fmt.Errorf("the object has no weights to edit:\n%s", document)
		}
		if err := os.WriteFile(d.path(name+".yaml"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	d.console.typed("bin/portolan get vs/reviews -n shop -o yaml | tee $DEMO/anna.yaml > $DEMO/ben.yaml")
	d.console.say("Anna makes it 20/80 and applies; Ben made it 70/30, without knowing:")
	if _, err := d.apply(ctx, "anna.yaml"); err != nil {
		return err
	}
	args := []string{"apply", "-f", "$DEMO/ben.yaml"}
	d.console.typed(d.commandText(args))
	ben := d.command(ctx, args...)
	out, _ := ben.CombinedOutput() // the exit code shows failures
	d.console.quote(strings.ReplaceAll(string(out), d.dir, "$DEMO"))
	const conflict = 75
	code := ben.ProcessState.ExitCode()
	d.claim(code == conflict, "exit code %d: Ben's file says which version he read, so Anna's change is not lost", code)
	return d.showTraffic(ctx, 20)
}

// setWeights replaces the weights of a VirtualService with two destinations.
func setWeights(document string, weights [2]string) string {
	parts := strings.SplitN(document, "weight: 50", 3)
	if len(parts) != 3 {
		return document
	}
	return parts[0] + "weight: " + weights[0] + parts[1] + "weight: " + weights[1] + parts[2]
}

func (d *demo) showObject(ctx context.Context) error {
	d.console.step("The object: its resourceVersion is the revision of etcd that wrote it")
	return d.show(ctx, "get", "vs/reviews", "-n", "shop", "-o", "yaml")
}

func (d *demo) killControlPlane(ctx context.Context) error {
	d.console.step("The control plane is killed; traffic does not notice")
	d.console.typed(fmt.Sprintf("kill -9 %d    # portolan", d.portolan.pid()))
	d.portolan.kill()
	return d.showTraffic(ctx, 20)
}

func (d *demo) restartControlPlane(ctx context.Context) error {
	d.console.step("It starts again on the same data: the proxies have everything already")
	before, err := d.held(ctx)
	if err != nil {
		return err
	}
	if err := d.serve(ctx); err != nil {
		return err
	}
	if err := d.showProxies(ctx); err != nil {
		return err
	}
	after, err := d.held(ctx)
	if err != nil {
		return err
	}
	for i, p := range d.proxies {
		same := len(after[i]) > 0 && slices.Equal(before[i], after[i])
		d.claim(same, "%-8s%d resources, of the same versions and taken before the restart", p.name, len(after[i]))
	}
	counted, err := d.metrics(ctx)
	if err != nil {
		return err
	}
	sent := byType(counted, "portolan_xds_resources_sent_total")
	d.claim(sent == "nothing", "sent since the restart: %s", sent)
	return d.showTraffic(ctx, 20)
}

// total shows the sums of the counters at the end.
func (d *demo) total(context.Context) error {
	d.console.step("In all")
	for _, c := range d.traffic {
		sum := c.since(tally{})
		d.claim(sum.failed == 0, "%s  %s", c.name, sum)
	}
	return nil
}

// whatNext shows what a user may try while everything runs, until ctx ends.
func (d *demo) whatNext(ctx context.Context) {
	d.console.step("What to try next, in another terminal (with the two exports from the top)")
	for _, command := range []string{
		fmt.Sprintf("curl -H 'Host: %s' http://%s/", serviceHost, local(d.ports.gateway)),
		"bin/portolan get serviceentries,virtualservices,destinationrules,gateways -A",
		"bin/portolan apply -f $DEMO/shop.yaml     # edit the weights first, and watch the counter",
		"bin/portolan proxy status",
		fmt.Sprintf("curl -s %s/apis/networking.istio.io/v1/namespaces/shop/virtualservices/reviews", d.server()),
		fmt.Sprintf("curl -sN '%s/apis/networking.istio.io/v1/virtualservices?watch=true'", d.server()),
	} {
		d.console.typed(command)
	}
	d.console.say("examples/quickstart has the files, with fixed ports. Everything runs until Ctrl-C.")
	for tick := time.Tick(500 * time.Millisecond); ctx.Err() == nil; {
		d.console.live(d.traffic)
		select {
		case <-ctx.Done():
		case <-tick:
		}
	}
}
