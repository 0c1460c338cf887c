package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Addresses of the quickstart. The demo has free ports in place of all that it names.
const (
	server       = "http://127.0.0.1:15080"
	gatewayAdmin = "127.0.0.1:15000"
	sidecarAdmin = "127.0.0.1:15002"
)

// play shows all steps. A failed command ends it; a claim that does not hold does not.
func (d *demo) play() {
	d.say("One control plane, two stock Envoys, three instances of a service, on free ports of")
	d.say("127.0.0.1. You can type every command below in another terminal, after:")
	d.say("$ export DEMO=%s", d.dir)
	d.typed("export PORTOLAN_SERVER=" + server)
	for _, name := range []string{"shop.yaml", "even.yaml", "fewer.yaml"} {
		text, err := os.ReadFile("examples/quickstart/" + name)
		d.must(err)
		d.must(os.WriteFile(filepath.Join(d.dir, name), []byte(d.free.Replace(string(text))), 0o600))
	}

	d.step("The control plane, with an etcd of its own, on an empty store")
	killPortolan := d.serve()

	d.step("A service in two versions: v1 once, v2 twice")
	d.show("go build -o $DEMO/reviews ./examples/quickstart/service")
	d.start("reviews-1", "$DEMO/reviews --version v1 --address 127.0.0.1:9001")
	d.start("reviews-2", "$DEMO/reviews --version v2 --address 127.0.0.1:9002")
	killInstance := d.start("reviews-3", "$DEMO/reviews --version v2 --address 127.0.0.1:9003")

	d.step("Its configuration in Istio's API: four objects, one change, one revision of the store")
	d.show("bin/portolan apply -f $DEMO/shop.yaml")

	d.step("A gateway and a sidecar: stock Envoys that know who they are and where the control plane is")
	d.startProxy("gateway", "edge", "10.0.0.1", gatewayAdmin)
	d.startProxy("sidecar", "client", "10.0.0.2", sidecarAdmin)
	d.showProxies()

	d.step("Traffic through both, counted from here to the end: 90 % to v1")
	d.startTraffic("gateway", "http://127.0.0.1:8080/")
	d.startTraffic("sidecar", "http://127.0.0.1:9080/")
	d.showTraffic(90)

	d.step("Half and half")
	d.apply("even.yaml")
	d.showTraffic(50)

	d.step("An instance of v2 dies, and then its endpoint is deleted")
	killInstance("v2 on port 9003")
	sent := byType(d.apply("fewer.yaml"), "portolan_xds_responses_total")
	d.claim(strings.HasPrefix(sent, "EDS ") && !strings.Contains(sent, ","), "sent for it: %s, and nothing else", sent)
	d.showTraffic(50)

	d.step("Anna and Ben edit the same object; both read it as it is now")
	d.show("bin/portolan get vs/reviews -n shop -o yaml > $DEMO/reviews.yaml")
	const setWeights = "sed '/subset: v1/{n;s/50/%d/;};/subset: v2/{n;s/50/%d/;}' $DEMO/reviews.yaml > $DEMO/%s.yaml"
	d.show(fmt.Sprintf(setWeights, 20, 80, "anna"))
	d.show(fmt.Sprintf(setWeights, 70, 30, "ben"))
	d.say("Anna makes it 20/80 and applies; Ben made it 70/30, without knowing:")
	d.apply("anna.yaml")
	const conflict = 75
	code := d.show("bin/portolan apply -f $DEMO/ben.yaml", conflict)
	d.claim(code == conflict, "exit code %d: Ben's file says which version he read, so Anna's change is not lost", code)
	d.showTraffic(20)

	d.step("The object: its resourceVersion is the revision of etcd that wrote it")
	d.show("bin/portolan get vs/reviews -n shop -o yaml")

	d.step("The control plane is killed; traffic does not notice")
	killPortolan("portolan")
	d.showTraffic(20)

	d.step("It starts again on the same data: the proxies have everything already")
	before := [][]string{d.held(gatewayAdmin), d.held(sidecarAdmin)}
	d.serve()
	d.showProxies()
	for i, after := range [][]string{d.held(gatewayAdmin), d.held(sidecarAdmin)} {
		same := len(after) > 0 && slices.Equal(before[i], after)
		d.claim(same, "%s %d resources, of the same versions and taken before the restart", d.traffic[i].name, len(after))
	}
	sent = byType(d.metrics(), "portolan_xds_resources_sent_total")
	d.claim(sent == "nothing", "sent since the restart: %s", sent)
	d.showTraffic(20)

	d.step("In all")
	for _, c := range d.traffic {
		sum := c.since(tally{})
		d.claim(sum.failed == 0, "%s  %s", c.name, sum)
	}
}

// whatNext shows what a user may try while everything runs, until ctx ends.
func (d *demo) whatNext(ctx context.Context) {
	d.step("What to try next, in another terminal (with the two exports from the top)")
	d.typed("curl -H 'Host: " + serviceHost + "' http://127.0.0.1:8080/")
	d.typed("bin/portolan get serviceentries,virtualservices,destinationrules,gateways -A")
	d.typed("bin/portolan apply -f $DEMO/shop.yaml     # edit the weights first, and watch the counter")
	d.typed("bin/portolan proxy status")
	d.typed("curl -s $PORTOLAN_SERVER/apis/networking.istio.io/v1/namespaces/shop/virtualservices/reviews")
	d.typed(`curl -sN "$PORTOLAN_SERVER/apis/networking.istio.io/v1/virtualservices?watch=true"`)
	d.say("examples/quickstart has the files, with fixed ports. Everything runs until Ctrl-C.")
	for tick := time.Tick(500 * time.Millisecond); ctx.Err() == nil; {
		d.live()
		select {
		case <-ctx.Done():
		case <-tick:
		}
	}
}

