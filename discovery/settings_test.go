package discovery_test

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/discovery"
)

// TestProxySettings: what a proxy states of its own configuration, and equal statements are equal.
func TestProxySettings(t *testing.T) {
	t.Parallel()
	parse := func(metadata map[string]any) (discovery.ProxySettings, error) {
		fields, err := structpb.NewStruct(metadata)
		if err != nil {
			t.Fatal(err)
		}
		p, err := discovery.ParseProxy(&corev3.Node{Id: "sidecar~10.0.0.1~a.shop~shop.svc.cluster.local", Metadata: fields})
		if err != nil {
			return discovery.ProxySettings{}, err
		}
		return p.Settings, nil
	}
	if got, err := parse(map[string]any{"HTTP10": "1", "IDLE_TIMEOUT": "30s", "PROXY_CONFIG": map[string]any{"concurrency": 2}}); err != nil || got != (discovery.ProxySettings{HTTP10: "1", IdleTimeout: "30s"}) {
		t.Errorf("%+v, %v", got, err)
	}
	object, err := parse(map[string]any{"PROXY_CONFIG": map[string]any{"proxyHeaders": map[string]any{"server": map[string]any{"value": "x"}}, "newer": true}})
	text, other := parse(map[string]any{"PROXY_CONFIG": `{"concurrency": 3, "proxyHeaders": {"server": {"value": "x"}}}`})
	if err != nil || other != nil || object.Config == "" || object != text {
		t.Errorf("%+v, %v and %+v, %v", object, err, text, other)
	}
	for what, metadata := range map[string]map[string]any{"IDLE_TIMEOUT": {"IDLE_TIMEOUT": "-1s"}, "PROXY_CONFIG": {"PROXY_CONFIG": `{"proxyHeaders": 1}`}} {
		if _, err := parse(metadata); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
