package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// wasmRuntime is the only runtime that Envoy's packages have.
const wasmRuntime = "envoy.wasm.runtime.v8"

// WasmOptions describe a Wasm plugin.
type WasmOptions struct {
	// Name tells plugins apart in logs and statistics. Root is the name by which the module knows the
	// plugin, its root_id.
	Name, Root string
	// File is the module on the machine of the proxy. Without it Code is the module.
	File string
	Code []byte
	// Configuration is the text that the plugin gets; nil for none.
	Configuration *string
	// OnFailure says what happens to requests once the plugin has failed.
	OnFailure wasmv3.FailurePolicy
	// Environment are variables of the plugin, and HostEnvironment those that it has from the proxy.
	Environment     map[string]string
	HostEnvironment []string
	// Network: the plugin looks at the bytes of connections.
	Network bool
}

// Wasm makes the configuration of the filter of a Wasm plugin. The module always comes with it or lies
// on the machine: an Envoy that gets a remote module by an update of ECDS never fetches it, and lets
// requests pass without the plugin.
func Wasm(o WasmOptions) proto.Message {
	code := &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: o.Code}}
	if o.File != "" {
		code.Specifier = &corev3.DataSource_Filename{Filename: o.File}
	}
	vm := &wasmv3.VmConfig{Runtime: wasmRuntime, Code: &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{Local: code}}}
	if len(o.Environment)+len(o.HostEnvironment) > 0 {
		vm.EnvironmentVariables = &wasmv3.EnvironmentVariables{HostEnvKeys: o.HostEnvironment, KeyValues: o.Environment}
	}
	config := &wasmv3.PluginConfig{
		Name: o.Name, RootId: o.Root, FailurePolicy: o.OnFailure,
		Vm: &wasmv3.PluginConfig_VmConfig{VmConfig: vm},
	}
	if o.Configuration != nil {
		config.Configuration = message.Pack(wrapperspb.String(*o.Configuration))
	}
	if o.Network {
		return &networkwasmv3.Wasm{Config: config}
	}
	return &httpwasmv3.Wasm{Config: config}
}
