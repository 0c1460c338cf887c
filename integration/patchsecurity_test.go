package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestPatchesThatOpen: an editor's EnvoyFilter that removes what a policy is made of is refused with
// words, and an admin's is written, warned of and takes effect. A value that Envoy does not take is
// refused at its path. A dry run says the same.
func TestPatchesThatOpen(t *testing.T) {
	t.Parallel()
	s, edge, q := startPatched(t, protocol.Delta, "--trust-loopback-proxies")
	token := func(name, role string) string {
		return strings.TrimSpace(s.must("", "user", "create", name, "--role", role, "-n", "shop"))
	}
	s.must("", "user", "create", "alice", "--role", "admin")
	editor, admin := token("eve", "editor"), token("ann", "admin")
	s.must(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: shut, namespace: shop}
spec: {selector: {matchLabels: {app: edge}}, action: DENY, rules: [{}]}
`, "apply", "-f", "-", "--token", editor)
	awaitReply(t, q, "403")

	opens := envoyFilter(`
  - applyTo: HTTP_FILTER
    match: {context: GATEWAY, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.rbac}}}}}
    patch: {operation: REMOVE}
`)
	faulty := envoyFilter(`
  - applyTo: CLUSTER
    patch: {operation: MERGE, value: {connect_timeout: soon}}
  - applyTo: LISTENER
    patch: {operation: MERGE, value: {listener_filters: [{name: untyped}]}}
`)
	try := func(what, token, document string, code int, words ...string) {
		t.Helper()
		for _, dry := range []string{"--dry-run=server", "--dry-run=none"} {
			out := s.try(document, "apply", "-f", "-", "--token", token, dry)
			if out.code != code {
				t.Errorf("%s %s: exit code %d: %s", what, dry, out.code, out.stderr)
			}
			for _, want := range words {
				if !strings.Contains(out.stderr, want) {
					t.Errorf("%s %s: lacks %q: %s", what, dry, want, out.stderr)
				}
			}
		}
	}
	const removes = "spec.configPatches[0].match removes the filter envoy.filters.http.rbac"
	try("faulty", admin, faulty, 65, "envoyfilter/shop/patch", "spec.configPatches[0].patch.value", "soon", "spec.configPatches[1].patch.value", "untyped")
	try("an editor", editor, opens, 77, "envoyfilter/shop/patch: "+removes, `user "eve" may not patch-security envoyfilters "patch" in namespace shop`)
	if out := s.must("", "get", "envoyfilters", "-n", "shop", "-o", "name"); strings.TrimSpace(out) != "" {
		t.Errorf("something was written: %s", out)
	}
	for user, code := range map[string]int{editor: 1, admin: 0} {
		if out := s.try("", "auth", "can-i", "patch-security", "envoyfilters", "-n", "shop", "--token", user); out.code != code {
			t.Errorf("can-i: exit code %d, want %d: %s%s", out.code, code, out.stdout, out.stderr)
		}
	}
	awaitReply(t, q, "403")
	try("an admin", admin, opens, 0, "PTL0473", removes)
	awaitReply(t, q, "app")
	if out := s.must("", "authz", "check", "--to", "edge", "--port", fmt.Sprint(q.port), "--header", "host="+q.host); !strings.Contains(out, "by envoyfilter/shop/patch: "+removes) {
		t.Errorf("authz check: %s", out)
	}
	eventually(t, "the object says what it opens", func() error {
		if shown := s.must("", "describe", "envoyfilter/patch", "-n", "shop"); !strings.Contains(shown, "PTL0473") || !strings.Contains(shown, "removes the filter envoy.filters.http.rbac") {
			return fmt.Errorf("%s", shown)
		}
		return nil
	})
	eventually(t, "the policy says who opens it", func() error {
		if shown := s.must("", "describe", "authorizationpolicy/shut", "-n", "shop"); !strings.Contains(shown, "PTL0474") || !strings.Contains(shown, "envoyfilter/shop/patch") {
			return fmt.Errorf("%s", shown)
		}
		return nil
	})
	s.must("", "delete", "envoyfilter/patch", "-n", "shop", "--token", editor)
	awaitReply(t, q, "403")
	edge.expectNothingRejected()
}
