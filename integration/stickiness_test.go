package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// stickyRule has two subsets, between which requests are hashed.
func stickyRule(hash string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec:
  host: $host
  trafficPolicy: {loadBalancer: {consistentHash: $hash}}
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}}
`, "$host", shopHost, "$hash", hash)
}

// TestEnvoyUsersStickToADestination: with a hash and two weighted destinations each user always
// gets the same one, at a gateway and at a sidecar; and about as many users get each. That is
// so for a header, and for the cookie that Envoy makes, from its first return on.
func TestEnvoyUsersStickToADestination(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(50, 50))
		edge, client := s.startPair(v)
		const users = 40
		at := map[string]request{"gateway": x.atGateway("/"), "sidecar": x.atSidecar("/")}
		// stick sends requests of each user, with the header that next returns for the user's last
		// reply, and counts the users of each version.
		stick := func(name string, q request, first func(user int) string, header string) {
			t.Helper()
			got := map[string]int{}
			for user := range users {
				q.header = map[string]string{header: first(user)}
				reply := send(t, q)
				if header == "Cookie" {
					cookie, _, _ := strings.Cut(reply.header.Get("Set-Cookie"), ";")
					if cookie == "" {
						t.Fatalf("%s: no cookie was made", name)
					}
					q.header = map[string]string{header: cookie}
					reply = send(t, q)
				}
				version := reply.String()
				got[version]++
				for range 4 {
					if again := send(t, q).String(); again != version {
						t.Fatalf("%s: user %d got %s, then %s", name, user, version, again)
					}
				}
			}
			if got["v1"] < users/5 || got["v2"] < users/5 {
				t.Errorf("%s: the users are not spread: %v", name, got)
			}
		}
		s.awaitSynced(s.apply(stickyRule("{httpHeaderName: x-user}")), "edge", "client")
		for name, q := range at {
			stick(name, q, func(user int) string { return fmt.Sprint("user-", user) }, "x-user")
		}
		s.awaitSynced(s.apply(stickyRule("{httpCookie: {name: user, ttl: 60s}}")), "edge", "client")
		for name, q := range at {
			stick("a cookie at a "+name, q, func(int) string { return "" }, "Cookie")
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyTrailingDot: a host with the dot of the root at its end is the same host, with a
// port or without, at a gateway and at a sidecar.
func TestEnvoyTrailingDot(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(100, 0))
		edge, client := s.startPair(v)
		for _, q := range []request{x.atGateway("/"), x.atSidecar("/")} {
			awaitReply(t, q, "v1")
			for _, host := range []string{q.host + ".", q.host + ".:80", strings.ToUpper(q.host) + "."} {
				q.host = host
				expectEqual(t, host, send(t, q).String(), "v1")
			}
		}
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}
