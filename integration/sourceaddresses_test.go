package integration

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// awaitGiven waits until an address is assigned to the host of an addressed service, and
// returns it.
func (s *server) awaitGiven(name string) (given string) {
	s.t.Helper()
	eventually(s.t, "the host of "+name+" has an address", func() error {
		if _, err := s.get("/apis/networking.istio.io/v1/namespaces/shop/serviceentries/"+name, nil); err != nil {
			return err
		}
		if given = s.givenTo(name); given == "" {
			return fmt.Errorf("it has none")
		}
		return nil
	})
	return given
}

// TestHostsOfFilesHaveAddresses: hosts in files get addresses as those of the store do, the
// same at all servers. Addresses survive restarts of servers, a change of leader, and for an
// hour the removal of the file. A server without the directory does not free them.
func TestHostsOfFilesHaveAddresses(t *testing.T) {
	at := startEtcd(t)
	file := func(names ...string) string {
		var out []string
		for _, name := range names {
			out = append(out, fill(addressed, "$name", name, "$port", 5432, "$target", 1))
		}
		return strings.Join(out, "\n---\n")
	}
	dir := newConfigDir(t, map[string]string{"db.yaml": file("red", "blue"), "rest.yaml": file("rest")})
	o := serverOptions{etcd: at, args: []string{"--config-dir", dir.path}}
	one, two := startServer(t, o), startServer(t, o)
	red := one.awaitGiven("red")
	if !strings.HasPrefix(red, "240.240.") || red == one.awaitGiven("blue") || red != two.awaitGiven("red") {
		t.Errorf("red has %s at one server and %s at the other, blue %s", red, two.givenTo("red"), one.givenTo("blue"))
	}
	dir.write("db.yaml", file("red", "blue", "green"))
	green := two.awaitGiven("green")

	// An object of the store with the host gets the same address. Its deletion does not free
	// the address.
	one.apply(strings.Replace(file("red"), "name: red", "name: other", 1))
	one.must("", "delete", "serviceentry", "other", "-n", "shop", "--yes")
	if after := one.givenTo("red"); after != red {
		t.Errorf("red has %q after another owner went, and had %s", after, red)
	}

	// A client that does not know the file frees the address: a server claims it again.
	store, err := etcd.New(etcdtest.Dial(t, at), etcd.Options{Schemas: schema.Pilot()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.ClaimAddresses(t.Context(), []address.Claim{{
		Key: address.Key{Namespace: "shop", Host: "red.shop.test"}, Drop: []string{address.OwnerOf(dir.path)},
	}}); err != nil {
		t.Fatal(err)
	}
	if after := two.awaitGiven("red"); after != red {
		t.Errorf("red has %s after it was taken back, and had %s", after, red)
	}

	// The host goes and comes back with its address, which is kept meanwhile.
	dir.write("db.yaml", file("blue"))
	eventually(t, "the object of the file goes", func() error {
		if _, err := one.get("/apis/networking.istio.io/v1/namespaces/shop/serviceentries/red", nil); err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
	one.kill() // it may be the leader or not
	three := startServer(t, serverOptions{etcd: at})
	two.kill()
	owners, err := store.AddressOwners(t.Context())
	if got := owners[address.Key{Namespace: "shop", Host: "green.shop.test"}]; err != nil || fmt.Sprint(got) != fmt.Sprint([]string{address.OwnerOf(dir.path)}) {
		t.Errorf("the address of green is owned by %v, %v", got, err)
	}
	three.apply(file("late"))
	dir.write("db.yaml", file("red", "blue", "green"))
	one.start()
	if after := one.awaitGiven("red"); after != red {
		t.Errorf("red has %s after it came back, and had %s", after, red)
	}
	if after := one.awaitGiven("green"); after != green {
		t.Errorf("green has %s after it came back, and had %s", after, green)
	}
	if late := three.givenTo("late"); late == "" || late == red || late == green {
		t.Errorf("late has %q", late)
	}
}

// TestServersWithOneDirectoryServeTheSame: two servers of one store with the same files send
// the same bytes, including the addresses of hosts, also after a change.
func TestServersWithOneDirectoryServeTheSame(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		at := startEtcd(t)
		file := func(names ...string) string {
			var out []string
			for _, name := range names {
				out = append(out, fill(addressed, "$name", name, "$port", 5432, "$target", 1))
			}
			return strings.Join(out, "\n---\n")
		}
		dir := newConfigDir(t, map[string]string{"db.yaml": file("red", "blue")})
		// As on another machine, but with another path.
		other := newConfigDir(t, map[string]string{"db.yaml": file("red", "blue")})
		one := startServer(t, serverOptions{etcd: at, args: []string{"--config-dir", dir.path}})
		two := startServer(t, serverOptions{etcd: at, args: []string{"--config-dir", other.path}})
		node := xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.0.0.2", "client", "shop", nil), Variant: v, Follow: true}
		node.Node.Metadata.Fields["DNS_CAPTURE"] = structpb.NewStringValue("true")
		a, b := connect(t, one, node), connect(t, two, node)
		same := func(names ...string) {
			t.Helper()
			for _, name := range names {
				given := one.awaitGiven(name)
				two.awaitGiven(name)
				for _, client := range []*xdstest.Client{a, b} {
					eventually(t, "the listener of "+name, func() error {
						for listener := range client.Held(xdstest.ListenerType) {
							if strings.Contains(listener, given+"_5432") {
								return nil
							}
						}
						return fmt.Errorf("there is none at %s", net.JoinHostPort(given, "5432"))
					})
				}
			}
			expectSameBytes(t, fmt.Sprint(names), a, b)
		}
		same("red", "blue")
		dir.write("db.yaml", file("red", "green", "blue"))
		other.write("db.yaml", file("red", "green", "blue"))
		same("red", "blue", "green")
		one.expectNothingRejected()
		two.expectNothingRejected()
	})
}

// TestServersWithOtherDirectories: each server of a store names the objects of files that
// differ from another server's, until they are equal.
func TestServersWithOtherDirectories(t *testing.T) {
	t.Parallel()
	at := startEtcd(t)
	file := func(name string) string { return fill(addressed, "$name", name, "$port", 5432, "$target", 1) }
	dir := newConfigDir(t, map[string]string{"red.yaml": file("red"), "blue.yaml": file("blue")})
	other := newConfigDir(t, map[string]string{"red.yaml": file("red")})
	one := startServer(t, serverOptions{etcd: at, args: []string{"--config-dir", dir.path}})
	two := startServer(t, serverOptions{etcd: at, args: []string{"--config-dir", other.path}})
	tells := func(s *server, words ...string) {
		t.Helper()
		eventually(t, "the server tells what differs", func() error {
			text, err := s.get("/readyz?verbose", nil)
			for _, word := range words {
				if !strings.Contains(string(text), word) {
					return fmt.Errorf("%q is not in %s, %w", word, text, err)
				}
			}
			return err
		})
	}
	tells(one, "[!] replicas: source "+dir.path+": the server ", " has other objects, only here: serviceentry/shop/blue\n")
	tells(two, "[!] replicas: source "+other.path+": the server ", " has other objects, only there: serviceentry/shop/blue\n")
	if out := one.must("", "source", "list"); !strings.Contains(out, "differs from 1 server") {
		t.Errorf("portolan source list says\n%s", out)
	}
	if out := two.must("", "source", "describe", other.path); !strings.Contains(out, "only there: serviceentry/shop/blue") {
		t.Errorf("portolan source describe says\n%s", out)
	}
	if text, err := one.get("/metrics", nil); err != nil || !strings.Contains(string(text), fmt.Sprintf("portolan_source_differing_servers{source=%q} 1\n", dir.path)) {
		t.Errorf("the metric does not say so: %v", err)
	}
	other.write("blue.yaml", file("blue"))
	tells(one, "[+] replicas ok")
	tells(two, "[+] replicas ok")

	// A server without a directory, and one that can no longer read it.
	three := startServer(t, serverOptions{etcd: at})
	if err := os.RemoveAll(other.path); err != nil {
		t.Fatal(err)
	}
	tells(three, "source "+dir.path+": this server has no such source, and the server ", "source "+other.path+": this")
	tells(one, " has no such source", " cannot read it: ")
	if out := three.must("", "source", "list"); !strings.Contains(out, "not on this server") {
		t.Errorf("portolan source list says\n%s", out)
	}
}
