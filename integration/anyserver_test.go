package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestAnyServerAnswers: each server of a store answers for the proxies of all of them, and
// lists have them all. A server that does not answer is named, with the number of its proxies.
func TestAnyServerAnswers(t *testing.T) {
	t.Parallel()
	etcd, x := startEtcd(t), newShop(t)
	one, two := startServer(t, serverOptions{etcd: etcd}), startServer(t, serverOptions{etcd: etcd})
	revision := one.apply(x.all(100, 0))
	one.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: protocol.Delta})
	two.startEnvoy(envoyOptions{kind: "sidecar", name: "client", labels: "app=client", ip: "10.0.0.2", variant: protocol.Delta})
	one.awaitSynced(revision, "edge")
	two.awaitSynced(revision, "client")
	for name, s := range map[string]*server{"one": one, "two": two} {
		eventually(t, "the servers know of each other's proxies", func() error {
			for _, proxy := range []string{"edge", "client"} {
				if out := s.try("", "proxy", "config", "clusters", proxy); out.code != 0 || !strings.Contains(out.stdout, shopHost) {
					return fmt.Errorf("%+v", out)
				}
			}
			return nil
		})
		out := s.must("", "proxy", "status")
		servers := map[string]bool{}
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 3 && (f[0] == "edge.shop" || f[0] == "client.shop") {
				servers[f[len(f)-6]] = true // SERVER ENVOY AGENT CERT UP CAPTURE
			}
		}
		if len(servers) != 2 || strings.Contains(out, "elsewhere") {
			t.Errorf("%s lists\n%s", name, out)
		}
		for _, proxy := range []string{"edge", "client"} {
			if out := s.try("", "proxy", "status", proxy); out.code != 0 || !strings.Contains(out.stdout, proxy+".shop") {
				t.Errorf("%s: the status of %s: %+v", name, proxy, out)
			}
			if out := s.try("", "proxy", "diff", proxy); out.code != 0 {
				t.Errorf("%s: the difference of %s: %+v", name, proxy, out)
			}
		}
		expectOutcome(t, name+": a request of the gateway", s.try("", "explain", "request", "--from", "edge", "--to", local(x.gateway), "--header", "host="+shopHost), 0, "edge.shop", "connected", "v1")
		expectOutcome(t, name+": a request of the sidecar", s.try("", "explain", "request", "--from", "client", "--to", fmt.Sprintf("%s:%d", shopHost, x.service)), 0, "client.shop", "connected", "v1")
		expectOutcome(t, name+": a check of the gateway", s.try("", "authz", "check", "--to", "edge", "--port", fmt.Sprint(x.gateway), "--header", "host="+shopHost), 0, "edge.shop", "no policy is for it")
		expectOutcome(t, name+": a wait", s.try("", "wait", "vs/reviews", "-n", "shop"), 0, "2/2 proxies")
		if out := s.try("", "explain", "request", "--from", "nobody", "--to", shopHost+":80"); out.code == 0 || !strings.Contains(out.stderr, "no proxy, WorkloadEntry or address of an endpoint is called nobody") {
			t.Errorf("%s: of nobody: %+v", name, out)
		}
	}

	if err := syscall.Kill(two.process.pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(two.process.pid(), syscall.SIGCONT) }()
	expectOutcome(t, "the other server does not answer", one.try("", "proxy", "status"), 0, "edge.shop", "elsewhere", "1 proxy", "cannot be asked from here: --server http://"+two.api)
}
