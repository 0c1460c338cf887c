package integration

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/portolan-mesh/portolan/integration/processtest"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// etcdConfig is an environment variable. If it is set, the test binary runs an etcd with this
// configuration file instead of the tests.
const etcdConfig = "PORTOLAN_TEST_ETCD_CONFIG"

// beEtcd runs an etcd until the process is killed.
func beEtcd(file string) int {
	config, err := embed.ConfigFromFile(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server, err := embed.StartEtcd(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stderr, <-server.Err())
	return 1
}

// etcdProcess is an external etcd: with TLS, the documented users, and etcd's default limits.
type etcdProcess struct {
	t         testing.TB
	endpoint  string
	authority *etcdtest.Authority
	config    string
	password  string // the file with portolan's password
	client    etcdtest.Pair
	process   *processtest.Process
}

// newEtcdProcess prepares an etcd without starting it.
func newEtcdProcess(t testing.TB) *etcdProcess {
	t.Helper()
	e := &etcdProcess{t: t, authority: etcdtest.NewAuthority(t), endpoint: "https://" + local(freePort(t))}
	server := e.authority.Issue(t, "etcd", "127.0.0.1")
	e.client = e.authority.Issue(t, "client")
	e.password = write(t, "password", etcdtest.Passwords("portolan")+"\n")
	e.config = write(t, "etcd.yaml", fill(`
name: theirs
data-dir: $data
listen-client-urls: $endpoint
advertise-client-urls: $endpoint
listen-peer-urls: $peer
initial-advertise-peer-urls: $peer
initial-cluster: theirs=$peer
client-transport-security: {cert-file: $cert, key-file: $key, trusted-ca-file: $ca, client-cert-auth: true}
auth-token-ttl: 1
bcrypt-cost: 4
log-level: warn
`, "$data", filepath.Join(t.TempDir(), "etcd"), "$endpoint", e.endpoint, "$peer", "http://"+local(freePort(t)),
		"$cert", server.Cert, "$key", server.Key, "$ca", e.authority.File))
	return e
}

// startEtcdProcess runs an etcd, and creates its users.
func startEtcdProcess(t testing.TB) *etcdProcess {
	t.Helper()
	e := newEtcdProcess(t)
	e.start()
	e.enableAuth()
	return e
}

func (e *etcdProcess) start() {
	e.t.Helper()
	e.process = processtest.Start(e.t, processtest.Options{Name: "etcd", Path: os.Args[0], Env: []string{etcdConfig + "=" + e.config}})
	probe := e.dial("")
	eventually(e.t, "etcd answers", func() error {
		_, err := probe.MemberList(e.t.Context())
		if err != nil && strings.Contains(err.Error(), "user") {
			return nil // it answers, and requires authentication
		}
		return err
	})
}

func (e *etcdProcess) enableAuth() {
	e.t.Helper()
	etcdtest.EnableAuth(e.t, e.dial(""))
}

// dial returns a client of a user; "" is no user.
func (e *etcdProcess) dial(user string) *clientv3.Client {
	files := dial.Files{CA: e.authority.File, Cert: e.client.Cert, Key: e.client.Key}
	o := dial.Options{Endpoints: []string{e.endpoint}, TLS: files.Config}
	if user != "" {
		o.User, o.Password = user, func() (string, error) { return etcdtest.Passwords(user), nil }
	}
	return etcdtest.DialWith(e.t, o)
}

// flags returns the flags of a server that uses this etcd as user portolan.
func (e *etcdProcess) flags(more ...string) []string {
	return append([]string{
		"--etcd-ca", e.authority.File, "--etcd-cert", e.client.Cert, "--etcd-key", e.client.Key,
		"--etcd-user", "portolan", "--etcd-password-file", e.password,
	}, more...)
}

func (e *etcdProcess) server(more ...string) *server {
	e.t.Helper()
	return startServer(e.t, serverOptions{etcd: e.endpoint, args: e.flags(more...)})
}

// TestExternalEtcdDies kills an etcd with TLS and users under two servers. Old and new proxies
// are served, writes fail fast, and all works again once etcd is back, though it has forgotten
// the tokens that it issued.
func TestExternalEtcdDies(t *testing.T) {
	t.Parallel()
	etcd := startEtcdProcess(t)
	one, two := etcd.server(), etcd.server()
	x := newShop(t)
	x.v1, x.v2 = &upstream{name: "v1", port: 9001}, &upstream{name: "v2", port: 9002}
	revision := one.apply(x.all(100, 0))
	node := xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.0.0.2", "client", "shop", nil), Variant: protocol.Delta, Follow: true}
	atOne, atTwo := connect(t, one, node), connect(t, two, node)
	one.awaitSynced(revision, "client")
	two.awaitSynced(revision, "client")

	etcd.process.Kill()
	for _, s := range []*server{one, two} {
		s.expectDegraded("etcd has not answered for", "connection refused")
		s.expectRefusal(x.routes(0, 100), "etcd has not answered for")
		s.expectXDS("newcomer", x.service)
		expectEqual(t, "portolan_store_up", s.gauge("portolan_store_up"), 0)
	}
	expectSameBytes(t, "without etcd", atOne, atTwo)

	etcd.start()
	t.Logf("whole again %s after etcd", max(one.awaitWhole(), two.awaitWhole()))
	revision = two.apply(x.routes(0, 100))
	one.awaitSynced(revision, "client")
	two.awaitSynced(revision, "client")
	expectSameBytes(t, "with etcd again", atOne, atTwo)
	one.expectNothingRejected()
	two.expectNothingRejected()
}

// TestExternalEtcdHangs stops an etcd, which keeps its connections. The servers detect that it
// hangs. From then on writes fail fast, until etcd continues.
func TestExternalEtcdHangs(t *testing.T) {
	t.Parallel()
	etcd := startEtcdProcess(t)
	s, x := etcd.server(), newShop(t)
	x.v1, x.v2 = &upstream{name: "v1", port: 9001}, &upstream{name: "v2", port: 9002}
	s.apply(x.all(100, 0))
	etcd.process.Pause()
	defer etcd.process.Resume()
	stopped := time.Now()
	s.expectDegraded("etcd has not answered for")
	t.Logf("told after %s", time.Since(stopped).Round(time.Millisecond))
	s.expectRefusal(x.routes(0, 100), "etcd has not answered for")
	s.expectXDS("newcomer", x.service)
	etcd.process.Resume()
	t.Logf("whole again after %s", s.awaitWhole())
	s.apply(x.routes(0, 100))
}

// TestServeWaitsForEtcd starts a server before its etcd. It is not ready and says why, stops
// when told to, and becomes ready once etcd runs.
func TestServeWaitsForEtcd(t *testing.T) {
	t.Parallel()
	etcd := newEtcdProcess(t)
	launch := func() *server {
		s := &server{
			t: t, o: serverOptions{etcd: etcd.endpoint, args: etcd.flags()}, client: clientOf(t),
			api: local(freePort(t)), xds: local(freePort(t)),
		}
		s.launch()
		eventually(t, "readiness says that etcd is awaited", func() error {
			return s.expectUnready("connection refused", "the configuration is not read yet")
		})
		return s
	}
	begun := time.Now()
	if err := launch().process.terminate(t); err != nil {
		t.Errorf("told to end while it waits, it ends with %v", err)
	}
	t.Logf("it waits and ends within %s", time.Since(begun).Round(time.Millisecond))

	s := launch()
	eventually(t, "the log says what it waits for", func() error {
		const said = `msg="the server waits before it serves proxies" for="the configuration is not read yet`
		if out := s.process.output(); !strings.Contains(out, said) {
			return errors.New(out)
		}
		return nil
	})
	etcd.start()
	etcd.enableAuth()
	s.awaitReady()
	s.awaitWhole()
	s.apply(large(1))
	for _, words := range []string{"etcd cannot be used, it is asked again and again", "etcd can be used again"} {
		if !strings.Contains(s.process.output(), words) {
			t.Errorf("the log does not say %q", words)
		}
	}
}

// expectUnready returns nil if /readyz answers 503 with these words.
func (s *server) expectUnready(words ...string) error {
	r, err := s.client.Get(s.url("/readyz"))
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	var report strings.Builder
	if err := r.Write(&report); err != nil {
		return err
	}
	if r.StatusCode != http.StatusServiceUnavailable {
		return fmt.Errorf("%s", report.String())
	}
	for _, w := range words {
		if !strings.Contains(report.String(), w) {
			return fmt.Errorf("%q is not in %s", w, report.String())
		}
	}
	return nil
}

// TestExternalEtcdChangesItsLocks changes the password, the user's rights, and every
// certificate, without a restart of a server.
func TestExternalEtcdChangesItsLocks(t *testing.T) {
	t.Parallel()
	etcd := startEtcdProcess(t)
	s, x := etcd.server(), newShop(t)
	x.v1, x.v2 = &upstream{name: "v1", port: 9001}, &upstream{name: "v2", port: 9002}
	s.apply(x.all(100, 0))

	root := etcd.dial("root")
	if _, err := root.UserChangePassword(t.Context(), "portolan", "another"); err != nil {
		t.Fatal(err)
	}
	s.expectDegraded(`etcd does not know user "portolan" by this password`)
	s.expectRefusal(x.routes(0, 100))
	replace(t, etcd.password, "another\n")
	s.awaitWhole()
	s.apply(x.routes(0, 100))

	etcdtest.Etcdctl(t, root, "role grant-permission portolan read /portolan/ /portolan0")
	s.expectDegraded(`lets user "portolan" read /portolan/v1/ but not write there`)
	if out := s.try(x.routes(50, 50), "apply", "-f", "-"); out.code == 0 || !strings.Contains(out.stderr, "etcd does not let this user write") {
		t.Errorf("apply by a user who may only read: %+v", out)
	}
	etcdtest.Etcdctl(t, root, "role grant-permission portolan readwrite /portolan/ /portolan0")
	s.awaitWhole()

	etcd.process.Kill()
	next := etcdtest.NewAuthority(t)
	server, client := next.Issue(t, "etcd", "127.0.0.1"), next.Issue(t, "client")
	for file, from := range map[string]string{
		filepath.Join(filepath.Dir(etcd.authority.File), "etcd.pem"):     server.Cert,
		filepath.Join(filepath.Dir(etcd.authority.File), "etcd-key.pem"): server.Key,
		etcd.client.Cert: client.Cert, etcd.client.Key: client.Key, etcd.authority.File: next.File,
	} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		replace(t, file, string(content))
	}
	etcd.start()
	s.awaitWhole()
	s.apply(x.routes(50, 50))
	if strings.Contains(s.process.output(), etcdtest.Passwords("portolan")) || strings.Contains(s.process.output(), "another") {
		t.Error("a password is in the log")
	}
}

