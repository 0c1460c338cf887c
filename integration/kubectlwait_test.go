package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestKubectlWaitsForObjectsOfASource: kubectl wait and kubectl get -w see each change of the status
// of an object that the server has from a cluster or a directory: the health that a control plane
// there reports, and the conditions of this server.
func TestKubectlWaitsForObjectsOfASource(t *testing.T) {
	t.Parallel()
	hub := startServer(t, serverOptions{})
	hub.apply(probedLedger, route("web", ""))
	hub.setHealth("one", "False")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "filed.json"), []byte(route("filed", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, serverOptions{args: []string{"--config-kube", "east=" + hub.kubeconfigFile(t), "--config-dir", dir}})
	k := newKubectl(t, s)
	s.awaitSource("kube://east", "", 4)
	open := func(line string) *process {
		t.Helper()
		return start(t, strings.ReplaceAll(line, "/", "-"), k.path, append(append(strings.Fields(line), "--kubeconfig="+os.DevNull, "--cache-dir="+t.TempDir()), k.args...)...)
	}
	says := func(p *process, words string) {
		t.Helper()
		eventually(t, p.name+" says "+words, func() error {
			if !strings.Contains(strings.Join(strings.Fields(p.output()), " "), words) {
				return fmt.Errorf("it has said\n%s", p.output())
			}
			return nil
		})
	}
	healthy := open("wait we/one --for=condition=Healthy --timeout=60s")
	rows := open("get we -w -o wide")
	s.awaitMetric(`portolan_api_watchers{kind="WorkloadEntry"}`, "2")
	programmed := open("wait vs/web vs/filed --for=condition=Programmed --timeout=60s")
	s.awaitMetric(`portolan_api_watchers{kind="VirtualService"}`, "1") // of one after the other
	hub.setHealth("one", "True")
	says(healthy, "workloadentry.networking.istio.io/one condition met")
	says(rows, " True ")
	s.startEnvoy(envoyOptions{kind: "sidecar", name: "late", variant: protocol.Delta, ip: "10.0.0.9"})
	says(programmed, "virtualservice.networking.istio.io/web condition met")
	says(programmed, "virtualservice.networking.istio.io/filed condition met")
}
