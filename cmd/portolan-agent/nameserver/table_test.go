package nameserver_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/nameserver"
)

// TestTableFollows: until it is told anything, all is forwarded. Then hosts come, change and go, and
// what cannot be read changes nothing.
func TestTableFollows(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	m := startMachine(t, func(o *nameserver.Options) { o.Cache = -1 }, u)
	m.expect("web.test.", dns.TypeA, "NOERROR 203.0.113.1")
	if s := m.Status(); !s.Since.IsZero() || s.Hosts != 0 {
		t.Errorf("the status is %+v", s)
	}
	m.table.Update(nil, []string{"names/web.test"})
	if m.Status().Since.IsZero() {
		t.Error("it was told something")
	}
	m.expect("web.test.", dns.TypeA, "NOERROR 203.0.113.1")
	m.table.Update(resources(t, hosts), nil)
	m.expect("web.test.", dns.TypeA, "NOERROR 10.9.0.1")
	if s := m.Status(); s.Hosts != len(hosts) || s.Mesh != 1 {
		t.Errorf("the status is %+v", s)
	}
	m.table.Update(resources(t, map[string][]string{"web.test": {"10.9.0.99", "nonsense", "::ffff:10.9.0.98"}}), []string{"names/both.test", "names/never.test", "names/*.corp.example"})
	answer, err := m.ask("udp", "web.test.", dns.TypeA)
	if got := summary(answer, err); got != "NOERROR 10.9.0.99 10.9.0.98" && got != "NOERROR 10.9.0.98 10.9.0.99" {
		t.Errorf("it is %q", got)
	}
	m.expect("both.test.", dns.TypeA, "NXDOMAIN")
	m.expect("ftp.corp.example.", dns.TypeA, "NOERROR 192.0.2.21")
	m.table.Update([]*discoveryv3.Resource{{Name: "names/web.test", Resource: &anypb.Any{Value: []byte("\xff")}}, {Name: "names/none"}}, nil)
	if s := m.Status(); s.Hosts != len(hosts)-2 {
		t.Errorf("the status is %+v", s)
	}
	want := nameserver.Origin{Host: "reviews.shop.svc.cluster.local", Addresses: []netip.Addr{netip.MustParseAddr("10.9.1.1")}}
	equal := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, m.Origin("Reviews.corp.example."), equal); diff != "" {
		t.Errorf("the origin (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(nameserver.Origin{}, m.Origin("www.example.com"), equal); diff != "" {
		t.Errorf("the origin of another name (-want +got):\n%s", diff)
	}
}

// TestClientsSpread: each address of a host comes first for some clients.
func TestClientsSpread(t *testing.T) {
	t.Parallel()
	m := startMachine(t, nil)
	m.table.Update(resources(t, hosts), nil)
	first := map[string]int{}
	for range 200 {
		answer, err := m.ask("udp", "headless.test.", dns.TypeA)
		if err != nil || len(answer.Answer) != 3 {
			t.Fatalf("it is %v, %v", answer, err)
		}
		first[answer.Answer[0].(*dns.A).A.String()]++
	}
	for _, ip := range hosts["headless.test"] {
		if first[ip] < 20 {
			t.Errorf("%s was first for %d of 200", ip, first[ip])
		}
	}
}

// TestUpdateCostsTheChange: one changed host costs the same in a large table as in a small one.
func TestUpdateCostsTheChange(t *testing.T) {
	cost := func(n int) float64 {
		of := map[string][]string{}
		for i := range n {
			of[fmt.Sprintf("svc-%d.test", i)] = []string{"10.9.0.1"}
		}
		table := &nameserver.Table{}
		table.Update(resources(t, of), nil)
		one := resources(t, map[string][]string{"svc-7.test": {"10.9.0.2"}})
		return testing.AllocsPerRun(100, func() { table.Update(one, nil) })
	}
	small, large := cost(100), cost(5000)
	t.Logf("allocations: %.0f of 100 hosts, %.0f of 5,000", small, large)
	if large > 3*small {
		t.Errorf("a change costs %.0f allocations in 5,000 hosts, and %.0f in 100", large, small)
	}
}

// TestSystemIsFollowed: the resolvers and the search domain are those of resolv.conf, and those of
// systemd-resolved behind its stub. A changed file is in force without a restart.
func TestSystemIsFollowed(t *testing.T) {
	t.Parallel()
	m := startMachine(t, nil)
	m.table.Update(resources(t, hosts), nil)
	await := func(want ...string) {
		t.Helper()
		eventually(t, "the resolvers are followed", func() error {
			var got []string
			for _, r := range m.Status().Resolvers {
				got = append(got, r.Address)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("they are %v, want %v", got, want)
			}
			return nil
		})
	}
	await("192.0.2.53:53")
	m.write(m.files.ResolvConf, "# DHCP\nnameserver 192.0.2.54\nnameserver 2001:db8::53\nnameserver nonsense\nsearch New.Example\n")
	await("192.0.2.54:53", "[2001:db8::53]:53")
	m.expect("reviews.new.example.", dns.TypeA, "NOERROR reviews.shop.svc.cluster.local. 10.9.1.1")
	m.write(m.files.Uplinks, "nameserver 192.0.2.60\n")
	m.write(m.files.ResolvConf, "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n")
	await("192.0.2.60:53")
	if system, err := m.files.Read(); err != nil || len(system.Asked) != 2 || system.Search != "" {
		t.Errorf("it is %+v, %v", system, err)
	}
	m.write(m.files.Uplinks, "nameserver 192.0.2.61\n")
	await("192.0.2.61:53")
	m.write(m.files.ResolvConf, "")
	eventually(t, "there is none", func() error {
		if s := m.Status(); len(s.Resolvers) != 0 || s.Problem == "" {
			return errors.New("there is one")
		}
		return nil
	})
	m.expect("www.example.com.", dns.TypeA, "SERVFAIL")
	m.expect("web.test.", dns.TypeA, "NOERROR 10.9.0.1")
}
