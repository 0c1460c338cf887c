package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// DisconnectPath is the path to which a POST ends the streams of a proxy, so that it connects anew.
// Its parameters are node, namespace and server, as of ProxyConfigPath, and message, as of every
// write.
const DisconnectPath = ProxiesPath + "/disconnect"

// DisconnectKind is the kind of the records of disconnected proxies in the history.
const DisconnectKind = "ProxyDisconnect"

// maxMessage is the most bytes of a message, as in every write.
const maxMessage = 1024

// Disconnected is the answer to a disconnect. Its JSON form is an API.
type Disconnected struct {
	metav1.TypeMeta `json:",inline"`
	Server          string `json:"server,omitempty"`
	Node            string `json:"node"`
	// Streams is how many streams were ended.
	Streams int `json:"streams"`
}

// Disconnecter ends the streams of proxies. An *xds.DiscoveryServer implements it.
type Disconnecter interface {
	Clients() []*discovery.Proxy
	Disconnect(node string) int
}

// Notes writes records of what changes no object.
type Notes interface {
	Note(ctx context.Context, at time.Time, origin storage.Origin, about []config.Key) error
}

// Disconnect ends the streams of a proxy, and records before who has asked for it. If the proxy is
// connected to another server, it answers as ServeProxyConfig does.
func Disconnect(server Disconnecter, others Others, id string, notes Notes) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		node, err := namedNode(r, DisconnectPath, id, server.Clients(), others.Elsewhere())
		if err != nil {
			return nil, err
		}
		proxy := proxyOf(node)
		about := config.Key{Kind: config.GroupVersionKind{Group: "portolan.io", Kind: DisconnectKind}, Namespace: proxy.Namespace, Name: proxy.Name}
		origin := storage.OriginOf(r.Context())
		if origin.Message = r.URL.Query().Get("message"); len(origin.Message) > maxMessage {
			return nil, refusal.BadRequest(fmt.Sprintf("message: has %d bytes, and may have %d", len(origin.Message), maxMessage))
		}
		if err := notes.Note(r.Context(), time.Now(), origin, []config.Key{about}); err != nil {
			return nil, refusal.Unavailable(fmt.Sprintf("proxy %s stays connected, as the store does not record who disconnects it: %v", node, err))
		}
		return Disconnected{
			TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "Disconnected"}, Server: id, Node: node, Streams: server.Disconnect(node),
		}, nil
	}
}
