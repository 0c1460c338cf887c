package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestDryRunForeseesWhatSecretsOpen: the dry run of storing a secret says which listener of a
// gateway it opens, that of a deletion which one closes. A replaced secret opens nothing. A dry
// run changes nothing.
func TestDryRunForeseesWhatSecretsOpen(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		first, second := secrettest.New(t, time.Hour, "door.shop.test"), secrettest.New(t, time.Hour, "door.shop.test")
		s.apply(x.entry(x.v1), secureGateway(x.gateway, "door"))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		door, listener := newTLSClient(x.gateway, "door.shop.test", first, second), fmt.Sprintf("127.0.0.1_%d", x.gateway)
		dryRun := func(what, document string, opens bool, args ...string) {
			t.Helper()
			out := s.must(document, append(args, "--dry-run=server", "--xds")...)
			concerned := strings.Contains(out, "\nConcerned: 1 of 1 proxies: edge.shop.\n")
			if concerned != opens || strings.Contains(out, listener) != opens || opens != strings.Contains(out, "LDS") {
				t.Errorf("%s: the dry run says\n%s", what, out)
			}
		}
		dryRun("a new secret", tlsSecret("door", first), true, "apply", "-f", "-")
		awaitClosed(t, x.gateway)
		s.awaitSynced(s.apply(tlsSecret("door", first)), "edge")
		door.awaitCertificate(t, first)
		dryRun("another certificate", tlsSecret("door", second), false, "apply", "-f", "-")
		dryRun("no secret", "", true, "delete", "secret/door", "-n", "shop")
		if got, err := door.presented(t.Context()); err != nil || got != serial(first.Parsed) {
			t.Errorf("after the dry runs clients get %s, %v", got, err)
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}
