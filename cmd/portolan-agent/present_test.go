package main

import (
	"strings"
	"testing"
)

// TestWhatJoinNamesIsThere: an address, an interface or an Envoy that the machine does not have is
// refused before the invitation is used.
func TestWhatJoinNamesIsThere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags joinFlags
		want  []string
	}{
		"nothing named":        {},
		"an address, an Envoy": {flags: joinFlags{ips: []string{"10.0.0.1"}, envoy: "sh"}},
		"no such interface":    {joinFlags{ips: []string{"eth99"}}, []string{"--ip: ", "eth99", "nothing has changed"}},
		"no such range":        {joinFlags{ips: []string{"203.0.113.0/30"}}, []string{"--ip: ", "203.0.113.0/30"}},
		"no such Envoy, too":   {joinFlags{ips: []string{"eth99"}, envoy: "/nope"}, []string{"--ip: ", "--envoy: ", "/nope"}},
	} {
		err := c.flags.present()
		if (err == nil) != (len(c.want) == 0) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, word := range c.want {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q is not in %v", name, word, err)
			}
		}
	}
}
