package serviceentry_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	addresses "github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// give publishes a revision that assigns an address to a host in namespace shop, none if it is
// empty. It returns the calls of the updater.
func (m *mesh) give(host, ipv4 string) []string {
	a := &addresses.Assignment{Namespace: "shop", Host: host}
	if ipv4 == "" {
		m.given = m.given.Delete(a.Path())
	} else {
		a.IPv4 = netip.MustParseAddr(ipv4)
		a.IPv6 = addresses.DefaultRanges().IPv6For(a.IPv4)
		m.given = m.given.Set(a.Path(), a)
	}
	m.publish(m.configs)
	return m.xds.Take()
}

// vips returns the addresses of the services of a.example.com, those in the object and those
// assigned.
func (m *mesh) vips() (out []string) {
	for _, s := range m.row("shop", "a.example.com").Services {
		out = append(out, s.Address+" "+s.AutoAllocatedIPv4+" "+s.AutoAllocatedIPv6)
	}
	return out
}

func entryNamed(t tb, name, spec string, off ...string) *config.Config {
	t.Helper()
	c := object(t, schema.ServiceEntry, name, 1, "spec: {hosts: [A.example.com, '*.example.org'], "+spec+
		", ports: [{number: 80, name: tcp, protocol: TCP}], endpoints: [{address: 10.0.0.1}]}")
	if slices.Contains(off, "off") {
		c.Labels = map[string]string{schema.AutoAllocate: "false"}
	}
	return c
}

// TestAnAssignedAddressIsThatOfAServiceWithout: the assigned address comes with the object or
// after it, and goes again. Each time the service changes. The default address stays 0.0.0.0
// beside it.
func TestAnAssignedAddressIsThatOfAServiceWithout(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	want := func(when string, vips ...string) {
		t.Helper()
		if d := cmp.Diff(vips, m.vips()); d != "" {
			t.Errorf("%s (-want +got):\n%s", when, d)
		}
	}
	m.apply(entryNamed(t, "a", "resolution: STATIC"))
	want("before it is given", "0.0.0.0  ")
	if told := m.give("a.example.com", "240.240.0.1"); len(told) == 0 {
		t.Error("nobody is told of an address")
	}
	want("given", "0.0.0.0 240.240.0.1 2001:2::f0f0:1")
	if told := m.give("other.example.com", "240.240.0.2"); len(told) != 0 {
		t.Errorf("the address of another host: %q", told)
	}
	m.apply(entryNamed(t, "a", "resolution: STATIC, addresses: [10.9.9.9]"), entryNamed(t, "b", "resolution: STATIC"))
	want("beside one with an address of its own", "10.9.9.9  ", "0.0.0.0 240.240.0.1 2001:2::f0f0:1")
	m.apply(entryNamed(t, "a", "resolution: NONE"), entryNamed(t, "b", "resolution: STATIC", "off"))
	want("NONE, and switched off", "0.0.0.0  ", "0.0.0.0  ")
	m.apply(entryNamed(t, "a", "resolution: STATIC"))
	m.give("a.example.com", "")
	want("taken back", "0.0.0.0  ", "0.0.0.0  ")
}
