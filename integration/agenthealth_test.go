package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// healthMachine is a machine whose agent probes its application, and a client of it.
type healthMachine struct {
	*agentMachine
	app       string // the port of the application
	ill       atomic.Bool
	refuses   atomic.Int64 // requests that the application got while it was ill
	clientEnv *envoy
	to        request // from the client to the application
}

// newHealthMachine makes the mesh. The application at 127.0.0.1 answers 503 to all while it is ill.
func newHealthMachine(t testing.TB) *healthMachine {
	m := &healthMachine{agentMachine: newMachine(t)}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.ill.Load() {
			if r.URL.Path != "/ready" {
				m.refuses.Add(1)
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"upstream": "vm"}`)
	}))
	t.Cleanup(app.Close)
	_, m.app, _ = net.SplitHostPort(app.Listener.Addr().String())
	m.to = request{port: freePort(t), host: "web.shop.test"}
	m.apply(webService(m.to.port))
	m.clientEnv = m.launchEnvoy(envoyOptions{kind: "sidecar", name: "client", ip: "10.0.0.8", variant: protocol.Delta})
	return m
}

// group returns the WorkloadGroup of the machine, with a probe; empty for none.
func (m *healthMachine) group(probe string) string {
	if probe != "" {
		probe = "\n  probe: " + probe
	}
	return fill(`
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec:
  metadata: {labels: {app: web, security.istio.io/tlsMode: disabled}}
  template: {serviceAccount: web, ports: {http: $port}}$probe
`, "$port", m.app, "$probe", probe)
}

// get is a probe of the application by HTTP, once a second.
func (m *healthMachine) get() string {
	return "{httpGet: {port: " + m.app + ", path: /ready}, periodSeconds: 1}"
}

// joinGroup joins the machine to its group, joinAlone without one. Both run the agent.
func (m *healthMachine) joinGroup() {
	m.t.Helper()
	line := strings.TrimSpace(m.must("", "machine", "invite", "-n", "shop", "--group", "web", "--api-url", "https://"+m.api, "--xds-address", m.secureXDS))
	m.joinBy(strings.TrimPrefix(line, "portolan-agent join "))
}

func (m *healthMachine) joinBy(invitation string) {
	m.t.Helper()
	if o := m.agent("join", invitation, "--dir", m.dir, "--name", "web", "--ip", "127.0.0.1", "--envoy", needEnvoy(m.t), "--admin-address", m.admin,
		"--metrics-address", m.metrics, "--ready-address", m.ready); o.code != 0 {
		m.t.Fatalf("join: %+v", o)
	}
	m.run()
}

// endpoint says whether the client's Envoy has the application as an endpoint.
func (m *healthMachine) endpoint() (bool, error) {
	text, err := m.clientEnv.get("/clusters")
	return strings.Contains(string(text), fmt.Sprintf("outbound|%d||web.shop.test::127.0.0.1:%s::", m.to.port, m.app)), err
}

// awaitEndpoint waits until it has, or has not, and returns when.
func (m *healthMachine) awaitEndpoint(what string, want bool) time.Time {
	m.t.Helper()
	for end := time.Now().Add(patience); ; {
		has, err := m.endpoint()
		if err == nil && has == want {
			return time.Now()
		}
		if time.Now().After(end) {
			m.t.Fatalf("%s: the client has the endpoint: %v, %v\n%s", what, has, err, m.process.tail())
		}
	}
}

// health is the part of the agent's status that tests look at.
type agentHealth struct {
	Probe, Origin, State, Result string
	Report                       *struct {
		Healthy bool
		Why     string
		At      time.Time
	}
}

func (m *healthMachine) health() (*agentHealth, error) {
	now, err := m.status()
	return now.Health, err
}

// awaitHealth waits until the status of the agent, as a line, has a text.
func (m *healthMachine) awaitHealth(what, text string) {
	m.t.Helper()
	eventually(m.t, what, func() error {
		now, err := m.health()
		if err != nil {
			return err
		}
		line := "no probe"
		if now != nil {
			line = fmt.Sprintf("%s, of %s: %s %s", now.Probe, now.Origin, now.State, now.Result)
		}
		if !strings.Contains(line, text) {
			return errors.New(line)
		}
		return nil
	})
}

// awaitReady waits until a page says that the machine is ready, or why not.
func (m *healthMachine) awaitReady(what, address string, code int, text string) {
	m.t.Helper()
	eventually(m.t, what, func() error {
		response, err := m.client.Get("http://" + address + "/healthz/ready")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err == nil && (response.StatusCode != code || !strings.Contains(string(body), text) || strings.Count(string(body), "\n") != 1) {
			err = fmt.Errorf("it says %s: %s", response.Status, body)
		}
		return err
	})
}

// loadClient sends some 500 requests a second from the client until it is stopped.
func (m *healthMachine) loadClient() (stop func(what string)) {
	var sent, failed atomic.Int64
	call := func(ctx context.Context) {
		if got, err := do(ctx, m.client, m.to); ctx.Err() == nil && (err != nil || got.String() != "vm" && got.String() != "always") {
			failed.Add(1)
			m.t.Logf("a request under load: %s, %v", got, err)
		}
		sent.Add(1)
	}
	end := atPace(m.t, call, call, call, call)
	began := time.Now()
	return func(what string) {
		end()
		m.t.Logf("%s: %d of %d requests failed, in %s", what, failed.Load(), sent.Load(), time.Since(began).Round(time.Millisecond))
		// A retry may choose the ill application again, as with Istio's defaults.
		if failed.Load() > sent.Load()/1000 {
			m.t.Errorf("%s: %d requests failed", what, failed.Load())
		}
	}
}

// TestAgentHealth: while requests flow, an application that falls ill leaves its clients'
// endpoints, and stays in the mesh: its machine has its stream, its entry, and calls others. It
// comes back when it is well. The time from the agent's report to the client is printed.
func TestAgentHealth(t *testing.T) {
	t.Parallel()
	m := newHealthMachine(t)
	always := startUpstream(t, "always")
	m.apply(m.group(m.get()), fill(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: always, namespace: shop}
spec: {address: 127.0.0.1, ports: {http: $port}, labels: {app: web}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.test]
  http: [{route: [{destination: {host: web.shop.test}}], retries: {attempts: 3, retryOn: "5xx"}}]
`, "$port", always.port))
	awaitReply(t, m.to, "always")
	m.joinGroup()
	m.awaitEndpoint("at first", true)
	m.awaitReady("the machine is ready", m.ready, http.StatusOK, "ready")
	m.awaitReady("and says so beside its metrics", m.metrics, http.StatusOK, "ready")

	const flips = 10
	var out []time.Duration
	stop := m.loadClient()
	for range flips {
		m.ill.Store(true)
		left := m.awaitEndpoint("ill", false)
		now, err := m.health()
		if err != nil || now == nil || now.Report == nil || now.Report.Healthy || !strings.HasSuffix(now.Report.Why, "/ready: 503 Service Unavailable") {
			t.Fatalf("the report is %+v, %v", now, err)
		}
		out = append(out, left.Sub(now.Report.At))
		if err := m.call(t.Context()); err != nil {
			t.Errorf("a call of the ill machine: %v", err)
		}
		m.ill.Store(false)
		m.awaitEndpoint("well", true)
	}
	stop("the application falls ill ten times")
	slices.Sort(out)
	t.Logf("from the agent's report to the client without the endpoint, over %d: p50 %s, p99 %s; requests that met the ill application: %d",
		flips, out[flips/2].Round(100*time.Microsecond), out[flips-1].Round(100*time.Microsecond), m.refuses.Load())

	m.ill.Store(true)
	m.awaitEndpoint("ill again", false)
	m.awaitReady("the machine is not ready", m.ready, http.StatusServiceUnavailable, "not ready: the workload is unhealthy: GET http://127.0.0.1:"+m.app+"/ready: 503 Service Unavailable")
	m.server.awaitHealth("web-127.0.0.1", "/ready: 503 Service Unavailable")
	for _, object := range []string{"workloadentry/web-127.0.0.1", "workloadgroup/web"} {
		if text := m.must("", "describe", object, "-n", "shop"); !strings.Contains(text, "/ready: 503 Service Unavailable") {
			t.Errorf("describe %s does not say why:\n%s", object, text)
		}
	}
	if now, err := m.status(); err != nil || len(now.Clients) != 1 || now.Clients[0].Server != m.secureXDS {
		t.Errorf("the ill machine has %+v, %v", now.Clients, err)
	}
	if text, err := m.page(m.metrics, "/metrics"); err != nil || !strings.Contains(text, "\nportolan_agent_healthy 0\n") || !strings.Contains(text, "\nportolan_agent_health_reports_total 2") ||
		strings.Contains(text, "\nportolan_agent_probe_failures_total 0\n") {
		t.Errorf("the metrics do not tell: %v", err)
	}
	if o := m.agent("status"); !strings.Contains(o.stdout, "503 Service Unavailable") || !strings.Contains(o.stdout, "workloadgroup/shop/web") {
		t.Errorf("status for people: %+v", o)
	}
}

