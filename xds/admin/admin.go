// Package admin serves what operators ask of the xDS server, on the mux of the
// config API.
package admin

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/xds"
)

// ProxiesPath is where ProxyList is served.
const ProxiesPath = "/apis/portolan.io/v1/proxies"

// ProxyList is the connected proxies, by node id. Its JSON form is an API.
type ProxyList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []xds.ProxyStatus `json:"items"`
}

// Proxies serves the status of the proxies that are connected to a server.
func Proxies(server *xds.DiscoveryServer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET")
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		}
		list := ProxyList{
			TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "ProxyList"},
			Items:    append([]xds.ProxyStatus{}, server.Proxies()...),
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list) // the client is gone
	})
}
