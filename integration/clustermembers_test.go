package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"go.etcd.io/bbolt"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// printed matches the command that `store member add` prints.
var printed = regexp.MustCompile(`(?s)\n  portolan (serve .*?)\n\n`)

// join runs the command that `store member add` printed, for a member at given addresses, and
// waits until the member is a learner.
func (f *fleet) join(m memberAt, out string) *server {
	f.t.Helper()
	match := printed.FindStringSubmatch(out)
	if match == nil {
		f.t.Fatalf("no command in %s", out)
	}
	flags := strings.Fields(strings.ReplaceAll(match[1], "\\\n", " "))
	var join string
	for i, flag := range flags {
		if flag == "--store-join" {
			join = flags[i+1]
		}
	}
	if want := []string{"serve", "--store-name", m.name, "--store-peer-url", m.peer}; strings.Join(flags[:5], " ") != strings.Join(want, " ") {
		f.t.Errorf("the command is %q, want it to begin with %q", flags, want)
	}
	// The rest of the command names files, and a port that is not the default one here.
	s := f.add(m, f.authority, "--store-join", join)
	s.launch()
	return s
}

// addMember adds a member through a server, and waits until it votes.
func (f *fleet) addMember(through *server, m memberAt) *server {
	f.t.Helper()
	s := f.join(m, through.must("", "store", "member", "add", m.name, "--peer-url", m.peer))
	s.awaitReady()
	out := through.must("", "store", "member", "promote", m.name)
	if !strings.Contains(out, m.name+" is a voter") {
		f.t.Errorf("promote: %s", out)
	}
	return s
}

// TestClusterGrowsFromOne grows a store from one member to three, with its data, and removes
// the first server.
func TestClusterGrowsFromOne(t *testing.T) {
	t.Parallel()
	f := &fleet{t: t, authority: etcdtest.NewAuthority(t)}
	one := startServer(t, serverOptions{})
	f.servers = []*server{one}
	var documents []string
	for i := range 300 {
		documents = append(documents, entry(fmt.Sprintf("old-%d", i), 80))
	}
	one.apply(documents...)
	for i := range 700 { // so that the raft log no longer has the first entries
		if i%100 == 0 {
			one.nextWrite(fmt.Sprintf("later-%d", i))
		}
		one.put(t, i)
	}
	if out := one.try("", "store", "member", "add", "cp-2", "--peer-url", "https://127.0.0.1:1"); out.code != 65 || !strings.Contains(out.stderr, "--store-peer-url") {
		t.Errorf("a store without an address: exit code %d: %s", out.code, out.stderr)
	}

	// With a peer address others can join it.
	if err := one.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	first := newMemberAt(t, "cp-1")
	one.o.args = f.identity(first, f.authority)
	one.start()
	one.awaitMembers(map[string]cluster.Status{"cp-1": cluster.Voter})
	two := f.addMember(one, newMemberAt(t, "cp-2"))
	three := f.addMember(two, newMemberAt(t, "cp-3"))
	one.awaitMembers(map[string]cluster.Status{"cp-1": cluster.Voter, "cp-2": cluster.Voter, "cp-3": cluster.Voter})
	three.expectObjects("old-0", "old-299", "later-600")

	f.kill(one)
	t.Logf("without the first server a write succeeds after %s", three.nextWrite("new"))
	two.expectObjects("old-0", "old-299", "new")
	one.start()
	one.awaitWhole()
	one.expectObjects("new")

	// Without its flags the others would not recognise the first one.
	if err := one.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	out := command(t, "", "serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0", "--data-dir", one.o.dataDir)
	if out.code != 1 || !strings.Contains(out.stderr, "of member cp-1 of a cluster of 3 (cp-1, cp-2, cp-3): start it with --store-name cp-1 --store-peer-url "+first.peer) {
		t.Errorf("a start without the flags: exit code %d: %s", out.code, out.stderr)
	}
}

