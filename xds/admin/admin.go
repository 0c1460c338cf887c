package admin

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/admission"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// ProxiesPath is the path of the ProxyList. Its parameter namespace selects the proxies of one
// namespace.
const ProxiesPath = "/apis/portolan.io/v1/proxies"

// ProxyList lists the proxies that are connected to a server, by node id. Its JSON form is an
// API.
type ProxyList struct {
	metav1.TypeMeta `json:",inline"`
	// Server is the id of the server that answers. Elsewhere counts the proxies of other
	// servers, which it does not list, by server; APIs are the URLs of their config APIs.
	Server    string                 `json:"server,omitempty"`
	Elsewhere map[string]int         `json:"elsewhere,omitempty"`
	APIs      map[string]string      `json:"apis,omitempty"`
	Items     []progress.ProxyStatus `json:"items"`
	// Configuration is the revision of the last change of the configuration that the server
	// has published. Statuses raise the revision of the store too, and change no proxy.
	Configuration int64 `json:"configuration,omitempty"`
	// Refused lists the clients that were refused within the last hour because of their
	// identity, or of the one that they claim; the latest first.
	Refused []admission.Refusal `json:"refused,omitempty"`
	// Gone lists known proxies that are connected to no server.
	Gone []progress.Place `json:"gone,omitempty"`
}

// narrow keeps the proxies of one namespace. places has the known proxies.
func (l *ProxyList) narrow(namespace string, places []progress.Place) {
	l.Items = slices.DeleteFunc(l.Items, func(p progress.ProxyStatus) bool { return p.Namespace != namespace })
	l.Refused = slices.DeleteFunc(l.Refused, func(r admission.Refusal) bool { return namespaceOf("", r.Node) != namespace })
	l.Gone = slices.DeleteFunc(l.Gone, func(g progress.Place) bool { return namespaceOf(g.Namespace, g.Node) != namespace })
	l.Elsewhere = map[string]int{}
	for _, p := range places {
		if p.Server != "" && namespaceOf(p.Namespace, p.Node) == namespace {
			l.Elsewhere[p.Server]++
		}
	}
}

// namespaceOf returns the namespace of a proxy: the known one, else the one in its node id.
func namespaceOf(known, node string) string { return cmp.Or(known, proxyOf(node).Namespace) }

// Proxies serves the status of the proxies that are connected to a server. view adds the
// proxies of other servers, and the offline ones; it may be nil.
func Proxies(server *xds.DiscoveryServer, view *progress.View) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET")
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		}
		list := ProxyList{
			TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "ProxyList"},
			Items:    append([]progress.ProxyStatus{}, server.Proxies()...),
			Refused:  server.Gate.Refusals(),
		}
		if push := server.Context(); push != nil {
			list.Configuration = push.Inputs().Configs.Changed()
		}
		var places []progress.Place
		if view != nil {
			list.Server, places = view.ID, view.Elsewhere()
			list.Elsewhere, list.APIs, list.Gone = view.Others()
			for i := range list.Items {
				list.Items[i].Server = view.ID
			}
		}
		if namespace := r.URL.Query().Get("namespace"); namespace != "" {
			list.narrow(namespace, places)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list) // the client is gone
	})
}