// TestAgentHealthOutlivesItsParts: an ill machine stays out while its server is killed and
// replaced, and while its agent is killed or ends and starts again. An Envoy that is killed takes the
// machine out, and brings it back.
func TestAgentHealthOutlivesItsParts(t *testing.T) {
	t.Parallel()
	m := newHealthMachine(t)
	m.apply(m.group(m.get()))
	m.joinGroup()
	m.awaitEndpoint("at first", true)
	m.ill.Store(true)
	m.awaitEndpoint("ill", false)
	// never watches the client until it is told to end.
	never := func() (end func(what string)) {
		var seen atomic.Int64
		stop := atPace(t, func(context.Context) {
			if has, err := m.endpoint(); err == nil && has {
				seen.Add(1)
			}
		})
		return func(what string) {
			stop()
			if n := seen.Load(); n > 0 {
				t.Errorf("%s: the client had the endpoint %d times", what, n)
			}
		}
	}
	end := never()
	m.server.process.kill()
	m.server.start()
	m.apply(plainEntry("later"))
	eventually(t, "the machine has the next server", func() error { return m.hasCluster("outbound|80||later.shop.example") })
	m.clientEnv.awaitCluster("outbound|80||later.shop.example", true)
	end("the server is replaced")

	end = never()
	m.process.kill()
	m.run()
	m.awaitHealth("the next agent has its first result", "unhealthy")
	end("the agent is killed")
	end = never()
	if err := m.process.terminate(t); err != nil {
		t.Errorf("the agent: %v", err)
	}
	m.run()
	m.awaitHealth("the next agent has its first result", "unhealthy")
	m.awaitEntry("127.0.0.1", true)
	end("the agent is restarted")

	m.ill.Store(false)
	m.awaitEndpoint("well", true)
	now, err := m.status()
	if err != nil || now.Envoy.PID == 0 {
		t.Fatalf("the Envoy is %+v, %v", now.Envoy, err)
	}
	if err := syscall.Kill(now.Envoy.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	m.awaitEndpoint("its Envoy hangs", false)
	m.server.awaitHealth("web-127.0.0.1", "the Envoy does not answer")
	if err := syscall.Kill(now.Envoy.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.awaitEndpoint("its next Envoy is live", true)
	if o := m.agent("restart-envoy"); o.code != 0 {
		t.Errorf("restart-envoy: %+v", o)
	}
	before, err := m.health()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Envoy is replaced in place", func() error {
		if now, err := m.status(); err != nil || now.Envoy.Epoch != 1 {
			return fmt.Errorf("it is %+v, %v", now.Envoy, err)
		}
		return nil
	})
	m.awaitReady("with the next Envoy", m.ready, http.StatusOK, "ready")
	if after, err := m.health(); err != nil || *after.Report != *before.Report {
		t.Errorf("an Envoy that is replaced in place is reported: %+v, %v", after, err)
	}
}