// put writes one small object through the API.
func (s *server) put(t *testing.T, value int) {
	t.Helper()
	c, err := client.New(s.url(""), call.Options{HTTP: s.client})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), batch.New(counter(0, value+1, ""))); err != nil {
		t.Fatal(err)
	}
}

// TestClusterReplacesAMember deletes the data of a member. It cannot start as the same member,
// and rejoins as a new one.
func TestClusterReplacesAMember(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "cp-1", "cp-2", "cp-3")
	one, lost := f.servers[0], f.servers[2]
	one.apply(entry("before", 80))
	f.kill(lost)
	if err := os.RemoveAll(lost.o.dataDir); err != nil {
		t.Fatal(err)
	}
	m := memberAt{name: "cp-3", peer: lost.o.args[3], client: lost.o.args[5]}
	refused := f.run(lost)
	for _, words := range []string{"the member is not new", "this data directory is empty", "portolan store member remove cp-3", "portolan store member add cp-3 --peer-url " + m.peer} {
		if refused.code != 1 || !strings.Contains(refused.stderr, words) {
			t.Errorf("an empty directory: exit code %d, and not %q: %s", refused.code, words, refused.stderr)
		}
	}
	if out := one.try("", "store", "member", "remove", "cp-2"); out.code != 65 || !strings.Contains(out.stderr, "of the 2 voters left 1 would answer, and 2 are needed: bring cp-3 back") {
		t.Errorf("removing the wrong one: exit code %d: %s", out.code, out.stderr)
	}
	if out := one.try("", "store", "member", "add", "cp-3", "--peer-url", m.peer); out.code != 65 || !strings.Contains(out.stderr, "remove that one first with portolan store member remove cp-3") {
		t.Errorf("adding it before: exit code %d: %s", out.code, out.stderr)
	}

	one.must("", "store", "member", "remove", "cp-3")
	again := f.addMember(f.servers[1], m)
	again.awaitWhole()
	again.expectObjects("before")
	one.awaitMembers(map[string]cluster.Status{"cp-1": cluster.Voter, "cp-2": cluster.Voter, "cp-3": cluster.Voter})
	f.kill(one)
	t.Logf("the new member counts: without the first a write succeeds after %s", again.nextWrite("after"))
}

// run runs a server that soon ends, and returns its outcome.
func (f *fleet) run(s *server) outcome {
	f.t.Helper()
	return command(f.t, "", append([]string{"serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0", "--data-dir", s.o.dataDir}, s.o.args...)...)
}

// TestClusterRemovesALivingMember removes the leader. Its server continues through the other
// members, says what happened, and does not start again.
func TestClusterRemovesALivingMember(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "cp-1", "cp-2", "cp-3")
	leader, others := f.leader()
	name := leader.o.args[1]
	out := others[0].try("", "store", "member", "remove", name)
	if out.code != 0 || !strings.Contains(out.stderr, name+" led the cluster: ") {
		t.Errorf("exit code %d: %s%s", out.code, out.stdout, out.stderr)
	}
	t.Logf("the leader is removed: the next write succeeds after %s", others[1].nextWrite("after"))
	leader.expectReports("writes succeed through the other members", "removed from its cluster")
	leader.nextWrite("through-others")
	if strings.Contains(leader.process.output(), "panic: ") {
		t.Errorf("its store process panicked:\n%s", leader.process.output())
	}
	leader.expectObjects("after")
	if err := leader.process.terminate(t); err != nil {
		t.Errorf("its server ended with %v", err)
	}
	refused := f.run(leader)
	for _, words := range []string{"removed from its cluster", leader.o.dataDir, "portolan store member add " + name} {
		if refused.code != 1 || !strings.Contains(refused.stderr, words) {
			t.Errorf("a removed member: exit code %d, and not %q: %s", refused.code, words, refused.stderr)
		}
	}

	// Two members need both for a quorum.
	f.kill(others[1])
	if out := others[0].try("", "store", "member", "remove", others[1].o.args[1]); out.code != 69 || !strings.Contains(out.stderr, "the store has no quorum: 1 of its 2 voters") {
		t.Errorf("removing one of two that is away: exit code %d: %s", out.code, out.stderr)
	}
}

