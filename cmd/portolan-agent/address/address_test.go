package address

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOf: addresses, ranges and interfaces, in the order of the rules, or the way to a server.
func TestOf(t *testing.T) {
	t.Parallel()
	devices, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	loopback := ""
	for _, d := range devices {
		if d.Flags&net.FlagLoopback != 0 {
			loopback = d.Name
		}
	}
	for _, c := range []struct {
		name, server string
		rules        []string
		want         []string // the first ones
		fixed        bool
		fault        string
	}{
		{name: "no rule", server: "127.0.0.1:1", want: []string{"127.0.0.1"}},
		{name: "addresses", rules: []string{"10.0.0.9", "fd00::9"}, want: []string{"10.0.0.9", "fd00::9"}, fixed: true},
		{name: "a range", rules: []string{"127.0.0.0/8"}, want: []string{"127.0.0.1"}},
		{name: "an interface", rules: []string{loopback}, want: []string{"127.0.0.1"}},
		{name: "both", rules: []string{"10.0.0.9", "127.0.0.0/8"}, want: []string{"10.0.0.9", "127.0.0.1"}},
		{name: "a range of others", rules: []string{"203.0.113.0/24"}, fault: "address 203.0.113.0/24: the machine has no such address"},
		{name: "no interface", rules: []string{"nonesuch"}, fault: "address nonesuch: "},
		{name: "no server", server: "x", fault: "missing port"},
	} {
		got, err := Of(c.rules, c.server)
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || len(got) < len(c.want) {
			t.Errorf("%s: %v, %v", c.name, got, err)
			continue
		}
		if diff := cmp.Diff(c.want, got[:len(c.want)]); diff != "" || Fixed(c.rules) != c.fixed {
			t.Errorf("%s, fixed %t:\n%s", c.name, Fixed(c.rules), diff)
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for rule, ok := range map[string]bool{"10.0.0.1": true, "fd00::1": true, "10.0.0.0/8": true, "fd00::/8": true, "eth0": true, "eth0.100": true, "an-interface-of-too-many": false, "": false, "10.0.0": false, "10.0.0.0/99": false, "a b": false} {
		if err := Validate(rule); (err == nil) != ok {
			t.Errorf("%q: %v", rule, err)
		}
	}
}

// TestBeside: only addresses of the other family are beside known ones, and only at their interface.
func TestBeside(t *testing.T) {
	t.Parallel()
	has, err := matching("127.0.0.0/8")
	six, err6 := matching("::1/128")
	if err != nil || err6 != nil || len(has) == 0 || len(six) == 0 {
		t.Skipf("the loopback interface has %v and %v: %v, %v", has, six, err, err6)
	}
	if got := Beside([]string{"127.0.0.1"}); !slices.Contains(got, "::1") || slices.Contains(got, "127.0.0.1") {
		t.Errorf("beside 127.0.0.1 are %v", got)
	}
	for _, known := range [][]string{{"127.0.0.1", "::1"}, {"192.0.2.77"}, nil} {
		if got := Beside(known); len(got) > 0 {
			t.Errorf("beside %v are %v", known, got)
		}
	}
}
