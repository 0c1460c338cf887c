package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bootstrapPatch is an EnvoyFilter that merges a value into bootstraps.
func bootstrapPatch(name, value string) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: %s, namespace: shop}\nspec:\n  configPatches:\n  - applyTo: BOOTSTRAP\n    patch:\n      operation: MERGE\n      value: %s\n", name, value)
}

// TestAgentPatchesTheBootstrap: what EnvoyFilters say of the bootstrap is in that of a machine's Envoy,
// without a lost request. What an Envoy refuses is told and changes nothing, and the agent's file guards
// what the machine's owner decides.
func TestAgentPatchesTheBootstrap(t *testing.T) {
	t.Parallel()
	m := runningMachine(t)
	dumped := func(want string, has bool) error {
		m.client.CloseIdleConnections() // they lead to the Envoy before
		text, err := m.page(m.admin, "/config_dump")
		if err == nil && strings.Contains(text, want) != has {
			err = fmt.Errorf("the dump has %s: %t, want %t", want, !has, has)
		}
		return err
	}
	told := func(what string, words ...string) {
		t.Helper()
		eventually(t, what, func() error {
			out := m.agent("status")
			for _, word := range words {
				if !strings.Contains(out.stdout, word) {
					return fmt.Errorf("the status says nothing of %q: %s%s", word, out.stdout, out.stderr)
				}
			}
			return nil
		})
	}
	stop := m.load()
	good := bootstrapPatch("layer", `{layered_runtime: {layers: [{name: mine, static_layer: {own.key: 7}}]}, admin: {profile_path: /nowhere/of-a-patch}}`)
	m.apply(good)
	eventually(t, "the layer is in the bootstrap", func() error { return dumped("own.key", true) })
	if err := dumped("of-a-patch", false); err != nil {
		t.Error(err)
	}
	told("what is in force", "in force: layered_runtime", "left out: admin (envoy.patches of the agent's file)")
	m.awaitCall("a request by the patched bootstrap")
	before, err := m.status()
	if err != nil {
		t.Fatal(err)
	}
	bad := bootstrapPatch("no-cluster", `{static_resources: {clusters: [{name: a, cluster_type: {name: no.such.type}}]}}`)
	m.apply(bad)
	told("what is refused", "not in force: the Envoy refuses the bootstrap", "no.such.type")
	eventually(t, "the Envoy runs without patches", func() error { return dumped("own.key", false) })
	m.awaitCall("a request after the refused patch")
	m.remove(bad)
	eventually(t, "the good one is in force again", func() error { return dumped("own.key", true) })
	m.awaitCall("a request after the bad one is gone")
	stop("while bootstraps were patched")
	if now, err := m.status(); err != nil || now.Envoy.Restarts != before.Envoy.Restarts {
		t.Errorf("the Envoy was started again: %+v, %v", now.Envoy, err)
	}
	eventually(t, "the server is told", func() error {
		if out := m.server.try("", "proxy", "status", "-o", "json"); !strings.Contains(out.stdout, "in force: layered_runtime") {
			return errors.New(out.stdout + out.stderr)
		}
		return nil
	})
}

// TestAgentStartsWithoutBadPatches: an Envoy that takes its bootstrap and yet ends by it is started
// again without the patches.
func TestAgentStartsWithoutBadPatches(t *testing.T) {
	t.Parallel()
	m := runningMachine(t)
	file := filepath.Join(m.dir, "config.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "envoy:\n", "envoy:\n  patches: all\n", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	m.run()
	m.awaitCall("a request with all patches allowed")
	m.apply(bootstrapPatch("admin", `{admin: {address: {socket_address: {address: 192.0.2.1, port_value: 9}}}}`))
	eventually(t, "the patch is blamed", func() error {
		out := m.agent("status")
		if !strings.Contains(out.stdout, "not in force: an Envoy that started with them has ended") {
			return errors.New(out.stdout + out.stderr)
		}
		return nil
	})
	m.awaitCall("a request without the patch")
	if err := m.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	m.run()
	m.awaitCall("a request after a start with the patch kept")
}

// TestBootstrapIsPatched: the command prints what EnvoyFilters say of the bootstrap of a proxy that need
// not be there, and a real Envoy takes it.
func TestBootstrapIsPatched(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	s.apply(bootstrapPatch("all", `{stats_flush_interval: 9s, stats_sinks: [{name: envoy.stat_sinks.statsd, typed_config: {"@type": type.googleapis.com/envoy.config.metrics.v3.StatsdSink, address: {socket_address: {address: 127.0.0.1, port_value: 8125}}}}], admin: {address: {pipe: {path: /run/a}}}}`))
	args := []string{"bootstrap", "--name", "vm", "--ip", "10.0.0.1", "-n", "shop"}
	plain, patched := s.try("", args...), s.try("", append(args, "--proxy-config")...)
	if patched.code != 0 || strings.Contains(plain.stdout, "statsd") {
		t.Fatalf("%+v, and without patches %+v", patched, plain)
	}
	for _, want := range []string{"stats_flush_interval: 9s", "port_value: 8125", "path: /run/a", "xds-grpc"} {
		if !strings.Contains(patched.stdout, want) {
			t.Errorf("it lacks %s:\n%s", want, patched.stdout)
		}
	}
	if want := "look at admin before the proxy starts"; !strings.Contains(patched.stderr, want) {
		t.Errorf("it does not say %q: %s", want, patched.stderr)
	}
	config := write(t, "patched.yaml", patched.stdout)
	if out, err := exec.CommandContext(t.Context(), needEnvoy(t), "--mode", "validate", "--log-level", "warning", "-c", config).CombinedOutput(); err != nil {
		t.Errorf("Envoy refuses it: %v\n%s", err, out)
	}
	if other := s.try("", "bootstrap", "--name", "vm", "--ip", "10.0.0.1", "-n", "bank", "--proxy-config"); other.code != 0 || strings.Contains(other.stdout, "statsd") {
		t.Errorf("another namespace: %+v", other)
	}
}
