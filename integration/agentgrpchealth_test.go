package integration

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/portolan-mesh/portolan/integration/processtest"
)

// TestAgentGRPCHealth: on a machine without an Envoy, whose program has its configuration from the
// agent's socket, the agent learns the probe on the program's stream, and reports the health of the
// machine, until no probe is there any more. The last good configuration has the probe.
func TestAgentGRPCHealth(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	v1 := startGRPCBackend(t, "v1")
	var ill atomic.Bool
	workload := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if ill.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(workload.Close)
	_, port, _ := strings.Cut(workload.Listener.Addr().String(), ":")
	const group = "apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: web, namespace: shop}\nspec:\n  template: {serviceAccount: web}\n"
	probed := fmt.Sprintf("%s  probe: {httpGet: {host: 127.0.0.1, port: %s}, periodSeconds: 1}\n", group, port)
	m.apply(grpcEntry(v1), probed)
	if o := m.join(m.invitation(m.api, m.secureXDS, "--group", "web")); o.code != 0 {
		t.Fatalf("join: %+v", o)
	}
	m.run("--no-envoy")
	eventually(t, "the agent is ready", func() error { _, err := m.status(); return err })
	c := &grpcClient{name: "go", port: freePort(t)}
	processtest.Start(t, processtest.Options{
		Name: "grpc-go", Path: needGRPCPeer(t), Args: []string{"front", "--listen", local(c.port)},
		Env: []string{"GRPC_XDS_BOOTSTRAP=" + filepath.Join(m.dir, "grpc.json")},
	})
	eventually(t, "the program calls", func() error { // before, it asks for no configuration
		got, err := do(t.Context(), m.client, c.call(anyMethod))
		if err == nil && got.status != http.StatusOK {
			err = fmt.Errorf("it gets %s", got)
		}
		return err
	})
	reported := func(state, of string) {
		t.Helper()
		eventually(t, state+" "+of, func() error {
			now, err := m.status()
			if err == nil && (now.Health == nil || now.Health.State != state || now.Health.Report == nil) {
				err = fmt.Errorf("the health is %+v", now.Health)
			}
			if err != nil {
				return err
			}
			if o := m.try("", "get", "workloadentries", "-n", "shop", "-o", "jsonpath={.items[*].status.conditions[?(@.type==\"Healthy\")].status}"); o.stdout != of {
				return fmt.Errorf("the entry: %+v", o)
			}
			return nil
		})
	}
	reported("healthy", "True")
	ill.Store(true)
	reported("unhealthy", "False")
	ill.Store(false)
	reported("healthy", "True")

	if err := m.process.terminate(t); err != nil {
		t.Errorf("the agent: %v\n%s", err, m.process.tail())
	}
	if err := m.server.process.terminate(t); err != nil {
		t.Errorf("the server: %v", err)
	}
	m.run("--no-envoy")
	eventually(t, "without a server the agent has its probe", func() error {
		now, err := m.status()
		if err == nil && (now.Health == nil || now.Health.State != "healthy") {
			err = fmt.Errorf("the health is %+v", now.Health)
		}
		return err
	})
	m.server.start()
	reported("healthy", "True")
	m.apply(group)
	eventually(t, "the probe is gone", func() error {
		now, err := m.status()
		if err == nil && now.Health != nil {
			err = errors.New("it is there")
		}
		return err
	})
}
