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
	two.startEnvoy(envoyOptions{kind: "sidecar", name: "client", labels: "app=client", ip: "10.0.0.2", variant: protocol.Delta})
	two.awaitSynced(revision, "client")
	root := strings.TrimSpace(one.must("", "user", "create", "root", "--role", "admin"))
	ed := strings.TrimSpace(one.must("", "user", "create", "ed", "--role", "editor", "-n", "shop", "--token", root))
	says := func(s *server, words []string, args ...string) {
		t.Helper()
		eventually(t, strings.Join(args, " "), func() error {
			out := s.try("", args...)
			for _, want := range words {
				if out.code != 0 || !strings.Contains(out.stdout, want) {
					return fmt.Errorf("no %q in %+v", want, out)
				}
			}
			return nil
		})
	}
	for _, s := range []*server{one, two} {
		says(s, []string{"connected     delta, from", "CDS    requested", "CDS    sent          ", "CDS    acknowledged  after "}, "proxy", "log", "client", "--token", root)
		says(s, []string{"PUSHES", "client.shop"}, "proxy", "top", "--sort-by", "pushes", "--token", root)
	}
	says(one, []string{"Z  "}, "proxy", "log", "client", "-n", "shop", "--tail", "3", "--token", ed)
	if out := two.try("", "proxy", "disconnect", "client", "-n", "shop", "--token", ed); out.code != 77 || !strings.Contains(out.stderr, `user "ed" may not `) {
		t.Errorf("ed ends it: %+v", out)
	}
	// The first users end the streams of who has proved nothing, so that it may just connect anew.
	says(one, []string{"client.shop: 1 stream ended on server "}, "proxy", "disconnect", "client", "-m", "to try it", "--token", root)
	eventually(t, "the Envoy connects anew", func() error {
		out := one.try("", "proxy", "log", "client", "--token", root)
		_, after, ended := strings.Cut(out.stdout, "somebody who may administer the mesh has ended this stream")
		if out.code != 0 || !ended || !strings.Contains(after, "connected     delta") || !strings.Contains(after, "CDS    requested") {
			return fmt.Errorf("%+v", out)
		}
		return nil
	})
	expectOutcome(t, "audit", one.try("", "audit", "--limit", "5", "--token", root), 0, "root", "proxy/shop/client.shop disconnected", "to try it")
}
