package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/integration/processtest"
)

// TestAgentComesBack: a machine that was off for longer than an expired certificate renews says what
// to do, and comes back by the token file that its own file names.
func TestAgentComesBack(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if o := m.join(m.invite(), "--ttl", "5s"); o.code != 0 {
		t.Fatalf("join: %+v", o)
	}
	if err := m.server.process.terminate(t); err != nil {
		t.Errorf("the server: %v", err)
	}
	m.server.o.args = append(m.server.o.args, "--renew-expired", "1s")
	m.server.start()
	first, err := enroll.Read(filepath.Join(m.dir, "certificate"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the certificate has expired for long", func() error {
		if left := time.Until(first.Pair.Leaf.NotAfter.Add(2 * time.Second)); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
	m.run()
	eventually(t, "the agent says what to do", func() error {
		if !strings.Contains(m.process.output(), "join the machine again (portolan-agent join)") {
			return errors.New(m.process.tail())
		}
		return nil
	})
	if err := m.process.terminate(t); err != nil {
		t.Errorf("the agent: %v", err)
	}
	token := write(t, "cloud.token", m.must("", "token", "create", "-n", "shop", "--service-account", "web"))
	file := filepath.Join(m.dir, "config.yaml")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(text, "tokenFile: "+token+"\n"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.run()
	m.awaitCall("a request of a machine that is back")
	if !strings.Contains(m.process.output(), "the machine is back by its token file") {
		t.Errorf("the agent does not say so: %s", m.process.tail())
	}
}

// TestAgentGRPC: a gRPC client without a proxy has its configuration from the agent's socket, also
// after its server was replaced. The agent runs no Envoy.
func TestAgentGRPC(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	v1, v2 := startGRPCBackend(t, "v1"), startGRPCBackend(t, "v2")
	m.apply(grpcEntry(v1))
	if o := m.join(m.invite()); o.code != 0 {
		t.Fatalf("join: %+v", o)
	}
	m.run("--no-envoy")
	eventually(t, "the agent is ready", func() error { _, err := m.status(); return err })
	c := &grpcClient{name: "go", port: freePort(t)}
	processtest.Start(t, processtest.Options{
		Name: "grpc-go", Path: needGRPCPeer(t), Args: []string{"front", "--listen", local(c.port)},
		Env: []string{"GRPC_XDS_BOOTSTRAP=" + filepath.Join(m.dir, "grpc.json")},
	})
	answers := func(name string) func() error {
		return func() error {
			got, err := do(context.WithoutCancel(t.Context()), m.client, c.call(anyMethod))
			if err == nil && (got.status != http.StatusOK || got.String() != name) {
				err = fmt.Errorf("it gets %s", got)
			}
			return err
		}
	}
	eventually(t, "the client calls", answers("v1"))
	if err := m.server.process.terminate(t); err != nil {
		t.Errorf("the server: %v", err)
	}
	if err := answers("v1")(); err != nil {
		t.Errorf("without a server: %v", err)
	}
	m.server.start()
	m.apply(grpcEntry(v2))
	eventually(t, "the client follows the next server", answers("v2"))
}
