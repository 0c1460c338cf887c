package admin

import (
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/transcript"
)

// ProxyLogPath is the path of a ProxyLog. Its parameters are node, namespace and server, as of
// ProxyConfigPath, and after: return only entries after this time, in RFC 3339.
const ProxyLogPath = ProxiesPath + "/log"

// ProxyLog is what was said on the streams of a proxy: the last entries, the oldest first. Its JSON
// form is an API.
type ProxyLog struct {
	metav1.TypeMeta `json:",inline"`
	Server          string             `json:"server,omitempty"`
	Node            string             `json:"node"`
	Items           []transcript.Entry `json:"items"`
}

// Transcriber knows what was said on the streams of proxies. An *xds.DiscoveryServer implements it.
type Transcriber interface {
	Clients() []*discovery.Proxy
	Transcripts() *transcript.Book
}

// ServeProxyLog serves what was said on the streams of a proxy. If the proxy is connected to
// another server, it answers as ServeProxyConfig does. Of a proxy that is connected to none, it
// serves what this server knows.
func ServeProxyLog(server Transcriber, others Others, id string) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		query := r.URL.Query()
		var after time.Time
		if text := query.Get("after"); text != "" {
			var err error
			if after, err = time.Parse(time.RFC3339Nano, text); err != nil {
				return nil, refusal.BadRequest(fmt.Sprintf("after %q: give a time such as 2026-01-02T15:04:05Z", text))
			}
		}
		node, err := namedNode(r, ProxyLogPath, id, server.Clients(), others.Elsewhere())
		if apierrors.IsNotFound(err) {
			var gone []*discovery.Proxy
			for _, node := range server.Transcripts().Gone() {
				gone = append(gone, proxyOf(node))
			}
			if known, errGone := findNode(query.Get("node"), query.Get("namespace"), gone, nil); !apierrors.IsNotFound(errGone) {
				node, err = known, errGone
			}
		}
		if err != nil {
			return nil, err
		}
		out := ProxyLog{TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "ProxyLog"}, Server: id, Node: node, Items: []transcript.Entry{}}
		if log := server.Transcripts().Find(node); log != nil {
			out.Items = log.After(after)
		}
		return out, nil
	}
}

// namedNode returns the node id of the proxy that a request names, if it is connected here and this
// server is meant.
func namedNode(r *http.Request, path, id string, here []*discovery.Proxy, elsewhere []progress.Place) (string, error) {
	query := r.URL.Query()
	if err := meant(query, id); err != nil {
		return "", err
	}
	if query.Get("node") == "" {
		return "", refusal.BadRequest("say of which proxy: " + path + "?node=NODE")
	}
	return findNode(query.Get("node"), query.Get("namespace"), here, elsewhere)
}
