package integration

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyInboundRetries: a sidecar calls an application that is not running. It retries an
// HTTP request twice, but not a gRPC call, which its client retries. A request succeeds if the
// application starts meanwhile.
func TestEnvoyInboundRetries(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, dir := startServer(t, serverOptions{}), socketDir(t)
		web, calls := freePort(t), freePort(t)
		app := filepath.Join(dir, "app")
		s.apply(sidecarOf(fill(`
  ingress:
  - port: {number: $web, protocol: HTTP, name: http}
    bind: 127.0.0.1
    defaultEndpoint: unix://$app
  - port: {number: $calls, protocol: GRPC, name: grpc}
    bind: 127.0.0.1
    defaultEndpoint: unix://$app
`, "$web", web, "$calls", calls, "$app", app)))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		for port, want := range map[int]int{web: 2, calls: 0} {
			eventually(t, "the sidecar listens", func() error {
				if !listening(local(port)) {
					return fmt.Errorf("nothing listens on %d", port)
				}
				return nil
			})
			if got := send(t, request{port: port}); got.status != http.StatusServiceUnavailable {
				t.Errorf("without the application port %d answers %s", port, got)
			}
			if got := client.inbound(port, "upstream_rq_retry"); got != want {
				t.Errorf("port %d: the request was tried %d times more, want %d", port, got, want)
			}
		}

		// The delay before a retry is random: sooner or later an application that starts after
		// the first attempt gets another one.
		eventually(t, "a retry finds the application", func() error {
			failed, replies := client.inbound(web, "upstream_cx_connect_fail"), make(chan reply, 1)
			go func() {
				got, _ := do(t.Context(), clientOf(t), request{port: web})
				replies <- got
			}()
			eventually(t, "the first attempt failed", func() error {
				if client.inbound(web, "upstream_cx_connect_fail") == failed {
					return errors.New("no attempt has failed")
				}
				return nil
			})
			u := serveUpstream(t, "app", listenUnix(t, app))
			got := <-replies
			u.stop()
			if n := client.inbound(web, "upstream_rq_retry_success"); n == 0 || got.String() != "app" {
				return fmt.Errorf("the answer is %s, after %d retries that succeeded", got, n)
			}
			return nil
		})
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// inbound returns a counter of the requests that come in on a port.
func (e *envoy) inbound(port int, counter string) int {
	e.t.Helper()
	name := fmt.Sprintf("cluster.inbound|%d||;.%s", port, counter)
	all, err := e.stats(counter)
	if err != nil {
		e.t.Fatal(err)
	}
	n, known := all[name]
	if !known {
		e.t.Fatalf("there is no counter %s: %v", name, all)
	}
	return n
}
