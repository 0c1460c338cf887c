package main

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestEndpointsFlags: the command reports all faults of the flags for endpoint files.
func TestEndpointsFlags(t *testing.T) {
	for name, test := range map[string]struct{ args, says []string }{
		"without a file": {
			[]string{"--endpoints-domain", "x", "--endpoints-namespace", "y", "--endpoints-service-label", "z"},
			[]string{"3 faults:", "--endpoints-domain: is of no use without --endpoints-file"},
		},
		"names": {
			[]string{"--endpoints-file", "a", "--endpoints-file", "a", "--endpoints-domain", "a..b", "--endpoints-namespace", "a.b"},
			[]string{`"a" is empty or there twice`, `"a..b" is not a DNS name`, `"a.b" is not a DNS label`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := do(t, "", append([]string{"serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0"}, test.args...)...)
			if o.Code != exit.Usage {
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
