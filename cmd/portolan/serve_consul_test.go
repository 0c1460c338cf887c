package main

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestConsulFlags: the command reports all faults of Consul's flags at once.
func TestConsulFlags(t *testing.T) {
	t.Setenv("CONSUL_HTTP_TOKEN", "")
	dir := clitest.Write(t, map[string]string{"empty": "\n", "ca.pem": "no PEM", "token": "hunter2\n"})
	tests := map[string]struct{ args, says []string }{
		"without an address": {
			[]string{"--consul-token-file", "x", "--consul-domain", "y"},
			[]string{"2 faults:", "--consul-token-file: is of no use without --consul-address", "--consul-domain: is of no use"},
		},
		"no URL": {
			[]string{"--consul-address", "127.0.0.1:8500"}, []string{"is not http://HOST:PORT or https://HOST:PORT"},
		},
		"names and numbers": {
			[]string{"--consul-address", "http://127.0.0.1:1", "--consul-domain", "a..b", "--consul-namespace", "a.b", "--consul-max-queries", "2", "--consul-reset-hold", "0s"},
			[]string{`"a..b" is not a DNS name`, `"a.b" is not a DNS label`, "2 is too few", "--consul-reset-hold: 0s"},
		},
		"files of plaintext": {
			[]string{"--consul-address", "http://127.0.0.1:1", "--consul-server-name", "x"}, []string{"is of plaintext, which has no use for"},
		},
		"files": {
			[]string{"--consul-address", "https://127.0.0.1:1", "--consul-ca", dir + "/ca.pem"}, []string{"there is no certificate in PEM in it"},
		},
		"half a pair": {
			[]string{"--consul-address", "https://127.0.0.1:1", "--consul-cert", "x"}, []string{"--consul-cert: goes with --consul-key"},
		},
		"an empty token": {
			[]string{"--consul-address", "http://127.0.0.1:1", "--consul-token-file", dir + "/empty"}, []string{"--consul-token-file", dir + "/empty is empty"},
		},
		"a token in plaintext": {
			[]string{"--consul-address", "http://10.0.0.5:8500", "--consul-token-file", dir + "/token"},
			[]string{"the token would go to http://10.0.0.5:8500 in plaintext: use https://"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := do(t, "", append([]string{"serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0"}, test.args...)...)
			if o.Code != exit.Usage || strings.Contains(o.Err, "hunter2") {
				t.Errorf("%+v", o)
			}
			for _, words := range test.says {
				if !strings.Contains(o.Err, words) {
					t.Errorf("%q does not say %q", o.Err, words)
				}
			}
		})
	}
}
