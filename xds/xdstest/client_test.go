package xdstest_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

const book = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: book, namespace: shop}
spec:
  hosts: [book.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 9080, name: http, protocol: HTTP}]
  endpoints: [{address: 10.1.0.1}]
`

const bookCluster = "outbound|9080||book.shop.test"

func both(t *testing.T, f func(t *testing.T, v protocol.Variant)) {
	t.Run("delta", func(t *testing.T) { f(t, protocol.Delta) })
	t.Run("world", func(t *testing.T) { f(t, protocol.StateOfTheWorld) })
}

// TestClientFollows: a client with Follow holds what a proxy would, and loses what is deleted.
func TestClientFollows(t *testing.T) {
	both(t, func(t *testing.T, v protocol.Variant) {
		server := xdstest.NewServer(t, catalogue.Types())
		client := xdstest.Dial(t, server.Address, xdstest.ClientOptions{
			Node: xdstest.NewNode("sidecar", "10.0.0.1", "client", "shop", nil), Variant: v, Follow: true,
		})
		client.Subscribe(xdstest.ClusterType)
		client.Subscribe(xdstest.ListenerType)
		server.Apply(book)
		client.Await("a cluster, its endpoint, a listener and its routes", func(held func(string) map[string]xdstest.Held) bool {
			_, listener := held(xdstest.ListenerType)["127.0.0.1_9080"]
			_, routes := held(xdstest.RouteType)["9080"]
			return listener && routes && strings.Contains(held(xdstest.EndpointType)[bookCluster].Body.String(), "10.1.0.1")
		})
		server.Delete(book)
		client.Await("no cluster", func(held func(string) map[string]xdstest.Held) bool {
			_, cluster := held(xdstest.ClusterType)[bookCluster]
			return !cluster
		})
	})
}

// TestClientAnswersByHand: the server sees exactly the answers of a manual client.
func TestClientAnswersByHand(t *testing.T) {
	both(t, func(t *testing.T, v protocol.Variant) {
		server := xdstest.NewServer(t, catalogue.Types())
		client := xdstest.Dial(t, server.Address, xdstest.ClientOptions{
			Node: xdstest.NewNode("sidecar", "10.0.0.1", "client", "shop", nil), Variant: v, Manual: true,
		})
		client.Subscribe(xdstest.ClusterType)
		client.Ack(client.AwaitAnswer(xdstest.ClusterType, 0))
		server.Apply(book)
		refused := client.AwaitAnswer(xdstest.ClusterType, 1)
		client.Nack(refused, "no such thing here")
		server.Delete(book)
		// The server has read the rejection: it sends a new answer only after it.
		client.Ack(client.AwaitAnswer(xdstest.ClusterType, 2))
		if len(client.Answers("")) != 3 {
			t.Errorf("%d answers, want 3", len(client.Answers("")))
		}
	})
}