// TestAgentFollowsItsProbe: agents follow the probe of their group at once: an edited one, none,
// and one that runs a program, which the machine has to allow.
func TestAgentFollowsItsProbe(t *testing.T) {
	t.Parallel()
	m := newHealthMachine(t)
	m.apply(m.group(""))
	m.joinGroup()
	m.awaitEndpoint("a group without a probe", true)
	m.awaitHealth("no probe", "no probe")
	nobody := freePort(t)
	m.apply(m.group(fmt.Sprintf("{tcpSocket: {port: %d}, periodSeconds: 1}", nobody)))
	m.awaitHealth("a probe that fails", fmt.Sprintf("tcp 127.0.0.1:%d, of workloadgroup/shop/web: unhealthy tcp 127.0.0.1:%d: connection refused", nobody, nobody))
	m.awaitEndpoint("a probe that fails", false)
	m.apply(m.group("{tcpSocket: {port: " + m.app + "}, periodSeconds: 1}"))
	m.awaitEndpoint("an edited probe", true)
	m.apply(m.group("{exec: {command: [test, -e, " + m.dir + "/fit]}, periodSeconds: 1}"))
	m.awaitEndpoint("a program that is not allowed", false)
	m.server.awaitHealth("web-127.0.0.1", "health.exec")
	m.apply(m.group(""))
	m.awaitEndpoint("the probe is removed", true)
	m.awaitHealth("the probe is removed", "no probe")
	m.server.awaitHealth("web-127.0.0.1", `status: "True"`)

	if err := m.process.terminate(t); err != nil {
		t.Errorf("the agent: %v", err)
	}
	file := filepath.Join(m.dir, "config.yaml")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(text, "\nhealth: {exec: true}\n"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.apply(m.group("{exec: {command: [test, -e, " + m.dir + "/fit]}, periodSeconds: 1}"))
	m.run()
	m.awaitHealth("an allowed program", "unhealthy exec test -e "+m.dir+"/fit: exit status 1")
	if err := os.WriteFile(filepath.Join(m.dir, "fit"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.awaitEndpoint("the program succeeds", true)
}

// TestAgentProbesForAStaticEntry: a WorkloadEntry that nobody registered names its probe by an
// annotation. It gets no requests before the first report, nor after its agent has ended.
func TestAgentProbesForAStaticEntry(t *testing.T) {
	t.Parallel()
	m := newHealthMachine(t)
	entry := func(probe string) string {
		return fill(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: web, namespace: shop, annotations: {portolan.io/probe: '$probe'}}
spec: {address: 127.0.0.1, ports: {http: $port}, labels: {app: web}, serviceAccount: web}
`, "$probe", probe, "$port", m.app)
	}
	if o := m.try(entry("{httpGet: {}}"), "apply", "-f", "-"); o.code == 0 || !strings.Contains(o.stderr, "metadata.annotations[portolan.io/probe].httpGet.port: must be a port") {
		t.Errorf("a probe without a port: %+v", o)
	}
	m.apply(entry(m.get()), plainEntry("later"))
	m.clientEnv.awaitCluster("outbound|80||later.shop.example", true)
	if has, err := m.endpoint(); err != nil || has {
		t.Errorf("before the first report the client has the endpoint: %v, %v", has, err)
	}
	m.joinBy(m.invite())
	m.awaitEndpoint("the first report", true)
	m.awaitHealth("the probe", "of workloadentry/shop/web: healthy")
	m.awaitStatus("whose entry it is", "an entry that somebody has written, workloadentry/shop/web")
	const undo = "portolan machine drain web -n shop --end takes it back"
	if o := m.try("", "machine", "drain", "web", "-n", "shop", "--reason", "a disk"); o.code != 0 || !strings.Contains(o.stderr, undo) {
		t.Errorf("a drain: %+v", o)
	}
	m.awaitStatus("the drain", "workloadentry/shop/web; drained by the mesh's operators: a disk: "+undo)
	m.awaitReady("the drain", m.ready, 503, "the mesh's operators have drained the machine: a disk")
	m.must("", "machine", "drain", "web", "-n", "shop", "--end")
	m.awaitReady("the end of the drain", m.ready, 200, "ready")
	drainsItself := func(what string, want bool) {
		t.Helper()
		began := time.Now()
		eventually(t, what, func() error {
			if text := m.must("", "machine", "describe", "web", "-n", "shop"); strings.Contains(text, "drains itself") != want {
				return errors.New(text)
			}
			return nil
		})
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s: people see it after %v", what, took)
		}
	}
	if o := m.agent("drain", "--reason", "a disk", "--timeout", "1s"); o.code != 0 && o.code != 3 {
		t.Errorf("the machine drains itself: %+v", o)
	}
	drainsItself("its own drain", true)
	if o := m.agent("resume"); o.code != 0 {
		t.Errorf("resume: %+v", o)
	}
	drainsItself("the end of its own drain", false)
	m.awaitEndpoint("it is back", true)
	m.ill.Store(true)
	m.awaitEndpoint("ill", false)
	m.server.awaitHealth("web", "503 Service Unavailable")
	m.ill.Store(false)
	m.awaitEndpoint("well", true)
	if err := m.process.terminate(t); err != nil {
		t.Errorf("the agent: %v", err)
	}
	m.awaitEndpoint("the agent has ended", false)
	began := time.Now()
	if o := m.applyWait([]string{plainEntry("unawaited")}); o.code != 0 || !strings.Contains(o.stdout+o.stderr, "offline") || time.Since(began) > 10*time.Second {
		t.Errorf("a change waits for the machine whose agent has ended: %+v, after %v", o, time.Since(began))
	}
}

// awaitStatus waits until the agent's status has a text.
func (m *healthMachine) awaitStatus(what, text string) {
	m.t.Helper()
	eventually(m.t, what, func() error {
		if o := m.agent("status"); o.code != 0 || !strings.Contains(o.stdout, text) {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
}
