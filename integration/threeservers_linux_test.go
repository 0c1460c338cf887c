package integration

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
)

// lanServer is a server on a machine of its own, with its member of the store.
type lanServer struct {
	*server
	at    *lanMachine
	flags []string
}

func (s *lanServer) launch() { s.server.launchIn(s.at.namespace, s.at.ip, s.flags...) }

// lose ends the server and its store process at once.
func (s *lanServer) lose() {
	s.server.killStore() // first: it would leave the cluster cleanly when its parent ends
	s.server.kill()
}

// machineLease is the lease of machines in these tests, shorter than by default.
const machineLease = 5 * time.Second

// awaitTime waits for a time.
func awaitTime(t testing.TB, at time.Time) {
	t.Helper()
	eventually(t, "it is time", func() error {
		if left := time.Until(at); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
}

// threeServers forms a store of three servers. The lan's own server is the first.
func threeServers(t testing.TB) (*lan, []*lanServer) {
	t.Helper()
	l := newWire(t, onlyIPv4)
	var servers []*lanServer
	for i := range 3 {
		name := fmt.Sprintf("cp-%d", i+1)
		at := l.machine(name)
		s := &lanServer{l.serverIn(at.namespace), at, []string{"--machine-lease", machineLease.String(), "--drain-time", "2s"}}
		m := memberAt{name: name, peer: "https://" + at.ip + ":2380", client: "https://" + at.ip + ":2379"}
		if i == 0 {
			l.server = s.server
			store := []string{"--store-name", name, "--store-peer-url", m.peer, "--store-client-url", m.client}
			s.flags = append(s.flags, store...)
			s.server.launchIn(at.namespace, at.ip, append(s.flags, "--new-store")...)
		} else {
			s.flags = append(s.flags, "--join", "https://"+servers[0].at.ip+":15080", "--token-file", write(t, name+".token", l.server.invite(m)))
			s.launch()
		}
		s.awaitServing()
		servers = append(servers, s)
	}
	return l, servers
}

// TestThreeServersUnderHarm: two machines serve a third one that sends 500 requests a second, beside
// three servers that form a store. Whatever becomes of servers and members, no request fails, and
// no entry of a machine ends.
func TestThreeServersUnderHarm(t *testing.T) {
	t.Parallel()
	l, servers := threeServers(t)
	l.apply(webGroup)
	var others []string // the flags that name the other servers in an invitation
	for _, s := range servers[1:] {
		others = append(others, "--api-url", "https://"+s.at.ip+":15080", "--xds-address", s.at.ip+":15012")
	}
	l.api, l.xds = servers[0].at.ip+":15080", servers[0].at.ip+":15012"
	one, two, client := l.machine("one"), l.machine("two"), l.machine("client")
	for _, m := range []*lanMachine{one, two, client} {
		as := []string{"--group", "web"}
		if m == client {
			as = []string{"--service-account", "client"}
		} else {
			serveUpstream(t, m.name, m.listen(":8080"))
		}
		m.join(l.invite(append(as, others...)...), "--interception", "REDIRECT")
		m.run()
	}
	at := one.ip + " " + two.ip
	l.awaitEntries("both machines", at)
	uids := func(s *lanServer) string {
		return s.must("", "get", "workloadentries", "-n", "shop", "-o", "jsonpath={.items[*].metadata.uid}")
	}
	var entries string
	// served waits until both machines answer again, all servers are whole, and a change reaches all
	// proxies.
	changes := 0
	served := func(what string) {
		t.Helper()
		for _, s := range servers {
			s.awaitWhole()
		}
		for _, m := range []*lanMachine{one, two} {
			awaitServed(t, what, client.namespace.http(t), "http://10.9.0.1/", "web.shop.test", m.name)
		}
		changes++
		eventually(t, what+": a change reaches all", func() error {
			if o := l.try(entry(fmt.Sprintf("change-%d", changes), 80), "apply", "-f", "-", "--wait"); o.code != 0 {
				return fmt.Errorf("%+v", o)
			}
			return nil
		})
	}
	served("the first requests")
	entries = uids(servers[0])
	// of returns the server that has the stream of a machine.
	of := func(m *lanMachine) *lanServer {
		server := m.awaitStatus("it has a server", func(s lanStatus) bool { return len(s.Clients) == 1 && s.Clients[0].Server != "" }).Clients[0].Server
		for _, s := range servers {
			if s.at.ip+":15012" == server {
				return s
			}
		}
		t.Fatalf("the server of %s is %s", m.name, server)
		return nil
	}
	leader := func() (out *lanServer) {
		eventually(t, "there is a leader", func() error {
			members, err := servers[0].members()
			if err != nil {
				return err
			}
			for _, s := range servers {
				if members[s.at.name].Status == cluster.Leader {
					out = s
					return nil
				}
			}
			return fmt.Errorf("there is none among %v", members)
		})
		return out
	}
	for _, harm := range []struct {
		what string
		do   func()
	}{
		{"the leader of the store is killed", func() {
			s := leader()
			was := storeOf(t, s.o.dataDir)
			s.killStore()
			eventually(t, "its server has started another", func() error {
				if storeOf(t, s.o.dataDir) == was {
					return errors.New("it has not")
				}
				return nil
			})
		}},
		{"the server of a machine is killed, with its member", func() {
			s := of(one)
			s.lose()
			s.launch()
		}},
		{"all servers are restarted, one after the other", func() {
			for _, s := range servers {
				if err := s.process.terminate(t); err != nil {
					t.Errorf("%s: %v", s.at.name, err)
				}
				s.launch()
				s.awaitWhole()
			}
		}},
		{"two of three servers are away for longer than the lease", func() {
			began := time.Now()
			for _, s := range servers[1:] {
				s.lose()
			}
			servers[0].expectDegraded("the store has no quorum")
			awaitTime(t, began.Add(machineLease+2*time.Second))
			for _, s := range servers[1:] {
				s.launch()
			}
		}},
	} {
		stop := client.load("http://10.9.0.1/", "web.shop.test")
		began := time.Now()
		harm.do()
		served(harm.what)
		sent, failed := stop()
		t.Logf("%s: %d of %d requests failed, in %s", harm.what, failed, sent, time.Since(began).Round(time.Millisecond))
		if failed > 0 || sent == 0 {
			t.Errorf("%s: %d of %d requests failed", harm.what, failed, sent)
		}
		for _, s := range servers {
			if got := uids(s); got != entries {
				t.Errorf("%s: the entries of %s were %s, and are %s: one has ended meanwhile", harm.what, s.at.name, entries, got)
			}
		}
	}
}

// TestAStoreThatHangs: a store whose processes are stopped for longer than the lease ends entries
// when it goes on. The server registers the machines again at once.
func TestAStoreThatHangs(t *testing.T) {
	t.Parallel()
	l := newLAN(t, "--machine-lease", "3s")
	_, client := l.pair()
	store := storeOf(t, l.server.o.dataDir)
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(store, s); err != nil {
			t.Fatal(err)
		}
	}
	stop := client.load("http://10.9.0.1/", "web.shop.test")
	began := time.Now()
	signal(syscall.SIGSTOP)
	awaitTime(t, began.Add(5*time.Second))
	signal(syscall.SIGCONT)
	l.server.awaitWhole()
	l.awaitEntries("the machine is registered", "10.77.1.1")
	awaitServed(t, "the machine answers", client.namespace.http(t), "http://10.9.0.1/", "web.shop.test", "web")
	sent, failed := stop()
	t.Logf("%d of %d requests failed, in %s", failed, sent, time.Since(began).Round(time.Millisecond))
	if failed > sent/10 {
		t.Errorf("%d of %d requests failed", failed, sent)
	}
}