// replace gives a file new content in one step.
func replace(t testing.TB, file, content string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(file+".new", []byte(content), 0o600), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
}

// TestServeNamesWhatEtcdRefuses starts servers with mistakes that waiting does not cure.
func TestServeNamesWhatEtcdRefuses(t *testing.T) {
	t.Parallel()
	etcd := startEtcdProcess(t)
	etcdtest.Etcdctl(t, etcd.dial("root"), "user add stranger")
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"authority":   {[]string{"--etcd-ca", etcdtest.NewAuthority(t).File}, "signed by none of the authorities that are trusted"},
		"server name": {[]string{"--etcd-server-name", "db.test"}, `not for the name "db.test"`},
		"password":    {[]string{"--etcd-password-file", write(t, "wrong", "hunter2")}, `does not know user "portolan" by this password`},
		"permission": {[]string{"--etcd-user", "stranger", "--etcd-password-file", write(t, "stranger", etcdtest.Passwords("stranger"))},
			`does not let user "stranger" read /portolan/v1/`},
	} {
		out := command(t, "", append([]string{
			"serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0", "--etcd-endpoints", etcd.endpoint,
		}, etcd.flags(c.flags...)...)...)
		last := strings.TrimSpace(out.stderr[strings.LastIndex(strings.TrimSpace(out.stderr), "\n")+1:])
		if out.code != 1 || !strings.HasPrefix(last, "portolan: --etcd-endpoints: ") || !strings.Contains(last, c.want) {
			t.Errorf("%s: exit code %d\n%s", name, out.code, out.stderr)
		}
		if strings.Contains(out.stderr, "hunter2") {
			t.Errorf("%s: the password is told", name)
		}
	}
}