// TestClusterRemovesAnAbsentMember removes a member while its server is down.
func TestClusterRemovesAnAbsentMember(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "cp-1", "cp-2", "cp-3")
	away := f.servers[2]
	f.kill(away)
	f.servers[0].must("", "store", "member", "remove", "cp-3")
	if out := f.run(away); out.code != 1 || !strings.Contains(out.stderr, "removed from its cluster") {
		t.Errorf("exit code %d: %s", out.code, out.stderr)
	}
	f.servers[0].nextWrite("after")
}

// TestClusterStartsSlowly starts members one after another. A member that waits says for whom,
// stops when told to, and becomes ready when the others come.
func TestClusterStartsSlowly(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "cp-1", "cp-2", "cp-3")
	one, two, three := f.servers[0], f.servers[1], f.servers[2]
	waits := func(s *server, words ...string) {
		t.Helper()
		eventually(t, "readiness says for whom it waits", func() error {
			_, err := s.get("/readyz", nil)
			for _, w := range append(words, "waiting for the other members of the store: ") {
				if err == nil || !strings.Contains(err.Error(), w) {
					return fmt.Errorf("%q is not in %w", w, errors.Join(err, errors.New("")))
				}
			}
			return nil
		})
	}
	one.launch()
	waits(one, "cp-2 at ", "cp-3 at ")
	out := one.try(entry("early", 80), "apply", "-f", "-")
	if out.code != 69 || !strings.Contains(out.stderr, "nothing was written") || !strings.Contains(out.stderr, "waiting for the other members") {
		t.Errorf("a write: exit code %d: %s", out.code, out.stderr)
	}
	begun := time.Now()
	if err := one.process.terminate(t); err != nil || late(time.Since(begun), shutdown) {
		t.Errorf("while it waited it ended with %v after %s", err, time.Since(begun))
	}
	t.Logf("it ended after %s", time.Since(begun).Round(time.Millisecond))
	one.launch()
	waits(one, "cp-2 at ", "cp-3 at ")
	three.launch()
	one.awaitReady()
	three.awaitReady()
	one.nextWrite("two-of-three")
	two.launch()
	two.awaitReady()
	for _, s := range f.servers {
		s.awaitWhole()
		s.expectObjects("two-of-three")
	}
	if n := strings.Count(one.process.output(), "\n"); n > 60 {
		t.Errorf("it logged %d lines while it waited:\n%s", n, one.process.output())
	}
}

// TestClusterRefusesStrangers starts a member with a certificate of another authority.
func TestClusterRefusesStrangers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "cp-1", "cp-2", "cp-3")
	stranger := f.servers[2]
	forged := f.identity(memberAt{name: "cp-3", peer: stranger.o.args[3], client: stranger.o.args[5]}, etcdtest.NewAuthority(t))
	stranger.o.args = append(forged, stranger.o.args[len(forged):]...)
	for _, s := range f.servers {
		s.launch()
	}
	f.servers[0].awaitReady()
	f.servers[1].awaitReady()
	f.servers[0].expectReports("writes succeed", "do not answer: cp-3")
	eventually(t, "the stranger says that it is refused", func() error {
		_, err := stranger.get("/readyz", nil)
		if err == nil || !strings.Contains(err.Error(), "certificate") {
			return fmt.Errorf("it says %w", errors.Join(err, errors.New("")))
		}
		return nil
	})
	if status, err := f.servers[0].members(); err != nil || status["cp-3"].Status == cluster.Voter {
		t.Errorf("%v, %v", status, err)
	}
}

