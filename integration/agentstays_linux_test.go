package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
	"github.com/portolan-mesh/portolan/storage/longtest"
)

// TestAgentKeepsCapture: the agent puts the rules in force when it starts, again when others have
// flushed them, and says so. Killed and started again it finds them. What happens while no Envoy
// runs is as the file says. In the end nothing is left.
func TestAgentKeepsCapture(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	l.apply(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: far, namespace: shop}
spec:
  hosts: [far.shop.test]
  resolution: STATIC
  addresses: [10.9.0.1]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 9080}]
  endpoints: [{address: 10.77.0.1}]
`)
	serveUpstream(t, "far", l.wire.listen("10.77.0.1:9080"))
	m := l.machine("web")
	foreign := m.ruleset()
	m.join(l.invite("--service-account", "web"), "--interception", "REDIRECT")
	if info, err := os.Stat(filepath.Join(m.dir, "config.yaml")); err != nil || info.Sys().(*syscall.Stat_t).Uid != sidecarUser {
		t.Errorf("the file is not of the agent's user: %v, %v", info, err)
	}
	m.run()
	captured := func() {
		t.Helper()
		awaitServed(t, "a captured request", m.namespace.http(t), "http://10.9.0.1/", "far.shop.test", "far")
	}
	captured()
	m.awaitStatus("the rules are in force", func(s lanStatus) bool { return s.Capture.State == capture.InForce && s.Capture.Mended == 0 })
	rules := m.ruleset()

	m.nft("flush ruleset")
	m.awaitStatus("the rules are mended", func(s lanStatus) bool { return s.Capture.State == capture.InForce && s.Capture.Mended == 1 })
	if diff := cmp.Diff(rules, m.ruleset()); diff != "" {
		t.Errorf("mended rules differ:\n%s", diff)
	}
	captured()

	// direct is reached by connections that pass; captured ones need the Envoy.
	direct := func() error {
		got, err := m.get("http://10.77.0.1:9080/", "")
		if err == nil && got.String() != "far" {
			err = fmt.Errorf("it is answered by %s", got)
		}
		return err
	}
	pid := m.awaitStatus("an Envoy runs", func(s lanStatus) bool { return s.Envoy.PID != 0 }).Envoy.PID
	m.process.kill()
	_ = syscall.Kill(pid, syscall.SIGKILL)
	if err := direct(); err == nil {
		t.Error("without an Envoy a connection passes")
	}
	m.run()
	captured()
	if diff := cmp.Diff(rules, m.ruleset()); diff != "" {
		t.Errorf("the rules after a crash differ:\n%s", diff)
	}
	if err := m.process.terminate(t); err != nil {
		t.Errorf("the agent: %v", err)
	}
	if err := direct(); err == nil {
		t.Error("with a stopped agent a connection passes")
	}
	if !strings.Contains(m.process.output(), "refused until the agent runs again") {
		t.Errorf("the agent does not say what is refused:\n%s", m.process.tail())
	}

	m.change("capture: {}\n", "capture: {whenDown: PASS}\n")
	m.run()
	captured()
	pid = m.awaitStatus("the rules are in force", func(s lanStatus) bool { return s.Capture.State == capture.InForce }).Envoy.PID
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	eventually(t, "connections pass by an Envoy that hangs", direct)
	_ = syscall.Kill(pid, syscall.SIGCONT)
	m.awaitStatus("the rules are in force again", func(s lanStatus) bool { return s.Capture.State == capture.InForce })
	captured()
	if err := m.process.terminate(t); err != nil {
		t.Errorf("the agent: %v", err)
	}
	if err := direct(); err != nil {
		t.Errorf("with a stopped agent that lets pass: %v", err)
	}
	if diff := cmp.Diff(foreign, m.ruleset()); diff != "" {
		t.Errorf("the agent leaves something:\n%s", diff)
	}
}

// TestAgentDoctorAndLeave: doctor finds what is wrong on a machine, and leave takes the machine out
// of the mesh without a trace.
func TestAgentDoctorAndLeave(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	l.apply("apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: web, namespace: shop}\nspec:\n  template: {serviceAccount: web}\n")
	m := l.machine("web")
	foreign := m.ruleset()
	expect := func(code int, lines ...string) {
		t.Helper()
		o := m.agent("doctor")
		if o.code != code {
			t.Errorf("doctor: %+v", o)
		}
		for _, want := range lines {
			if !regexp.MustCompile("(?m)" + want).MatchString(o.stdout) {
				t.Errorf("doctor says nothing of %q:\n%s", want, o.stdout)
			}
		}
	}
	if o := m.agent("doctor"); o.code != 65 || !strings.Contains(o.stderr, "portolan-agent join") {
		t.Errorf("doctor before join: %+v", o)
	}
	m.join(l.invite("--group", "web"), "--interception", "REDIRECT")
	expect(0, `^ok +certificate +spiffe://cluster.local/ns/shop/sa/web, for (24h0m0s|23h59m)`, `^ok +config API +https://10.77.0.1:15080 answers`, `^ok +clock +as that of`,
		`^ok +xDS +10.77.0.1:15012 takes the machine's certificate`, `^ok +Envoy .* is 1\.`, `^warning +agent +it does not run`, `^ok +port +127.0.0.1:15000 is free`, `^ok +disk `, `^ok +capture +the rules are absent`)
	busy := m.listen("127.0.0.1:15020")
	m.nft("table ip nat {\n\tchain ISTIO_OUTPUT { type nat hook output priority -100; tcp dport 80 redirect to :15001; }\n}\n")
	expect(79, `^fault +port +127.0.0.1:15020: .*address already in use`, `^warning +capture +the table ip nat redirects connections too`)
	_ = busy.Close()
	m.nft("delete table ip nat")
	m.lan.wire.ip("link", "set", "lan", "down")
	expect(79, `^fault +config API +https://10.77.0.1:15080: `, `^fault +xDS +10.77.0.1:15012: `)
	m.lan.wire.ip("link", "set", "lan", "up")

	m.run()
	m.awaitStatus("the rules are in force", func(s lanStatus) bool { return s.Capture.State == capture.InForce && s.Envoy.PID != 0 })
	eventually(t, "the machine is registered", func() error {
		if o := l.try("", "get", "workloadentries", "-n", "shop"); !strings.Contains(o.stdout, "web-10.77.1.1") {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
	eventually(t, "doctor finds all well", func() error {
		if o := m.agent("doctor"); o.code != 0 || strings.Contains(o.stdout, "warning") {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})

	m.process.MayEnd()
	if out := m.must("leave"); !strings.Contains(out, "has left the mesh") {
		t.Errorf("leave: %s", out)
	}
	eventually(t, "the agent has ended", func() error {
		if m.process.running() {
			return errors.New("it still runs")
		}
		return nil
	})
	if o := l.try("", "get", "workloadentries", "-n", "shop"); strings.Contains(o.stdout, "web-10.77.1.1") {
		t.Errorf("the entry is still there: %+v", o)
	}
	if diff := cmp.Diff(foreign, m.ruleset()); diff != "" {
		t.Errorf("rules are left:\n%s", diff)
	}
	var left []string
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if diff := cmp.Diff([]string{"config.yaml.left"}, left); diff != "" {
		t.Errorf("files are left:\n%s", diff)
	}
}

// TestAgentMoves: a machine that gets another address by DHCP leaves the mesh at the old one and is
// in it at the new one. Its clients and its applications go on.
func TestAgentMoves(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	l.apply(webGroup)
	m, client := l.machine("web"), l.machine("client")
	serveUpstream(t, "web", m.listen(":8080"))
	m.join(l.invite("--group", "web"), "--interception", "REDIRECT")
	client.join(l.invite("--service-account", "client"), "--interception", "REDIRECT")
	m.run()
	client.run()
	served := func(what string) {
		t.Helper()
		awaitServed(t, what, client.namespace.http(t), "http://10.9.0.1/", "web.shop.test", "web")
	}
	served("a request at the first address")
	l.awaitEntries("the first address", "10.77.1.1")

	began := time.Now()
	m.namespace.ip("addr", "add", "10.77.9.9/16", "dev", "eth0")
	m.namespace.ip("addr", "del", "10.77.1.1/16", "dev", "eth0") // takes the routes with it
	m.namespace.ip("addr", "replace", "10.77.9.9/16", "dev", "eth0")
	l.awaitEntries("the other address", "10.77.9.9")
	t.Logf("an entry at the new address, and none at the old one: after %s", time.Since(began).Round(time.Millisecond))
	served("a request at the other address")
	if out := m.must("status"); !strings.Contains(out, "sidecar~10.77.9.9~web.shop") {
		t.Errorf("the status: %s", out)
	}
}

// TestSoakAgentRenews: two machines outlive their certificates by far, two lifetimes or ten in the
// long form, though their invitations have expired. They call each other over mutual TLS all the
// time; no request fails, and no entry ends.
func TestSoakAgentRenews(t *testing.T) {
	t.Parallel()
	const life = 6 * time.Second
	lives := 2
	if longtest.Soak(t) > 0 {
		lives = 10
	}
	l := newLAN(t)
	l.apply(webGroup, "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: shop}\nspec: {mtls: {mode: STRICT}}\n")
	web, client := l.machine("web"), l.machine("client")
	serveUpstream(t, "web", web.listen(":8080"))
	invitation := l.invite("--group", "web", "--ttl", "10s", "--uses", "9")
	web.join(invitation, "--interception", "REDIRECT", "--ttl", life.String())
	client.join(l.invite("--service-account", "client", "--ttl", "10s"), "--interception", "REDIRECT", "--ttl", life.String())
	web.run()
	client.run()
	awaitServed(t, "the first request", client.namespace.http(t), "http://10.9.0.1/", "web.shop.test", "web")
	uid := func() string {
		return l.must("", "get", "workloadentry/web-"+web.ip, "-n", "shop", "-o", "jsonpath={.metadata.uid}")
	}
	first, renewed, last := uid(), -1, time.Time{} // the first one is no renewal
	stop := client.load("http://10.9.0.1/", "web.shop.test")
	for began := time.Now(); time.Since(began) < time.Duration(lives)*life; {
		web.awaitStatus("the certificate is renewed", func(s lanStatus) bool {
			if is := s.Certificate.Renewed; is.After(last) {
				last = is
				renewed++
				return true
			}
			return false
		})
	}
	l.must(plainEntry("later"), "apply", "-f", "-", "--wait")
	sent, failed := stop()
	t.Logf("%d of %d requests failed; the certificate was renewed %d times", failed, sent, renewed)
	if failed > 0 || renewed < lives {
		t.Errorf("%d requests failed, and the certificate was renewed %d times", failed, renewed)
	}
	if now := uid(); now != first {
		t.Errorf("the entry was %s, and is %s", first, now)
	}
	if o := web.agent("join", invitation, "--dir", web.dir, "--name", web.name); o.code == 0 || !strings.Contains(o.stderr, "expired at") {
		t.Errorf("the invitation has expired: %+v", o)
	}
}

// TestAMachineIsGoneWhenItIsGone: the entry of a machine whose power is cut goes within its lease,
// though nobody tells its server.
func TestAMachineIsGoneWhenItIsGone(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	l.apply("apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: web, namespace: shop}\nspec:\n  template: {serviceAccount: web}\n")
	m := l.machine("web")
	m.join(l.invite("--group", "web"))
	m.run()
	l.awaitEntries("the machine", "10.77.1.1")
	began := time.Now()
	m.namespace.ip("link", "set", "eth0", "down") // no packet leaves it any more
	l.awaitEntries("the machine is gone", "")
	took := time.Since(began)
	t.Logf("the entry of a machine without power is gone after %s", took.Round(time.Millisecond))
	if took > 12*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestAgentWithoutADisk: while the agent's disk is full, and then read-only, the machine serves and
// calls. The agent and doctor say what is wrong, and once there is room the certificate is renewed.
func TestAgentWithoutADisk(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	l.apply(webGroup)
	m := l.machine("web")
	serveUpstream(t, "web", m.listen(":8080"))
	if err := run0("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=4m,uid=%d,gid=%d,mode=0700", sidecarUser, sidecarUser), "tmpfs", m.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run0("umount", "-l", m.dir) })
	m.join(l.invite("--group", "web"), "--interception", "REDIRECT", "--ttl", "12s")
	m.run()
	call := func(what string) {
		t.Helper()
		awaitServed(t, what, m.namespace.http(t), "http://10.9.0.1/", "web.shop.test", "web")
	}
	call("a request with a disk")
	says := func(what, line string) {
		t.Helper()
		eventually(t, what, func() error {
			if !strings.Contains(m.process.output(), line) {
				return fmt.Errorf("the log has no %q:\n%s", line, m.process.tail())
			}
			return nil
		})
	}
	filler := filepath.Join(m.dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	if err := os.Chown(filler, sidecarUser, sidecarUser); err != nil {
		t.Fatal(err)
	}
	says("the log names the full disk", "no space left on device")
	call("a request with a full disk")
	if o := m.agent("doctor"); !strings.Contains(o.stdout, "0 MiB free") {
		t.Errorf("doctor: %+v", o)
	}
	if err := run0("mount", "-o", "remount,ro", m.dir); err != nil {
		t.Fatal(err)
	}
	says("the log names the read-only disk", "read-only file system")
	call("a request with a read-only disk")
	if o := m.agent("doctor"); o.code != 79 || !strings.Contains(o.stdout, "is read-only") {
		t.Errorf("doctor: %+v", o)
	}
	if err := errors.Join(run0("mount", "-o", "remount,rw", m.dir), os.Remove(filler)); err != nil {
		t.Fatal(err)
	}
	mended := time.Now()
	m.awaitStatus("the certificate is renewed", func(s lanStatus) bool { return s.Certificate.Renewed.After(mended) })
	call("a request after that")
}
