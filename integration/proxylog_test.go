package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestProxyLogAndDisconnect: any server shows what an Envoy was sent and what it answered, what it
// costs, and ends its streams; the Envoy connects anew, and the history says who asked for it. Only
// who may administer the mesh may.
func TestProxyLogAndDisconnect(t *testing.T) {
	t.Parallel()
	etcd, x := startEtcd(t), newShop(t)
	one, two := startServer(t, serverOptions{etcd: etcd}), startServer(t, serverOptions{etcd: etcd})
	revision := one.apply(x.all(100, 0))
	two.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: protocol.Delta})
	two.awaitSynced(revision, "edge")
	root := strings.TrimSpace(one.must("", "user", "create", "root", "--role", "admin"))
	ed := strings.TrimSpace(one.must("", "user", "create", "ed", "--role", "editor", "-n", "shop", "--token", root))
	for name, s := range map[string]*server{"one": one, "two": two} {
		eventually(t, name+" has the log", func() error {
			out := s.try("", "proxy", "log", "edge", "--token", root)
			for _, want := range []string{"connected     delta, from", "CDS    requested", "LDS    sent          ", "RDS    acknowledged  after "} {
				if out.code != 0 || !strings.Contains(out.stdout, want) {
					return fmt.Errorf("no %q in %+v", want, out)
				}
			}
			return nil
		})
		expectOutcome(t, name+": top", s.try("", "proxy", "top", "--sort-by", "pushes", "--token", root), 0, "PUSHES", "edge.shop")
	}
	expectOutcome(t, "ed may look", one.try("", "proxy", "log", "edge", "-n", "shop", "--tail", "1", "--token", ed), 0, "Z  ")
	expectOutcome(t, "ed may not end it", two.try("", "proxy", "disconnect", "edge", "-n", "shop", "--token", ed), 77, "may not")
	expectOutcome(t, "root may", one.try("", "proxy", "disconnect", "edge", "-m", "to try it", "--token", root), 0, "edge.shop: 1 stream ended on server ")
	eventually(t, "the Envoy connects anew", func() error {
		out := one.try("", "proxy", "log", "edge", "--token", root)
		last := out.stdout[strings.LastIndex(out.stdout, " ended ")+1:]
		if out.code != 0 || !strings.Contains(last, "somebody who may administer the mesh has ended this stream") || !strings.Contains(last, "connected     delta") {
			return fmt.Errorf("%+v", out)
		}
		return nil
	})
	expectOutcome(t, "audit", one.try("", "audit", "--limit", "5", "--token", root), 0, "root", "proxy/shop/edge.shop disconnected", "to try it")
}
