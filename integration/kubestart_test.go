package integration

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
)

// TestStartWithoutTheCluster: a server that starts while its cluster is away, or takes connections
// and says nothing, serves what it last knew, and does not wait for it.
func TestStartWithoutTheCluster(t *testing.T) {
	t.Parallel()
	a := kubetest.New(t)
	pod := kubetest.NewPod("shop", "web-1", "10.0.0.1", map[string]string{"app": "web"})
	a.Put(kubetest.NewNode("n1", "eu", "a"), pod, kubetest.NewSlice("shop", "web", 8080, kubetest.EndpointOf(pod)), kubetest.NewService("shop", "web", nil))
	s := startServer(t, serverOptions{args: []string{"--services-kube", kubetest.Kubeconfig(t, "east", a.URL)}})
	served := func() bool { return strings.Contains(s.must("", "describe", "service", clusterHost), "10.0.0.1") }
	if !served() {
		t.Fatal("the service of the cluster is not served")
	}
	s.awaitMetric(`portolan_leader{job="server"}`, "1") // it saves what it knows when it ends
	restart := func(args ...string) time.Duration {
		t.Helper()
		if err := s.process.terminate(t); err != nil {
			t.Fatal(err)
		}
		s.o.args = args
		began := time.Now()
		s.start()
		return time.Since(began)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() }) // whose queue takes connections, and nobody answers
	for name, url := range map[string]string{"away": "http://" + local(freePort(t)), "silent": "http://" + silent.Addr().String()} {
		with := restart("--services-kube", kubetest.Kubeconfig(t, "east", url))
		if !served() {
			t.Errorf("%s: what was last known is not served", name)
		}
		without := restart()
		t.Logf("%s: ready after %v, without a cluster after %v", name, with.Round(time.Millisecond), without.Round(time.Millisecond))
		if with > without+15*time.Second { // half of the time that it gives a cluster of which it knows nothing
			t.Errorf("%s: ready after %v, without a cluster after %v", name, with, without)
		}
	}
}
