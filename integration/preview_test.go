package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestDryRunSaysWhoIsConcerned: a change affects real Envoys as its dry run has said.
func TestDryRunSaysWhoIsConcerned(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(100, 0))
		s.startPair(v)
		for name, c := range map[string]struct {
			document, concerned, resource string
			accepted                      int
		}{
			"routes of both": {x.routes(50, 50), "Concerned: 2 of 2 proxies: edge.shop, client.shop.\n", "VHDS", 2},
			"for nobody":     {fill(unseen, "$round", 1), "No proxy is concerned, of 2 connected.", "", 0},
		} {
			out := s.must(c.document, "apply", "-f", "-", "--dry-run=server", "--xds=diff")
			if !strings.Contains(out, " (dry run)\n--- ") || !strings.Contains(out, "\n"+c.concerned) || !strings.Contains(out, c.resource) {
				t.Errorf("%s: the dry run says\n%s", name, out)
			}
			if out := s.try(c.document, "diff", "-f", "-"); out.code != 2 {
				t.Errorf("%s: the dry run has changed something: diff, %d, says %s%s", name, out.code, out.stdout, out.stderr)
			}
			code := 0
			if c.accepted == 0 {
				code = 3
			}
			expectOutcome(t, name, s.applyWait([]string{c.document}), code, "distributed  2/2 proxies", fmt.Sprintf("accepted %d  not concerned %d", c.accepted, 2-c.accepted))
		}

		out := s.must("", "delete", "dr/reviews", "-n", "shop", "--dry-run=server", "--xds")
		for _, line := range []string{"destinationrule/shop/reviews  deleted (dry run)\n", "\n+++ /dev/null\n", "\nConcerned: 2 of 2 proxies: ", "removed  2 proxies"} {
			if !strings.Contains(out, line) {
				t.Errorf("the dry run of a delete does not say %q:\n%s", line, out)
			}
		}
		expectOutcome(t, "a delete", s.try("", "delete", "vs/reviews", "-n", "shop", "--wait"), 0, "deleted", "distributed  2/2 proxies", "accepted 2")
		expectOutcome(t, "a rollback", s.try("", "rollback", "vs/reviews", "-n", "shop", "--to-revision", fmt.Sprint(s.revision()-1), "--wait"), 0, "created", "accepted 2")
	})
}

// TestDryRunAndGRPCClients: a dry run lists a gRPC client if a resource that it requested would
// change.
func TestDryRunAndGRPCClients(t *testing.T) {
	s := startServer(t, serverOptions{})
	s.apply(sound, strings.NewReplacer("web", "api").Replace(sound))
	node := xdstest.NewNode("sidecar", "10.0.0.9", "caller", "shop", nil)
	node.Metadata.Fields["GENERATOR"] = structpb.NewStringValue("grpc")
	client := xdstest.Dial(t, s.xds, xdstest.ClientOptions{Node: node})
	client.Subscribe(xdstest.ListenerType, "web.example.com:80")
	client.Subscribe(xdstest.RouteType, "outbound|80||web.example.com")
	client.Await("routes", func(held func(string) map[string]xdstest.Held) bool { return len(held(xdstest.RouteType)) > 0 })
	for name, concerned := range map[string]int{"web": 1, "api": 0} {
		document := strings.Replace(strings.NewReplacer("web", name).Replace(sound), "subset: v1}}]}]", "subset: v1}}], timeout: 3s}]", 1)
		eventually(t, "the dry run of a change of "+name, func() error { // a busy connection counts as affected
			var result batch.Result
			if err := json.Unmarshal([]byte(s.must(document, "apply", "-f", "-", "--dry-run=server", "--xds", "-o", "json")), &result); err != nil {
				t.Fatal(err)
			}
			if result.Effect == nil || result.Effect.Proxies != 1 || result.Effect.Concerned != concerned {
				return fmt.Errorf("%+v", result.Effect)
			}
			return nil
		})
	}
}
