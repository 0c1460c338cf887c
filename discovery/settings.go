package discovery

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// The metadata of a proxy that change how it speaks HTTP. A ProxyConfig sets them for proxies that
// do not state them, as MetadataVariable of their names in proxyMetadata.
const (
	HTTP10Metadata      = "HTTP10"
	IdleTimeoutMetadata = "IDLE_TIMEOUT"
	proxyConfigMetadata = "PROXY_CONFIG"
)

// MetadataVariable is the variable of proxyMetadata that becomes the metadata of a name.
func MetadataVariable(name string) string { return "ISTIO_META_" + name }

// ProxySettings are what a proxy states of its own configuration. They are comparable: proxies
// that state the same share resources.
type ProxySettings struct {
	// Config is the part of its ProxyConfig (PROXY_CONFIG) that changes resources, as deterministic
	// protobuf; empty for none. It outranks the defaultConfig of the mesh.
	Config string
	// HTTP10 says whether its listeners accept HTTP/1.0 (HTTP10): "1" or "0". Empty leaves that to
	// the mesh.
	HTTP10 string
	// IdleTimeout is how long connections to its listeners may be idle (IDLE_TIMEOUT), as
	// time.ParseDuration reads it; empty leaves that to the mesh.
	IdleTimeout string
}

func proxySettings(metadata map[string]*structpb.Value) (ProxySettings, error) {
	out := ProxySettings{IdleTimeout: text(metadata[IdleTimeoutMetadata])}
	switch value := strings.ToLower(text(metadata[HTTP10Metadata])); value {
	case "":
	case "1", "true":
		out.HTTP10 = "1"
	default:
		out.HTTP10 = "0"
	}
	if out.IdleTimeout != "" {
		if d, err := time.ParseDuration(out.IdleTimeout); err != nil || d < 0 {
			return out, fmt.Errorf("its metadata have %s %q: give a time such as 30s, or 0s for never", IdleTimeoutMetadata, out.IdleTimeout)
		}
	}
	config, err := statedConfig(metadata[proxyConfigMetadata])
	if err != nil {
		return out, fmt.Errorf("its metadata %s cannot be read: %w", proxyConfigMetadata, err)
	}
	out.Config = config
	return out, nil
}

// statedConfig reads a ProxyConfig, as an object or as JSON in a text, and keeps what changes
// resources. Unknown fields are those of a newer Istio.
func statedConfig(value *structpb.Value) (string, error) {
	raw := []byte(value.GetStringValue())
	if object := value.GetStructValue(); object != nil {
		var err error
		if raw, err = json.Marshal(object.AsMap()); err != nil {
			return "", err
		}
	}
	if len(raw) == 0 {
		return "", nil
	}
	all := &meshv1alpha1.ProxyConfig{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, all); err != nil {
		return "", err
	}
	kept, err := proto.MarshalOptions{Deterministic: true}.Marshal(&meshv1alpha1.ProxyConfig{
		ProxyHeaders: all.GetProxyHeaders(), GatewayTopology: all.GetGatewayTopology(), ConnectionSettings: all.GetConnectionSettings(),
	})
	return string(kept), err
}
