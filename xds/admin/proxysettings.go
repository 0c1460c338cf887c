package admin

import (
	"encoding/json"
	"net/http"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/xds/generate/envoyfilter"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// ProxySettingsPath is the path of the ProxySettings of a workload: the parameters namespace, labels
// (KEY=VALUE,...) and group, its WorkloadGroup. With node, that of its bootstrap in the JSON of protobuf,
// they have what EnvoyFilters say of the bootstrap.
const ProxySettingsPath = "/apis/portolan.io/v1/proxysettings"

// ProxySettings are what the mesh says of how the proxy of a workload starts. Its JSON form is an API.
type ProxySettings struct {
	metav1.TypeMeta `json:",inline"`
	// Revision is the store's revision that they are derived from.
	Revision int64 `json:"revision"`
	// Config is a ProxyConfig of Istio's mesh configuration, in the JSON of protobuf; empty if nothing is
	// set.
	Config json.RawMessage `json:"config,omitempty"`
	// Patches is what EnvoyFilters merge into the bootstrap: a Bootstrap of Envoy in the JSON of
	// protobuf; empty for nothing. Unapplied says which of their patches cannot be.
	Patches   json.RawMessage `json:"patches,omitempty"`
	Unapplied []string        `json:"unapplied,omitempty"`
}

// ProxyConfig decodes Config, nil for none. It ignores fields of newer servers.
func (s ProxySettings) ProxyConfig() (*meshv1alpha1.ProxyConfig, error) {
	if len(s.Config) == 0 {
		return nil, nil
	}
	out := &meshv1alpha1.ProxyConfig{}
	return out, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(s.Config, out)
}

// BootstrapPatches decodes Patches, for bootstrap.PatchedJSON; nil for none.
func (s ProxySettings) BootstrapPatches() (*structpb.Struct, error) {
	if len(s.Patches) == 0 {
		return nil, nil
	}
	out := &structpb.Struct{}
	return out, protojson.Unmarshal(s.Patches, out)
}

// patch adds what EnvoyFilters say of the bootstrap with a node.
func (s *ProxySettings) patch(push *mesh.PushContext, namespace, node string) error {
	said := &corev3.Node{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(node), said); err != nil {
		return refusal.BadRequest("node: it is no node of Envoy in JSON: " + err.Error())
	}
	proxy, err := discovery.ParseProxy(said)
	if err != nil {
		return refusal.BadRequest("node: " + err.Error())
	}
	if proxy.Namespace != namespace {
		return refusal.BadRequest("node: it is of the namespace " + proxy.Namespace + ", and the request of " + namespace)
	}
	merged, results, err := envoyfilter.BootstrapOf(push.BootstrapPatches(proxy))
	for _, r := range results {
		if r.Err != nil {
			s.Unapplied = append(s.Unapplied, "EnvoyFilter "+r.Patch.String()+": "+r.Err.Error())
		}
	}
	if merged == nil || err != nil {
		return err
	}
	s.Patches, err = protojson.Marshal(merged)
	return err
}

// ServeProxySettings serves the ProxySettings of a workload that need not be there.
func ServeProxySettings(server Source) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		query := r.URL.Query()
		if query.Get("namespace") == "" {
			return nil, refusal.BadRequest("say of which workload: " + ProxySettingsPath + "?namespace=NAMESPACE&labels=KEY=VALUE,...&group=GROUP&node=NODE")
		}
		push := server.Context()
		if push == nil {
			return nil, refusal.Unavailable("the server has not read its configuration yet: try again in a moment")
		}
		out := ProxySettings{TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "ProxySettings"}, Revision: push.Revision()}
		config := push.ProxyConfigAt(query.Get("namespace"), query.Get("group"), labels.Parse(query.Get("labels")))
		var err error
		if config != nil {
			if out.Config, err = protojson.Marshal(config); err != nil {
				return nil, err
			}
		}
		if node := query.Get("node"); node != "" {
			err = out.patch(push, query.Get("namespace"), node)
		}
		return out, err
	}
}
