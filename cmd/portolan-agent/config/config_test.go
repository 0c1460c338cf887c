package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
)

const good = `
api: [https://mesh.example.com:15080]
xds: [mesh.example.com:15012]
proxy: {type: sidecar, name: web, namespace: shop, serviceAccount: web, ips: [10.0.0.1]}
state: /var/lib/portolan-agent
run: /run/portolan-agent
`

func read(t *testing.T, text string) (config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Read(file)
}

// TestRead: what is written is read back, with the defaults.
func TestRead(t *testing.T) {
	t.Parallel()
	c, err := read(t, good)
	if err != nil {
		t.Fatal(err)
	}
	if c.LastGood.After.Duration != 5*time.Second || c.LastGood.MaxAge.Duration != 24*time.Hour || c.Envoy.Path != "envoy" || c.XDSSocket() != "/run/portolan-agent/xds.sock" {
		t.Errorf("it is %+v", c)
	}
	file := filepath.Join(t.TempDir(), "new", "c.yaml")
	if err := c.Write(file); err != nil {
		t.Fatal(err)
	}
	again, err := config.Read(file)
	if diff := cmp.Diff(c, again); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestFaults come all at once, with field and mend.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"an unknown field": {good + "sate: /x\n", []string{`unknown field "sate"`}},
		"many": {"api: [http://a]\nxds: [a]\nstate: x\nproxy: {type: waypoint, ips: [b]}\nlastGood: {after: -1s}\n", []string{
			`api[0] "http://a": give a URL`, `xds[0] "a": give host:port`, `state "x": give the absolute path`, `run "": give`, "lastGood.after -1s: give a time", `type "waypoint": use sidecar or router`, `ip "b": not an IP address`,
		}},
		"nothing": {"{}", []string{"api: is missing", "xds: is missing"}},
	} {
		_, err := read(t, c.text)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v says nothing of %q", name, err, want)
			}
		}
	}
	if _, err := config.Read(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "portolan-agent join") {
		t.Errorf("no file: %v", err)
	}
}

// TestDNS: the section says all of the DNS server. The rules of capture and the metadata of the proxy
// follow from it.
func TestDNS(t *testing.T) {
	t.Parallel()
	const captured = "capture: {proxyUser: '1337', dns: {resolvers: [10.0.0.53]}}\n"
	intercepting := strings.Replace(good, "ips: [10.0.0.1]", "ips: [10.0.0.1], interception: REDIRECT", 1)
	c, err := read(t, intercepting+captured+"dns: {addresses: ['127.0.0.1:5353', '[::1]:5353'], resolvers: [10.0.0.2, '10.0.0.3:5300', 'fd00::2'], cache: -1}\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(capture.DNS{Port: 5353, Resolvers: []string{"10.0.0.53"}}, c.Rules().DNS); diff != "" {
		t.Errorf("the rules (-want +got):\n%s", diff)
	}
	if o := c.Nameserver(); fmt.Sprint(o.Resolvers) != "[10.0.0.2:53 10.0.0.3:5300 [fd00::2]:53]" || o.Cache != -1 || o.Table.Namespace != "shop" || o.Table.Domain != "cluster.local" {
		t.Errorf("the options are %+v", o)
	}
	if !c.Bootstrap().DNSCapture || c.GRPC().DNSCapture {
		t.Error("the proxy alone has DNS_CAPTURE")
	}
	if c, err = read(t, intercepting+captured+"dns: {}\n"); err != nil || c.Rules().DNS.Port != capture.DefaultDNSPort {
		t.Errorf("by default it is %+v, %v", c.Rules().DNS, err)
	}
	if c, err = read(t, good); err != nil || c.Bootstrap().DNSCapture {
		t.Errorf("without the section: %v", err)
	}
	for text, want := range map[string][]string{
		"dns: {adresses: []}\n": {`unknown field "adresses"`},
		captured + "dns: {addresses: [localhost:53, '127.0.0.1:53', '127.0.0.1:54', '127.0.0.1:0'], resolvers: [a, '10.0.0.1:0', 127.0.0.1], cache: -2}\n": {
			`dns.addresses[0] "localhost:53": give ADDRESS:PORT`, `dns.addresses[2] "127.0.0.1:54": give all the same port`, `dns.addresses[3] "127.0.0.1:0": give`,
			`dns.resolvers[0] "a": give the address`, `dns.resolvers[1] "10.0.0.1:0": give`, `dns.resolvers[2] "127.0.0.1": is this server itself`, "dns.cache -2: give",
		},
		strings.Replace(captured, "{resolvers", "{port: 53, resolvers", 1) + "dns: {}\n": {"capture.dns.port: follows from dns.addresses"},
	} {
		_, err := read(t, intercepting+text)
		for _, word := range want {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v says nothing of %q", text, err, word)
			}
		}
	}
	if _, err := read(t, strings.Replace(good, "sidecar", "router", 1)+"dns: {}\n"); err == nil || !strings.Contains(err.Error(), "dns: only a sidecar") {
		t.Errorf("a router: %v", err)
	}
}
