package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// fleet is a group of servers that form their own store, with TLS between the members.
type fleet struct {
	t         testing.TB
	authority *etcdtest.Authority
	servers   []*server
}

// memberAt is the name and the addresses of a member.
type memberAt struct{ name, peer, client string }

func newMemberAt(t testing.TB, name string) memberAt {
	return memberAt{name: name, peer: "https://" + local(freePort(t)), client: "https://" + local(freePort(t))}
}

// newFleet prepares servers without starting them. Each has its member of a new, common store.
func newFleet(t testing.TB, names ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, authority: etcdtest.NewAuthority(t)}
	var members []memberAt
	var initial []string
	for _, name := range names {
		m := newMemberAt(t, name)
		members, initial = append(members, m), append(initial, name+"="+m.peer)
	}
	for _, m := range members {
		f.add(m, f.authority, "--store-initial-cluster", strings.Join(initial, ","))
	}
	return f
}

// add prepares another server, with a certificate of an authority.
func (f *fleet) add(m memberAt, a *etcdtest.Authority, args ...string) *server {
	f.t.Helper()
	s := &server{
		t: f.t, api: local(freePort(f.t)), xds: local(freePort(f.t)), client: clientOf(f.t),
		o: serverOptions{dataDir: filepath.Join(f.t.TempDir(), "data"), args: append(f.identity(m, a), args...)},
	}
	f.servers = append(f.servers, s)
	return s
}

// identity returns the flags of a member.
func (f *fleet) identity(m memberAt, a *etcdtest.Authority) []string {
	f.t.Helper()
	pair := a.Issue(f.t, m.name, "127.0.0.1")
	return []string{
		"--store-name", m.name, "--store-peer-url", m.peer, "--store-client-url", m.client,
		"--store-cert", pair.Cert, "--store-key", pair.Key, "--store-ca", a.File,
	}
}

// startFleet starts servers that form a store, and waits until all are ready.
func startFleet(t testing.TB, names ...string) *fleet {
	t.Helper()
	f := newFleet(t, names...)
	begun := time.Now()
	for _, s := range f.servers {
		s.launch()
	}
	for _, s := range f.servers {
		s.awaitReady()
		s.awaitWhole()
	}
	t.Logf("%d servers are whole after %s", len(names), time.Since(begun).Round(time.Millisecond))
	return f
}

// members returns the members of the store, as a server reports them, by name.
func (s *server) members() (map[string]maintenance.Member, error) {
	var list maintenance.MemberList
	answer := s.try("", "store", "member", "list", "-o", "json")
	if answer.code != 0 {
		return nil, errors.New(answer.stderr)
	}
	if err := json.Unmarshal([]byte(answer.stdout), &list); err != nil {
		return nil, err
	}
	out := map[string]maintenance.Member{}
	for _, m := range list.Items {
		out[m.Name] = m
	}
	return out, nil
}

// awaitMembers waits until a server reports members with the given states.
func (s *server) awaitMembers(want map[string]cluster.Status) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the members are %v", want), func() error {
		members, err := s.members()
		if err != nil {
			return err
		}
		if len(members) != len(want) {
			return fmt.Errorf("they are %v", members)
		}
		for name, status := range want {
			is := members[name].Status
			if is == cluster.Leader {
				is = cluster.Voter
			}
			if is != status {
				return fmt.Errorf("%s is %q: %v", name, members[name].Status, members)
			}
		}
		return nil
	})
}

// leader returns the server whose member is the leader, and the others.
func (f *fleet) leader() (leader *server, others []*server) {
	f.t.Helper()
	eventually(f.t, "there is a leader", func() error {
		leader, others = nil, nil
		members, err := f.servers[0].members()
		if err != nil {
			return err
		}
		for _, s := range f.servers {
			if members[s.o.args[1]].Status == cluster.Leader {
				leader = s
			} else {
				others = append(others, s)
			}
		}
		if leader == nil {
			return fmt.Errorf("there is none among %v", members)
		}
		return nil
	})
	return leader, others
}

// kill ends a server and its store process at once, as the loss of a machine does.
func (f *fleet) kill(s *server) {
	f.t.Helper()
	s.killStore() // first: it would leave the cluster cleanly when its parent ends
	s.kill()
}

