package wasmplugin_test

import (
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/portolan-mesh/portolan/discovery/modules"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/filter"
	"github.com/portolan-mesh/portolan/xds/generate/wasmplugin"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

const sum = "ec757060a4717f079363f6d1c96e04a83793174806fc5db3a230e6ab83c28fbb"

func plugin(name, spec string) string { return xdstest.Object("WasmPlugin", name, spec) }

// content returns the content of a plugin's filter.
func content(t *testing.T, w *xdstest.World, name string) proto.Message {
	t.Helper()
	built, err := wasmplugin.Build(w.View(xdstest.Node{}), name)
	if err != nil {
		t.Fatal(err)
	}
	if built == nil {
		return nil
	}
	out, err := built.(*corev3.TypedExtensionConfig).GetTypedConfig().UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestContent: the filter has all that the WasmPlugin says, and the bytes of the module.
func TestContent(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, plugin("default/a", "{url: 'http://a.example/b', sha256: "+sum+", pluginName: root, pluginConfig: {b: [1, x], a: null}, failStrategy: FAIL_RELOAD, vmConfig: {env: [{name: A, value: b}, {name: HOME, valueFrom: HOST}]}}"))
	const name = "extensions.istio.io/wasmplugin/default.a"
	if diff := cmp.Diff(proto.Message(envoy.RefuseRequests()), content(t, w, name), protocmp.Transform()); diff != "" {
		t.Errorf("without the module (-want +got)\n%s", diff)
	}
	w.SetModules(modules.Set{}.With(&modules.Module{Sum: sum, Bytes: []byte("module")}))
	want := &httpwasmv3.Wasm{}
	if err := protojson.Unmarshal([]byte(`{"config": {"name": "default.a", "rootId": "root", "failurePolicy": "FAIL_RELOAD",
		"configuration": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "{\"a\":null,\"b\":[1,\"x\"]}"},
		"vmConfig": {"runtime": "envoy.wasm.runtime.v8", "code": {"local": {"inlineBytes": "bW9kdWxl"}}, "environmentVariables": {"hostEnvKeys": ["HOME"], "keyValues": {"A": "b"}}}}}`), want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(proto.Message(want), content(t, w, name), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := content(t, w, name+"#network"); got != nil {
		t.Errorf("it has a filter of bytes: %v", got)
	}
	w.Apply(plugin("default/a", "{url: 'file:///p.wasm', type: NETWORK, failStrategy: FAIL_OPEN}"))
	if got := content(t, w, name+"#network#open"); !strings.Contains(protojson.Format(got), `"/p.wasm"`) || content(t, w, name) != nil {
		t.Errorf("as a filter of bytes: %v", got)
	}
}

// TestPlaces: plugins stand where their phases say, by priority, then those of the root namespace, then
// the oldest; at the ports and in the direction that they match.
func TestPlaces(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		plugin("default/oldest", "{url: 'file:///a'}"), plugin("default/low", "{url: 'file:///a', priority: -5}"), plugin("default/high", "{url: 'file:///a', priority: 5}"),
		plugin("istio-system/root", "{url: 'file:///a'}"), plugin("other/other", "{url: 'file:///a'}"), plugin("default/selects", "{url: 'file:///a', selector: {matchLabels: {app: none}}}"),
		plugin("default/stats", "{url: 'file:///a', phase: STATS}"), plugin("default/authz", "{url: 'file:///a', phase: AUTHZ, match: [{mode: SERVER}]}"),
		plugin("default/authn", "{url: 'file:///a', phase: AUTHN, match: [{mode: CLIENT, ports: [{number: 80}]}, {mode: SERVER, ports: [{number: 8080}]}]}"),
		plugin("default/bytes", "{url: 'file:///a', type: NETWORK, phase: AUTHZ}"),
	)
	view := w.View(xdstest.Node{})
	for _, c := range []struct {
		name string
		kind filter.Kind
		port int
		want string
	}{
		{"outbound", filter.SidecarOutbound, 81, "stats high low root oldest router"},
		{"outbound at the port", filter.SidecarOutbound, 80, "authn stats high low root oldest router"},
		{"inbound", filter.SidecarInbound, 80, "tokens authz audit deny allow stats high low root oldest router"},
		{"inbound at the port", filter.SidecarInbound, 8080, "authn tokens authz audit deny allow stats high low root oldest router"},
		{"gateway", filter.Gateway, 80, "authn tokens audit deny allow stats high low root oldest router"},
		{"gRPC server", filter.GRPCServer, 80, "router"},
	} {
		var got []string
		for _, f := range filter.HTTP(view, c.kind, filter.Options{Port: c.port}) {
			name := f.GetName()[strings.LastIndexByte(f.GetName(), '.')+1:]
			if f.GetName() == "portolan.tokens.http" {
				name = "tokens"
			}
			if !slices.Contains([]string{"rules", "check", "grpc_web", "fault", "cors"}, name) {
				got = append(got, name)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
	var got []string
	for _, f := range filter.Network(view, filter.SidecarInbound, filter.NetworkOptions{}, envoy.TCPProxy(envoy.TCPProxyOptions{StatPrefix: "x", Clusters: []envoy.WeightedCluster{{Name: "x"}}})) {
		got = append(got, f.GetName()[strings.LastIndexByte(f.GetName(), '.')+1:])
	}
	if text := strings.Join(got, " "); text != "rules check bytes#network audit deny allow tcp_proxy" {
		t.Errorf("filters of bytes: %s", text)
	}
}
