package integration

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// addressed is a TCP service without an address.
const addressed = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: tcp, protocol: TCP}]
  endpoints: [{address: 127.0.0.1, ports: {tcp: $target}}]
`

// givenTo returns the IPv4 address that was assigned to the host of an addressed service, from
// the object's status; empty for none.
func (s *server) givenTo(name string) string {
	s.t.Helper()
	var object struct {
		Status struct {
			Addresses []struct{ Value, Host string }
		}
	}
	if _, err := s.get("/apis/networking.istio.io/v1/namespaces/shop/serviceentries/"+name+"?consistent=true", &object); err != nil {
		s.t.Fatal(err)
	}
	for _, a := range object.Status.Addresses {
		if a.Host == name+".shop.test" && !strings.Contains(a.Value, ":") {
			return a.Value
		}
	}
	return ""
}

// TestAddressesOfTwoServers: both servers show the addresses that one assigned. Addresses
// survive restarts of both, even with another range. They come and go with the label and the
// object.
func TestAddressesOfTwoServers(t *testing.T) {
	at := startEtcd(t)
	one, two := startServer(t, serverOptions{etcd: at}), startServer(t, serverOptions{etcd: at})
	names := make([]string, 8)
	given := map[string]string{}
	for i := range names {
		names[i] = fmt.Sprintf("s%d", i)
		[]*server{one, two}[i%2].apply(fill(addressed, "$name", names[i], "$port", 5432, "$target", 1))
	}
	for _, name := range names {
		a := one.givenTo(name)
		if !strings.HasPrefix(a, "240.240.") || a != two.givenTo(name) || given[a] != "" {
			t.Errorf("%s has %q at one server and %q at the other; %q has it", name, a, two.givenTo(name), given[a])
		}
		given[a] = name
	}
	if out := one.must("", "get", "se", "s0", "-n", "shop", "-o", "wide"); !strings.Contains(out, one.givenTo("s0")) {
		t.Errorf("get -o wide does not show %s:\n%s", one.givenTo("s0"), out)
	}
	before := one.givenTo("s3")
	one.remove(fill(addressed, "$name", "s3", "$port", 5432, "$target", 1))
	two.apply(fill(addressed, "$name", "s3", "$port", 5432, "$target", 1))
	if after := one.givenTo("s3"); after != before {
		t.Errorf("s3 had %s and came back with %s", before, after)
	}
	off := strings.Replace(addressed, "namespace: shop", "namespace: shop, labels: {networking.istio.io/enable-autoallocate-ip: 'false'}", 1)
	one.apply(fill(off, "$name", "s4", "$port", 5432, "$target", 1))
	if a := one.givenTo("s4"); a != "" {
		t.Errorf("s4 is switched off and has %s", a)
	}

	one.kill()
	three := startServer(t, serverOptions{etcd: at, args: []string{"--auto-address-ipv4", "10.9.0.0/24"}})
	if after := three.givenTo("s3"); after != before {
		t.Errorf("s3 had %s and has %s after a restart", before, after)
	}
}

// TestObjectsOfAnOlderServerGetAddresses: the leader assigns addresses to hosts that were
// written before servers assigned any.
func TestObjectsOfAnOlderServerGetAddresses(t *testing.T) {
	at := startEtcd(t)
	store, err := etcd.New(etcdtest.Dial(t, at), etcd.Options{Schemas: schema.Pilot()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.ServiceEntry, Namespace: "shop", Name: "old"},
		Spec: &networking.ServiceEntry{
			Hosts: []string{"old.shop.test"}, Resolution: networking.ServiceEntry_STATIC,
			Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, serverOptions{etcd: at})
	eventually(t, "the host has an address", func() error {
		if s.givenTo("old") == "" {
			return fmt.Errorf("it has none")
		}
		return nil
	})
}

// TestEnvoyReachesEachServiceAtItsAddress: two TCP services with the same port, each reached at
// its assigned address. The range has loopback addresses, which are local on every machine.
func TestEnvoyReachesEachServiceAtItsAddress(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{args: []string{"--auto-address-ipv4", "127.240.0.0/16"}})
		port := freePort(t)
		s.apply(
			fill(addressed, "$name", "red", "$port", port, "$target", startTCPUpstream(t, "red")),
			fill(addressed, "$name", "blue", "$port", port, "$target", startTCPUpstream(t, "blue")),
		)
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v, dnsCapture: true})
		awaitGreeting(t, port, "blue") // a connection to loopback reaches the first service
		for _, name := range []string{"red", "blue"} {
			awaitGreetingAt(t, net.JoinHostPort(s.givenTo(name), fmt.Sprint(port)), name)
		}
		green := fill(addressed, "$name", "green", "$port", port, "$target", startTCPUpstream(t, "green"))
		s.awaitSynced(s.apply(green), "client")
		awaitGreetingAt(t, net.JoinHostPort(s.givenTo("green"), fmt.Sprint(port)), "green")
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// awaitGreetingAt waits until a connection to an address gets the greeting of an upstream.
func awaitGreetingAt(t testing.TB, address, want string) {
	t.Helper()
	eventually(t, address+" leads to "+want, func() error {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		got, err := bufio.NewReader(c).ReadString('\n')
		if err == nil && strings.TrimSpace(got) != want {
			err = fmt.Errorf("it leads to %s", got)
		}
		return err
	})
}