// killStore kills the store process of the server as kill -9 does.
func (s *server) killStore() {
	s.t.Helper()
	if err := syscall.Kill(storeOf(s.t, s.o.dataDir), syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
}

// entry is an object with a number in it.
func entry(name string, port int) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1}]
`, "$name", name, "$port", port)
}

// nextWrite writes through a server until a write succeeds, and returns how long that took.
func (s *server) nextWrite(name string) time.Duration {
	s.t.Helper()
	begun := time.Now()
	eventually(s.t, "a write succeeds", func() error {
		if out := s.try(entry(name, 80), "apply", "-f", "-"); out.code != 0 {
			return errors.New(out.stderr)
		}
		return nil
	})
	return time.Since(begun).Round(time.Millisecond)
}

// expectObjects checks that a server shows objects, in a read that includes all acknowledged writes.
func (s *server) expectObjects(names ...string) {
	s.t.Helper()
	for _, name := range names {
		if _, err := s.get("/apis/networking.istio.io/v1/namespaces/shop/serviceentries/"+name+"?consistent=true", nil); err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
	}
}

// TestClusterOutlivesOneMember kills one after another of three servers that form a store.
// Writes continue through each live server, also if its own member is dead.
func TestClusterOutlivesOneMember(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "cp-1", "cp-2", "cp-3")
	for i, s := range f.servers {
		s.apply(entry(fmt.Sprintf("before-%d", i), 80))
	}
	for _, s := range f.servers {
		s.expectObjects("before-0", "before-1", "before-2")
		expectEqual(t, "portolan_store_up", s.gauge("portolan_store_up"), 1)
	}

	leader, others := f.leader()
	f.kill(leader)
	for i, s := range others {
		t.Logf("the leader's machine is gone: a write through another server succeeds %s later", s.nextWrite(fmt.Sprintf("after-%d", i)))
		s.expectReports("writes succeed", "do not answer: "+leader.o.args[1])
	}
	leader.start()
	leader.awaitWhole()
	leader.expectObjects("after-0", "after-1")

	// Only the store process: its server continues through the other members.
	leader, others = f.leader()
	for name, s := range map[string]*server{"own-leader": leader, "own-voter": others[0]} {
		s.killStore()
		t.Logf("%s: the server's own member is dead: its next write succeeds after %s", name, s.nextWrite(name))
		s.awaitWhole()
	}
	for _, s := range f.servers {
		s.expectObjects("own-leader", "own-voter")
	}
	for _, s := range f.servers {
		if err := s.process.terminate(t); err != nil {
			t.Errorf("a server ended with %v", err)
		}
	}
}

// expectReports waits until the server is ready and its readiness report has some words.
func (s *server) expectReports(words ...string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("readiness reports %q", words), func() error {
		report, err := s.get("/readyz", nil)
		for _, w := range words {
			if err == nil && !strings.Contains(string(report), w) {
				err = fmt.Errorf("%q is not in %s", w, report)
			}
		}
		return err
	})
}

// TestClusterWithoutQuorum kills two of three servers: writes soon fail and say why, reads and
// proxies are still served. With one of them back, all works again.
func TestClusterWithoutQuorum(t *testing.T) {
	t.Parallel()
	f, x := startFleet(t, "cp-1", "cp-2", "cp-3"), newShop(t)
	s := f.servers[0]
	s.apply(x.all(100, 0))
	f.kill(f.servers[1])
	f.kill(f.servers[2])
	begun := time.Now()
	s.expectDegraded("the store has no quorum: 1 of its 3 members answer, and 2 are needed", "waiting for the other members of the store: cp-2 at", "cp-3 at")
	t.Logf("told after %s", time.Since(begun).Round(time.Millisecond))
	store := storeOf(t, s.o.dataDir)
	for range 3 {
		s.expectRefusal(x.routes(0, 100), "the store has no quorum")
	}
	s.must("", "get", "vs", "reviews", "-n", "shop")
	s.expectXDS("newcomer", x.service)
	out := s.try("", "store", "member", "list")
	if out.code != 0 || strings.Count(out.stdout, "unreachable") != 4 || !strings.Contains(out.stdout, "waiting") {
		t.Errorf("the list without a quorum: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	<-time.After(max(0, 17*time.Second-time.Since(begun))) // longer than a hung store process may live
	expectEqual(t, "the store process, which is well and waits", storeOf(t, s.o.dataDir), store)

	begun = time.Now()
	if err := s.process.terminate(t); err != nil || late(time.Since(begun), shutdown) {
		t.Errorf("without a quorum it ended with %v after %s", err, time.Since(begun))
	}
	s.launch()
	f.servers[1].start()
	s.awaitReady()
	f.servers[1].expectReports("writes succeed", "do not answer: cp-3")
	t.Logf("with two of three a write succeeds after %s", s.nextWrite("healed"))
	f.servers[1].expectObjects("healed")
	f.servers[2].start()
	for _, s := range f.servers {
		s.awaitWhole()
	}
}

// clusterRounds is how often TestClusterLosesNothing kills all servers.
const clusterRounds = 10

// TestClusterLosesNothing kills all servers and their store processes at once, while writers
// write through one server. Afterwards every server has all acknowledged writes.
func TestClusterLosesNothing(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "cp-1", "cp-2", "cp-3")
	rounds := clusterRounds
	if testing.Short() {
		rounds = 2
	}
	var acknowledged [4]int
	for round := range rounds {
		f.servers[round%3].writeUntil(t, &acknowledged, func() {
			var stores []int
			for _, s := range f.servers {
				stores = append(stores, storeOf(t, s.o.dataDir))
			}
			for _, pid := range stores {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			for _, s := range f.servers {
				s.kill()
			}
		})
		for _, s := range f.servers {
			s.launch()
		}
		for _, s := range f.servers {
			s.awaitReady()
			s.verify(t, round, &acknowledged)
		}
		if t.Failed() {
			t.Fatalf("round %d of %d", round+1, rounds)
		}
	}
	t.Logf("%d rounds, acknowledged writes by writer: %v", rounds, acknowledged)
}
