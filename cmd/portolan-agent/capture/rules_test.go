package capture_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
)

var update = flag.Bool("update", false, "write the golden files")

// TestScripts: the script of some rules is as in the golden file of their name.
func TestScripts(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]capture.Rules{
		"redirect": {Mode: capture.Redirect, ProxyUser: "1337"},
		"tproxy":   {Mode: capture.TProxy, ProxyUser: "1337"},
		"ipv4":     {Mode: capture.Redirect, ProxyUser: "1337", IPv4: true},
		"outbound": {Mode: capture.Redirect, ProxyUser: "1337", Inbound: capture.Inbound{Off: true}},
		"inbound":  {Mode: capture.Redirect, ProxyUser: "1337", Outbound: capture.Outbound{Off: true}},
		"nothing":  {Mode: capture.TProxy, ProxyUser: "1337", Outbound: capture.Outbound{Off: true}, Inbound: capture.Inbound{Off: true}},
		"all": {
			Mode: capture.Redirect, ProxyUser: "root", OutboundPort: 25001, InboundPort: 25006,
			Outbound: capture.Outbound{
				Ports: []string{"8080", "1000-1010", "1005-1020"}, ExceptPorts: []string{"9000", "8999"},
				Addresses: []string{"10.1.0.0/16", "10.0.0.0/8", "fd00::/8"}, ExceptAddresses: []string{"10.3.4.5/24", "2001:db8::1", "::ffff:192.0.2.1"},
			},
			Inbound:          capture.Inbound{Ports: []string{"22", "80", "8080-8090"}, ExceptPorts: []string{"8085"}},
			DNS:              capture.DNS{Port: capture.DefaultDNSPort, Resolvers: []string{"127.0.0.53", "10.0.0.53", "fd00::53"}},
			Except:           capture.Programs{Users: []string{"1000", "0"}, Groups: []string{"0"}, Cgroups: []string{"system.slice/backup.service", "a"}},
			ExceptInterfaces: []string{"docker0", "cni0"},
		},
	} {
		got, err := rules.Script()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		file := filepath.Join("testdata", name+".nft")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFaults: all faults of rules are told at once, each with its field.
func TestFaults(t *testing.T) {
	t.Parallel()
	err := capture.Rules{
		Mode: "redirect", OutboundPort: -1, InboundPort: 70000,
		Outbound: capture.Outbound{Ports: []string{"http", "0"}, Addresses: []string{"10.0.0"}, ExceptPorts: []string{"9-8"}, ExceptAddresses: []string{"example.com"}},
		Inbound:  capture.Inbound{Ports: []string{"65536"}, ExceptPorts: []string{"-"}},
		DNS:      capture.DNS{Port: 53},
		Except:   capture.Programs{Users: []string{"nobody-here"}, Groups: []string{"none-here"}, Cgroups: []string{"/system.slice", "a\"b"}},

		ExceptInterfaces: []string{"", "a name with spaces"},
	}.Validate()
	if err == nil {
		t.Fatal("the rules have no fault")
	}
	for _, want := range []string{
		`capture.mode: is "redirect"`, "capture.outboundPort: -1 is no port", "capture.inboundPort: 70000 is no port", "capture.proxyUser: is missing",
		`capture.outbound.ports: "http"`, `capture.outbound.ports: "0"`, `capture.outbound.addresses: "10.0.0"`, `capture.outbound.exceptPorts: "9-8"`,
		`capture.outbound.exceptAddresses: "example.com"`, `capture.inbound.ports: "65536"`, `capture.inbound.exceptPorts: "-"`, "capture.dns.resolvers: is missing",
		`capture.except.users: "nobody-here"`, `capture.except.groups: "none-here"`, `capture.except.cgroups: "/system.slice"`, `capture.except.cgroups: "a\"b"`,
		`capture.exceptInterfaces: ""`, `capture.exceptInterfaces: "a name with spaces"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the faults lack %s", want)
		}
	}
	if n := strings.Count(err.Error(), "\n\t*"); n != 18 {
		t.Errorf("there are %d faults, want 18:\n%v", n, err)
	}
}
