package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
)

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
