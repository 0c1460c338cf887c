package integration

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/xds/admin"
)

// TestGRPCOverMutualTLS: clients get their configuration, and a change of it, over TLS with the
// bootstrap that the command line writes. A client whose certificate is of another namespace
// gets none.
func TestGRPCOverMutualTLS(t *testing.T) {
	t.Parallel()
	s := startSecureServer(t, serverOptions{})
	files := s.workload(t, webIdentity, time.Hour)
	bootstrap := func(f securetest.Files) []string {
		return []string{"--tls", "--cert", f.Cert, "--key", f.Key, "--ca", f.CA}
	}
	v1, v2 := startGRPCBackend(t, "v1"), startGRPCBackend(t, "v2")
	x := &shop{}
	s.apply(grpcEntry(v1, v2), x.rule(), x.routes(100, 0))
	var clients []*grpcClient
	for i, language := range []string{"go", "python"} { // the library of Node.js has no TLS to a control plane, that of Java takes no files for it
		clients = append(clients, s.startGRPCClient(language, fmt.Sprintf("10.0.1.%d", i+1), s.secureXDS, bootstrap(files)...))
	}
	for _, c := range clients {
		awaitReply(t, c.call(anyMethod), "v1")
	}
	s.apply(x.routes(0, 100))
	for _, c := range clients {
		awaitReply(t, c.call(anyMethod), "v2")
	}
	var list admin.ProxyList
	if _, err := s.get(admin.ProxiesPath, &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != len(clients) {
		t.Errorf("%d proxies", len(list.Items))
	}
	s.expectNothingRejected()

	thief := s.workload(t, "spiffe://cluster.local/ns/bank/sa/web", time.Hour)
	c := s.startGRPCClient("thief", "10.0.1.9", s.secureXDS, bootstrap(thief)...)
	eventually(t, "a client of another namespace is refused", func() error {
		if got := send(t, c.call(anyMethod)); got.status == http.StatusOK {
			return fmt.Errorf("its call is answered: %s", got)
		}
		if out := s.must("", "proxy", "status"); !strings.Contains(out, `says that it is of the namespace "shop"`) {
			return errors.New(out)
		}
		return nil
	})
}
