package integration

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// socketGateway is a Gateway with an HTTP and a TCP server on sockets in a directory.
func socketGateway(dir, web string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  selector: {app: edge}
  servers:
  - {port: {number: 0, name: http, protocol: HTTP}, bind: "unix://$dir/$web", hosts: ["*.shop.test"]}
  - {port: {number: 0, name: tcp, protocol: TCP}, bind: "unix://$dir/tcp", hosts: ["*"]}
`, "$dir", dir, "$web", web)
}

// TestEnvoyGatewaySockets: a gateway listens on Unix domain sockets, for HTTP and for bytes.
// One of them moves.
func TestEnvoyGatewaySockets(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x, dir := startServer(t, serverOptions{}), newShop(t), socketDir(t)
		s.apply(x.entry(x.v1, x.v2), x.rule(), x.routes(100, 0), socketGateway(dir, "http"), streamEntry("ledger", "TCP", freePort(t), startTCPUpstream(t, "one")), `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ledger, namespace: shop}
spec: {hosts: [ledger.shop.test], gateways: [edge], tcp: [{route: [{destination: {host: ledger.shop.test}}]}]}
`)
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		web := clientVia(t, filepath.Join(dir, "http"))
		awaitAnswer(t, web, "http://"+shopHost+"/", "v1")
		eventually(t, "the socket of bytes leads to the ledger", func() error {
			got, err := greetingAt(t.Context(), "unix", filepath.Join(dir, "tcp"))
			if err == nil && got != "one" {
				err = errors.New("greeted by " + got)
			}
			return err
		})
		s.awaitSynced(s.apply(x.routes(0, 100)), "edge")
		awaitAnswer(t, web, "http://"+shopHost+"/", "v2")
		s.awaitSynced(s.apply(socketGateway(dir, "moved")), "edge")
		awaitAnswer(t, clientVia(t, filepath.Join(dir, "moved")), "http://"+shopHost+"/", "v2")

		for socket, want := range map[string]string{"moved": "virtualservice/shop/reviews", "tcp": "virtualservice/shop/ledger tcp[0]"} {
			out := s.must("", "explain", "request", "--from", "gateway/shop/edge", "--to", shopHost+":80", "--via", fmt.Sprintf("unix://%s/%s", dir, socket))
			if !strings.Contains(out, want) {
				t.Errorf("the explanation lacks %s:\n%s", want, out)
			}
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}