// TestClusterHangs stops the store process of one member. Its server kills the process, and
// writes through the others meanwhile.
func TestClusterHangs(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "cp-1", "cp-2", "cp-3")
	leader, _ := f.leader()
	store := storeOf(t, leader.o.dataDir)
	if err := syscall.Kill(store, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	took := leader.nextWrite("after")
	t.Logf("its own member, which leads, hangs: its next write succeeds after %s", took)
	if late(took, 8*time.Second) {
		t.Errorf("a write waits for the member that hangs: it took %s", took)
	}
	eventually(t, "another store process takes its place", func() error {
		if storeOf(t, leader.o.dataDir) == store {
			return errors.New("it is the same")
		}
		return nil
	})
	t.Logf("it is replaced after %s", time.Since(begun).Round(time.Millisecond))
	leader.awaitWhole()
}

// TestClusterFlags gives invalid combinations of flags: the error lists all faults at once.
func TestClusterFlags(t *testing.T) {
	a, b := etcdtest.NewAuthority(t), etcdtest.NewAuthority(t)
	pair, other := a.Issue(t, "cp-1", "10.0.0.1"), b.Issue(t, "cp-1", "10.0.0.1")
	tls := []string{"--store-cert", pair.Cert, "--store-key", pair.Key, "--store-ca", a.File}
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"plaintext beyond loopback": {
			[]string{"--store-name", "cp-1", "--store-peer-url", "http://10.0.0.1:2380"},
			[]string{"--store-peer-url", "needs TLS: use https"},
		},
		"no certificate": {
			[]string{"--store-name", "cp-1", "--store-peer-url", "https://10.0.0.1:2380", "--store-initial-cluster", "cp-1=https://10.0.0.1:2380,cp-2=https://10.0.0.2:2380"},
			[]string{"give --store-cert, --store-key and --store-ca"},
		},
		"all at once": {
			append([]string{"--store-name", "a b", "--store-initial-cluster", "cp-1=https://10.0.0.2:2380,cp-1=https://10.0.0.2:2380", "--store-join", "10.0.0.3", "--store-in-process"}, tls...),
			[]string{"--store-name", "--store-peer-url: is missing", "two members called cp-1", "two members at", "this member is not in it", "--store-join", "--store-in-process"},
		},
		"wrong host": {
			append([]string{"--store-name", "cp-1", "--store-peer-url", "https://10.0.0.9:2380"}, tls...),
			[]string{"--store-cert", "10.0.0.9"},
		},
		"wrong authority": {
			[]string{"--store-name", "cp-1", "--store-peer-url", "https://10.0.0.1:2380", "--store-cert", other.Cert, "--store-key", other.Key, "--store-ca", a.File},
			[]string{"cannot be used as that of a server", "unknown authority"},
		},
		"no file": {
			[]string{"--store-name", "cp-1", "--store-peer-url", "https://10.0.0.1:2380", "--store-cert", "/no/cert", "--store-ca", a.File},
			[]string{"/no/cert", "--store-key: is missing"},
		},
		"what a token has": {
			[]string{"--join", "http://10.0.0.1:15080", "--store-name", "cp-1"},
			[]string{"--store-name: is in the token", "--join: \"http://10.0.0.1:15080\" is not the URL"},
		},
		"another's store": {
			[]string{"--store-name", "cp-1", "--store-peer-url", "http://127.0.0.1:2380", "--etcd-endpoints", "127.0.0.1:2379"},
			[]string{"--store-peer-url: is of the embedded store"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := command(t, "", append([]string{"serve", "--data-dir", filepath.Join(t.TempDir(), "data")}, test.args...)...)
			for _, words := range test.want {
				if out.code != 64 || !strings.Contains(out.stderr, words) {
					t.Errorf("exit code %d, and not %q: %s", out.code, words, out.stderr)
				}
			}
		})
	}
}

