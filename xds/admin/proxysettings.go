package admin

import (
	"encoding/json"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// ProxySettingsPath is the path of the ProxySettings of a workload: the parameters namespace, labels
// (KEY=VALUE,...) and group, its WorkloadGroup.
const ProxySettingsPath = "/apis/portolan.io/v1/proxysettings"

// ProxySettings are what the mesh says of how the proxy of a workload starts. Its JSON form is an API.
type ProxySettings struct {
	metav1.TypeMeta `json:",inline"`
	// Revision is the store's revision that they are derived from.
	Revision int64 `json:"revision"`
	// Config is a ProxyConfig of Istio's mesh configuration, in the JSON of protobuf; empty if nothing is
	// set.
	Config json.RawMessage `json:"config,omitempty"`
}

// ProxyConfig decodes Config, nil for none. It ignores fields of newer servers.
func (s ProxySettings) ProxyConfig() (*meshv1alpha1.ProxyConfig, error) {
	if len(s.Config) == 0 {
		return nil, nil
	}
	out := &meshv1alpha1.ProxyConfig{}
	return out, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(s.Config, out)
}

// ServeProxySettings serves the ProxySettings of a workload that need not be there.
func ServeProxySettings(server Source) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		query := r.URL.Query()
		if query.Get("namespace") == "" {
			return nil, refusal.BadRequest("say of which workload: " + ProxySettingsPath + "?namespace=NAMESPACE&labels=KEY=VALUE,...&group=GROUP")
		}
		push := server.Context()
		if push == nil {
			return nil, refusal.Unavailable("the server has not read its configuration yet: try again in a moment")
		}
		out := ProxySettings{TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "ProxySettings"}, Revision: push.Revision()}
		config := push.ProxyConfigAt(query.Get("namespace"), query.Get("group"), labels.Parse(query.Get("labels")))
		if config == nil {
			return out, nil
		}
		var err error
		out.Config, err = protojson.Marshal(config)
		return out, err
	}
}