// serve starts the control plane and waits until it is ready.
func (d *demo) serve() (kill func(what string)) {
	began := time.Now()
	kill = d.start("portolan", "bin/portolan serve --data-dir $DEMO/data --api-address 127.0.0.1:15080 --xds-address 127.0.0.1:15010")
	d.awaitAnswer("the control plane is ready", "", server+"/readyz")
	d.say("ready after %d ms", time.Since(began).Milliseconds())
	return kill
}

// startProxy starts an Envoy and waits until it is ready.
func (d *demo) startProxy(kind, name, ip, admin string) {
	d.show(fmt.Sprintf("bin/portolan bootstrap --type %s --name %s -n shop --ip %s --labels app=%[2]s"+
		" --xds-address 127.0.0.1:15010 --admin-address %[4]s > $DEMO/%[2]s-envoy.yaml", kind, name, ip, admin))
	d.start("envoy-"+name, ".tools/envoy -c $DEMO/"+name+"-envoy.yaml --disable-hot-restart --concurrency 1 --log-level warning")
	d.awaitAnswer(name+" is ready", "", "http://"+admin+"/ready")
}

// showProxies shows both proxies as soon as they are in step: they have clusters, endpoints,
// listeners and routes, and whatever else they need.
func (d *demo) showProxies() {
	inStep := regexp.MustCompile(`(?m)^\S+ +\S+ +shop( +SYNCED( \S+)?){4}( +(SYNCED( \S+)?|NOT SENT))+ +\d`)
	const command = "bin/portolan proxy status"
	d.typed(command)
	var out []byte
	d.await("two proxies are in step", func() error {
		out, _ = d.command(d.ctx, command).CombinedOutput() // also what is wrong
		if len(inStep.FindAll(out, -1)) != 2 {
			return fmt.Errorf("it says\n%s", out)
		}
		return nil
	})
	d.quote(out)
}

// startTraffic starts to send requests through a proxy as soon as it answers one.
func (d *demo) startTraffic(proxy, url string) {
	d.typed("curl -H 'Host: " + serviceHost + "' " + url)
	d.awaitAnswer("the first request through the "+proxy, serviceHost, url)
	c := &counter{name: proxy, url: d.free.Replace(url)}
	d.traffic = append(d.traffic, c)
	d.running.Go(func() { c.run(d.life) })
}

// awaitAnswer waits until a URL answers 200.
func (d *demo) awaitAnswer(what, host, url string) {
	d.await(what, func() error {
		_, err := get(d.ctx, host, d.free.Replace(url))
		return err
	})
}

// apply applies a file and shows how long both proxies took to acknowledge it. It returns how
// much the metrics of the server have grown.
func (d *demo) apply(file string) map[string]float64 {
	before, began := d.metrics(), time.Now()
	d.show("bin/portolan apply -f $DEMO/" + file + " --wait --min-proxies 2")
	took := time.Since(began)
	grown := d.metrics()
	for series, value := range before {
		grown[series] -= value
	}
	text := fmt.Sprintf("acknowledged by both proxies %d ms after Enter", took.Milliseconds())
	if n := grown["portolan_apply_to_ack_seconds_count"]; n > 0 {
		text += fmt.Sprintf("; from the store's commit to a proxy's ACK %.1f ms", 1000*grown["portolan_apply_to_ack_seconds_sum"]/n)
	}
	d.say("%s", text)
	return grown
}

func (d *demo) metrics() map[string]float64 {
	text, err := get(d.ctx, "", d.free.Replace(server+"/metrics"))
	d.must(err)
	series := map[string]float64{}
	for _, match := range regexp.MustCompile(`(?m)^(portolan_\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		series[match[1]], err = strconv.ParseFloat(match[2], 64)
		d.must(err)
	}
	return series
}

// byType formats a metric that counts by type of resource, as in "EDS 2, RDS 1".
func byType(series map[string]float64, name string) string {
	var parts []string
	for labeled, n := range series {
		if kind, ok := strings.CutPrefix(labeled, name+`{type="`); ok && n != 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f", strings.TrimSuffix(kind, `"}`), n))
		}
	}
	slices.Sort(parts)
	return cmp.Or(strings.Join(parts, ", "), "nothing")
}

// held returns the resources that an Envoy has from the control plane, each with its version
// and since when.
func (d *demo) held(admin string) (resources []string) {
	text, err := get(d.ctx, "", d.free.Replace("http://"+admin+"/config_dump"))
	d.must(err)
	var dump struct{ Configs []map[string]any }
	d.must(json.Unmarshal([]byte(text), &dump))
	for _, section := range dump.Configs {
		for key, value := range section {
			if entries, ok := value.([]any); ok && strings.HasPrefix(key, "dynamic_") {
				for _, entry := range entries {
					resources = append(resources, fmt.Sprint(entry)) // maps in the order of their keys
				}
			}
		}
	}
	slices.Sort(resources)
	return resources
}