// TestClusterFindsDamage changes one value in the database of a member, which etcd does not
// detect. The member does not serve it: it says that it differs from the others, and what to
// do.
func TestClusterFindsDamage(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "cp-1", "cp-2", "cp-3")
	f.servers[0].apply(entry("reviews", 8080))
	f.servers[2].expectObjects("reviews")
	damaged := f.servers[2]
	if err := damaged.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	changeValue(t, filepath.Join(damaged.o.dataDir, "etcd", "member", "snap", "db"), "reviews.shop.test")
	out := f.run(damaged)
	for _, words := range []string{"the data is damaged", "it differs from that of the other members", "portolan store member remove cp-3", "add cp-3 --peer-url"} {
		if out.code != 1 || !strings.Contains(out.stderr, words) {
			t.Errorf("exit code %d, and not %q: %s", out.code, words, out.stderr)
		}
	}
	f.servers[0].nextWrite("after")
}

// changeValue changes one byte of a text, in the first value of a database that contains it.
func changeValue(t *testing.T, file, text string) {
	t.Helper()
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.Update(func(tx *bbolt.Tx) error {
		values := tx.Bucket([]byte("key"))
		cursor := values.Cursor()
		for k, v := cursor.First(); k != nil; k, v = cursor.Next() {
			if i := bytes.Index(v, []byte(text)); i >= 0 {
				changed := bytes.Clone(v)
				changed[i]++
				return values.Put(bytes.Clone(k), changed)
			}
		}
		return errors.New("no value has the text")
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestClusterJoin does the steps of joining in the wrong order.
func TestClusterJoin(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "cp-1")
	one, m := f.servers[0], newMemberAt(t, "cp-2")
	refuses := func(words string, args ...string) {
		t.Helper()
		if out := one.try("", append([]string{"store", "member"}, args...)...); out.code != 65 || !strings.Contains(out.stderr, words) {
			t.Errorf("%v: exit code %d, and not %q: %s", args, out.code, words, out.stderr)
		}
	}
	two := f.add(m, f.authority, "--store-join", one.o.args[5])
	out := f.run(two)
	if words := "run this against a server of that cluster first: portolan store member add cp-2 --peer-url " + m.peer; out.code != 1 || !strings.Contains(out.stderr, words) {
		t.Errorf("without a place: exit code %d, and not %q: %s", out.code, words, out.stderr)
	}
	one.must("", "store", "member", "add", "cp-2", "--peer-url", m.peer)
	refuses("there can be one at a time", "add", "cp-3", "--peer-url", "https://127.0.0.1:1")
	refuses("it has not started yet", "promote", m.peer)
	one.must("", "store", "member", "remove", m.peer)
	if out := f.run(two); out.code != 1 || !strings.Contains(out.stderr, "no member with the peer URL") {
		t.Errorf("a place that is gone: exit code %d: %s", out.code, out.stderr)
	}

	// A joining server waits as long as it reaches no member.
	begun := time.Now()
	if err := one.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	two.launch()
	eventually(t, "it waits for a member to join", func() error {
		if _, err := two.get("/readyz", nil); err == nil || !strings.Contains(err.Error(), "waiting for a member of the cluster to join") {
			return fmt.Errorf("it says %w", errors.Join(err, errors.New("")))
		}
		return nil
	})
	if err := two.process.terminate(t); err != nil || late(time.Since(begun), 2*shutdown) {
		t.Errorf("it ended with %v", err)
	}
	one.start()
	one.must("", "store", "member", "add", "cp-2", "--peer-url", m.peer)
	two.start()
	one.awaitMembers(map[string]cluster.Status{"cp-1": cluster.Voter, "cp-2": cluster.Learner})
	if out := one.try("", "store", "member", "promote", "cp-2"); out.code != 0 || !strings.Contains(out.stderr, "Warning: 2 voters") {
		t.Errorf("promote: exit code %d: %s%s", out.code, out.stdout, out.stderr)
	}
	refuses("is that of member cp-2", "add", "cp-3", "--peer-url", m.peer)
}
