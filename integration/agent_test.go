package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// agentTags are the build tags of the Makefile.
const agentTags = "grpcnotrace"

// buildAgent builds portolan-agent as the Makefile does, once for all tests.
var buildAgent = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(binary), "portolan-agent")
	out, err := exec.Command("go", "build", "-tags", agentTags, "-ldflags", "-s -w", "-o", path, "../cmd/portolan-agent").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build portolan-agent: %w\n%s", err, out)
	}
	return path, nil
})

func needAgent(t testing.TB) string {
	t.Helper()
	path, err := buildAgent()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// maxAgent is the most bytes of the agent.
const maxAgent = 26_000_000

// TestAgentIsSmall: the agent is on every machine.
func TestAgentIsSmall(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(needAgent(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("portolan-agent has %d bytes", info.Size())
	if info.Size() > maxAgent {
		t.Errorf("portolan-agent has %d bytes, and may have %d", info.Size(), maxAgent)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil || !strings.Contains(string(makefile), "TAGS := "+agentTags+"\n") {
		t.Errorf("the Makefile builds it otherwise: %v", err)
	}
}

// TestLayersAgentLinksLittle: the agent links neither the store nor what makes configuration.
func TestLayersAgentLinksLittle(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-tags", agentTags, "-deps", "../cmd/portolan-agent").Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		own := pathOf(path)
		for _, bad := range []string{"storage/etcd", "storage/schema", "cache", "xds/generate", "xds/mesh", "xds/desired", "xds/delivery"} {
			if own == bad || strings.HasPrefix(own, bad+"/") {
				t.Errorf("portolan-agent links %s", own)
			}
		}
		if strings.HasPrefix(path, "go.etcd.io/") || strings.HasPrefix(path, "k8s.io/client-go") {
			t.Errorf("portolan-agent links %s", path)
		}
	}
}

// agentMachine is a machine with an agent, and the mesh that it is in.
type agentMachine struct {
	*server
	t         testing.TB
	dir       string
	secureXDS string
	admin     string
	metrics   string
	ready     string
	port      int // at which its Envoy takes requests
	ip        string
	program   string // of the agent; empty for the one that is tested
	process   *process
	client    *http.Client
	// slow is told of each request for /slow, which is answered when release is closed.
	slow, release chan struct{}
}

// newMachine joins a machine to a new mesh, in which app.shop.example answers with the path.
func newMachine(t testing.TB) *agentMachine {
	t.Helper()
	needEnvoy(t)
	secure := local(freePort(t))
	s := startServer(t, serverOptions{dataDir: filepath.Join(t.TempDir(), "data"), args: []string{"--secure-xds-address", secure}})
	slow, release := make(chan struct{}, 1), make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			slow <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	t.Cleanup(app.Close)
	host, port, _ := strings.Cut(app.Listener.Addr().String(), ":")
	m := &agentMachine{server: s, t: t, dir: t.TempDir(), secureXDS: secure, admin: local(freePort(t)), metrics: local(freePort(t)), ready: local(freePort(t)), port: freePort(t), ip: "10.0.0.9", client: clientOf(t), slow: slow, release: release}
	s.apply(fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: app, namespace: shop}\nspec:\n  hosts: [app.shop.example]\n  resolution: STATIC\n  ports: [{number: %d, name: http, protocol: HTTP, targetPort: %s}]\n  endpoints: [{address: %s}]\n", m.port, port, host))
	return m
}

// runningMachine is a machine that has joined, and whose first request was answered.
func runningMachine(t testing.TB) *agentMachine {
	t.Helper()
	m := newMachine(t)
	if o := m.join(m.invite()); o.code != 0 {
		t.Fatalf("join: %+v", o)
	}
	m.run()
	m.awaitCall("the first request")
	return m
}

// agent runs a command of the agent.
func (m *agentMachine) agent(args ...string) outcome {
	m.t.Helper()
	return runCommand(m.t, exec.Command(cmp.Or(m.program, needAgent(m.t)), append(args, "--config", filepath.Join(m.dir, "config.yaml"))...))
}

// invite returns an invitation.
func (m *agentMachine) invite() string {
	m.t.Helper()
	return m.invitation(m.api, m.secureXDS, "--service-account", "web")
}

func (m *agentMachine) join(invitation string, flags ...string) outcome {
	m.t.Helper()
	return m.agent(append([]string{"join", invitation, "--dir", m.dir, "--name", "web", "--ip", m.ip, "--envoy", needEnvoy(m.t), "--admin-address", m.admin, "--metrics-address", m.metrics, "--ready-address", m.ready}, flags...)...)
}

func (m *agentMachine) run(flags ...string) {
	m.process = start(m.t, "agent", cmp.Or(m.program, needAgent(m.t)), append([]string{"run", "--config", filepath.Join(m.dir, "config.yaml")}, flags...)...)
}

// call sends a request through the machine's Envoy.
func (m *agentMachine) call(ctx context.Context) error { return m.callFor(ctx, "/hello") }

func (m *agentMachine) callFor(ctx context.Context, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+local(m.port)+path, nil)
	if err != nil {
		return err
	}
	r.Host = "app.shop.example"
	response, err := m.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || string(body) != path) {
		err = fmt.Errorf("it gets %s, %s", response.Status, body)
	}
	return err
}

func (m *agentMachine) awaitCall(what string) {
	m.t.Helper()
	eventually(m.t, what, func() error {
		err := m.call(m.t.Context())
		if err != nil && !m.process.running() {
			m.t.Fatalf("the agent has ended: %v\n%s", m.process.Err(), m.process.tail())
		}
		return err
	})
}

// agentStatus is what the tests look at.
type agentStatus struct {
	Certificate struct {
		Identity string
		Renewed  time.Time
	}
	Clients  []struct{ Node, Server string }
	LastGood []struct{ Proxy string }
	Envoy    struct {
		PID, Restarts, Epoch int
		Version, LastExit    string
	}
	Health *agentHealth
}

func (m *agentMachine) status() (out agentStatus, err error) {
	o := m.agent("status", "-o", "json")
	if o.code != 0 {
		return out, errors.New(o.stderr)
	}
	return out, json.Unmarshal([]byte(o.stdout), &out)
}

// load sends some 500 requests a second until it is stopped, which tells of those that failed.
func (m *agentMachine) load() (stop func(what string)) {
	var sent atomic.Int64
	call := func(ctx context.Context) {
		if err := m.call(ctx); err != nil && ctx.Err() == nil {
			m.t.Errorf("a request under load: %v", err)
		}
		sent.Add(1)
	}
	end := atPace(m.t, call, call, call, call)
	began := time.Now()
	return func(what string) {
		end()
		m.t.Logf("%s: %d requests in %s", what, sent.Load(), time.Since(began).Round(time.Millisecond))
	}
}

// TestAgent: two commands bring a machine from an invitation to its first request. Then its server
// is replaced, its Envoy is replaced in place and killed, and at the end all drains.
func TestAgent(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	invitation := m.invite()
	if o := m.join(invitation[:len(invitation)-2]); o.code != 65 || !strings.Contains(o.stderr, "the invitation is damaged") {
		t.Errorf("a damaged invitation: %+v", o)
	}
	began := time.Now()
	if o := m.join(invitation); o.code != 0 || !strings.Contains(o.stdout, "This machine is "+webIdentity) || !strings.Contains(o.stdout, "portolan-agent run --config") {
		t.Fatalf("join: %+v", o)
	}
	m.run("--listener-drain", "5s")
	m.awaitCall("the first request")
	t.Logf("from join to the first request: %s", time.Since(began).Round(time.Millisecond))
	if o := m.join(invitation); o.code == 0 || !strings.Contains(o.stderr, "used up") || !strings.Contains(o.stderr, "portolan machine invite -n shop --service-account web") {
		t.Errorf("a used invitation: %+v", o)
	}
	m.server.says([]string{"machine", "list", "-n", "shop"}, 0, "no entry")
	m.awaitTold("it has no group", true, "none, since the machine names no group")
	was, err := m.status()
	if err != nil || was.Certificate.Identity != webIdentity || len(was.Clients) != 1 || was.Clients[0].Server != m.secureXDS || was.Envoy.PID == 0 || !strings.HasPrefix(was.Envoy.Version, "1.") {
		t.Fatalf("status: %+v, %v", was, err)
	}
	if o := m.agent("status"); o.code != 0 || !strings.Contains(o.stdout, webIdentity) {
		t.Errorf("status for people: %+v", o)
	}

	for _, want := range []string{"portolan_agent_proxies 1\n", "portolan_agent_proxies_without_server 0\n", "portolan_agent_envoy_restarts 0\n", "portolan_agent_certificate_expires_seconds 1.", "envoy_server_live{} 1\n"} {
		if text, err := m.page(m.metrics, "/metrics"); err != nil || !strings.Contains(text, want) {
			t.Errorf("the metrics have no %q: %v", want, err)
		}
	}

	if text, err := m.page(m.metrics, "/metrics?filter="+url.QueryEscape(`^cluster\.outbound`)); err != nil || !strings.Contains(text, "envoy_cluster_upstream_rq_total") || strings.Contains(text, "envoy_server_live") || !strings.Contains(text, "portolan_agent_proxies 1\n") {
		t.Errorf("filtered metrics: %v\n%s", err, text)
	}

	stop := m.load()
	if err := m.server.process.terminate(t); err != nil {
		t.Errorf("the server: %v", err)
	}
	m.server.start()
	m.apply(plainEntry("later"))
	eventually(t, "Envoy has what was applied to the next server", func() error { return m.hasCluster("outbound|80||later.shop.example") })
	stop("the server is replaced")

	stop = m.load()
	if o := m.agent("restart-envoy"); o.code != 0 {
		t.Errorf("restart-envoy: %+v", o)
	}
	eventually(t, "the first Envoy has ended", func() error {
		if now, err := m.status(); err != nil || now.Envoy.Epoch != 1 || syscall.Kill(was.Envoy.PID, 0) == nil {
			return fmt.Errorf("it has not: %+v, %v", now, err)
		}
		return nil
	})
	stop("Envoy is replaced in place")

	now, err := m.status()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(now.Envoy.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Envoy is started again", func() error {
		now, err := m.status()
		if err == nil && (now.Envoy.Restarts != 1 || !strings.Contains(now.Envoy.LastExit, "killed")) {
			err = fmt.Errorf("it is %+v", now.Envoy)
		}
		return err
	})
	m.awaitCall("requests after Envoy was killed")
	if strings.Contains(m.process.output(), invitation[6:40]) {
		t.Error("the log has the invitation")
	}
	if err := m.process.terminate(t); err != nil {
		t.Errorf("the agent: %v\n%s", err, m.process.tail())
	}
	for _, name := range []string{"xds.sock", "sds.sock", "status.sock"} {
		if _, err := os.Stat(filepath.Join(m.dir, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}

// hasCluster returns an error unless the machine's Envoy has a cluster.
func (m *agentMachine) hasCluster(name string) error {
	text, err := m.page(m.admin, "/clusters")
	if err == nil && !strings.Contains(text, name) {
		err = errors.New("it has not " + name)
	}
	return err
}

// page reads a page of the machine.
func (m *agentMachine) page(address, path string) (string, error) {
	response, err := m.client.Get("http://" + address + path)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// TestAgentDrains: at SIGTERM a request that is under way is answered, and then all ends, before the
// drain time is over.
func TestAgentDrains(t *testing.T) {
	t.Parallel()
	m := runningMachine(t)
	answered := make(chan error, 1)
	go func() { answered <- m.callFor(t.Context(), "/slow") }()
	<-m.slow
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- m.process.terminate(t) }()
	eventually(t, "Envoy drains", func() error {
		text, err := m.page(m.admin, "/ready")
		if err == nil && !strings.Contains(text, "DRAINING") {
			err = fmt.Errorf("it is %s", text)
		}
		return err
	})
	if text, err := m.page(m.ready, "/healthz/ready"); err != nil || text != "not ready: the agent ends and drains\n" {
		t.Errorf("to load balancers the machine is %q, %v", text, err)
	}
	close(m.release)
	if err := <-answered; err != nil {
		t.Errorf("a request that was under way: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the agent: %v\n%s", err, m.process.tail())
	}
	t.Logf("drained and ended in %s", time.Since(began).Round(time.Millisecond))
}

// TestAgentWithoutServers: a machine that starts while no server runs serves what it had last, and
// goes over to a server that comes.
func TestAgentWithoutServers(t *testing.T) {
	t.Parallel()
	m := runningMachine(t)
	if err := m.process.terminate(t); err != nil {
		t.Errorf("the agent: %v\n%s", err, m.process.tail())
	}
	if err := m.server.process.terminate(t); err != nil {
		t.Errorf("the server: %v", err)
	}
	began := time.Now()
	m.run()
	m.awaitCall("a request without any server")
	t.Logf("from start to the first request, without any server: %s", time.Since(began).Round(time.Millisecond))
	stop := m.load()
	m.server.start()
	eventually(t, "the machine has its server", func() error {
		now, err := m.status()
		if err == nil && (len(now.Clients) != 1 || now.Clients[0].Server != m.secureXDS) {
			err = fmt.Errorf("it has %+v", now.Clients)
		}
		return err
	})
	stop("a server comes")
}

// TestAgentIsKilled: the Envoy of a killed agent ends with it, which Envoy sees to itself
// (PR_SET_PDEATHSIG), so that nobody serves by a configuration that nobody renews. The next agent
// starts another.
func TestAgentIsKilled(t *testing.T) {
	t.Parallel()
	m := runningMachine(t)
	was, err := m.status()
	if err != nil {
		t.Fatal(err)
	}
	m.process.kill()
	eventually(t, "the Envoy of a killed agent ends", func() error {
		if err := m.call(t.Context()); err == nil {
			return errors.New("it answers")
		}
		return nil
	})
	began := time.Now()
	m.run()
	m.awaitCall("a request after the agent was killed")
	t.Logf("from start to the first request: %s", time.Since(began).Round(time.Millisecond))
	if now, err := m.status(); err != nil || now.Envoy.PID == was.Envoy.PID || now.Envoy.Restarts != 0 {
		t.Errorf("the Envoy is %+v, and was %+v: %v", now.Envoy, was.Envoy, err)
	}
}