// TestExternalLimits writes more than etcd accepts in one transaction, also with flags that
// state a wrong limit.
func TestExternalLimits(t *testing.T) {
	t.Parallel()
	etcd := startEtcdProcess(t)
	var documents []string
	for i := range 200 {
		documents = append(documents, strings.Replace(large(i), strings.Repeat("x", 200<<10), "x", 1))
	}
	batch := strings.Join(documents, "\n---\n")
	out := etcd.server().try(batch, "apply", "-f", "-")
	if out.code == 0 || !strings.Contains(out.stderr, "etcd takes 128 in one transaction") || !strings.Contains(out.stderr, "--max-txn-ops") {
		t.Errorf("200 objects: %+v", out)
	}
	wrong := etcd.server("--etcd-max-txn-ops", "1000") // more than etcd's actual limit
	if out = wrong.try(batch, "apply", "-f", "-"); out.code == 0 || !strings.Contains(out.stderr, "etcd takes less than the 1000 operations") {
		t.Errorf("200 objects, by a server that expects more of etcd: %+v", out)
	}
	etcd.process.Kill()
	replace(t, etcd.config, mustRead(t, etcd.config)+"max-txn-ops: 1000\n")
	etcd.start()
	wrong.awaitWhole()
	wrong.must(batch, "apply", "-f", "-")
}

func mustRead(t testing.TB, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
