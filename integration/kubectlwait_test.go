package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestKubectlWaitsForObjectsOfASource: kubectl wait and kubectl get -w see each change of the status
// of an object that the server has from a cluster or a directory: the health that a control plane
// there reports, and the conditions of this server.
func TestKubectlWaitsForObjectsOfASource(t *testing.T) {
	t.Parallel()
	hub := startServer(t, serverOptions{})
	hub.apply(probedLedger, ship("shop", "web", "10.0.0.1"), ship("shop", "filed", "10.0.0.1"), route("web", ""))
	hub.setHealth("one", "False")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "filed.json"), []byte(route("filed", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, serverOptions{args: []string{"--config-kube", "east=" + hub.kubeconfigFile(t), "--config-dir", dir}})
	k := newKubectl(t, s)
	s.awaitSource("kube://east", "", 6)
	var waits sync.WaitGroup
	t.Cleanup(waits.Wait)
	wait := func(line string) <-chan string {
		out := make(chan string, 1)
		waits.Go(func() {
			text, _ := k.run("", strings.Fields("wait --timeout=60s "+line)...)
			out <- text
		})
		return out
	}
	rows := start(t, "kubectl-get-w", k.path, append(strings.Fields("get we -w -o wide --kubeconfig="+os.DevNull+" --cache-dir="+t.TempDir()), k.args...)...)
	healthy := wait("we/one --for=condition=Healthy")
	s.awaitMetric(`portolan_api_watchers{kind="WorkloadEntry"}`, "2")
	programmed := wait("vs/web vs/filed --for=condition=Programmed")
	s.awaitMetric(`portolan_api_watchers{kind="VirtualService"}`, "1") // of one after the other
	hub.setHealth("one", "True")
	eventually(t, "kubectl get -w shows the health", func() error {
		if !strings.Contains(strings.Join(strings.Fields(rows.output()), " "), " kube://east HEALTHY") {
			return fmt.Errorf("it has said\n%s", rows.output())
		}
		return nil
	})
	s.startEnvoy(envoyOptions{kind: "sidecar", name: "late", variant: protocol.Delta, ip: "10.0.0.9"})
	const met = " condition met\n"
	if out := <-healthy; out != "workloadentry.networking.istio.io/one"+met {
		t.Errorf("kubectl wait for health: %s", out)
	}
	if out := <-programmed; out != "virtualservice.networking.istio.io/web"+met+"virtualservice.networking.istio.io/filed"+met {
		t.Errorf("kubectl wait for Programmed: %s", out)
	}
	_ = rows.terminate(t) // it was ended
}
