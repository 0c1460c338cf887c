package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestRequireATokenPage applies the objects of docs/tasks/require-a-token.md, with an issuer on
// this machine, save the AuthorizationPolicy that completes them.
func TestRequireATokenPage(t *testing.T) {
	issuer, port := jwkstest.Plain(t), freePort(t)
	objects := pageObjects(t, "require-a-token.md", 3, strings.NewReplacer("https://accounts.example", issuer.URL))
	s := startServer(t, serverOptions{})
	edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: protocol.Delta})
	s.apply(append(objects[:2], fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {selector: {app: edge}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ["*"]}]}
`, port))...)
	s.awaitSynced(s.revision(), "edge")
	answers := func(header map[string]string, status int, body string) {
		t.Helper()
		eventually(t, fmt.Sprint(status, " ", body), func() error {
			q := request{port: port, host: "web.shop.example", header: header}
			if got, err := do(t.Context(), clientOf(t), q); err != nil || got.status != status || !strings.Contains(got.body, body) {
				return fmt.Errorf("%s %s, %w", got, got.body, err)
			}
			return nil
		})
	}
	token := func(other map[string]any) map[string]string {
		return map[string]string{"Authorization": "Bearer " + issuer.Sign(t, claimsOf(issuer.URL, other))}
	}
	answers(token(map[string]any{"groups": []string{"testers"}}), 200, "the next version")
	answers(token(nil), 200, "this version")
	answers(token(map[string]any{"aud": "bank"}), 403, "")
	answers(map[string]string{"Authorization": "Bearer nonsense"}, 401, "")
	answers(nil, 200, "this version")
	edge.expectNothingRejected()
}
