// Package wasmplugin makes the filters of WasmPlugins. In a listener stands the name of the filter; its
// configuration is a resource of its own (ECDS). So a changed plugin changes no listener, and a proxy
// goes on with the former one until the new one runs.
package wasmplugin

import (
	"encoding/json"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	extensions "istio.io/api/extensions/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/wasm"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/plugin"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Plugins are those of a place that do not stand in its filters yet, in their order.
type Plugins struct{ rest []plugin.Standing }

// At returns the plugins of a place.
func At(v *mesh.View, at plugin.Place) *Plugins { return &Plugins{v.Plugins(at)} }

// phases are in the order in which requests pass them. (Istio: buildHTTPConnectionManager.)
var phases = []extensions.PluginPhase{
	extensions.PluginPhase_AUTHN, extensions.PluginPhase_AUTHZ, extensions.PluginPhase_STATS, extensions.PluginPhase_UNSPECIFIED_PHASE,
}

// HTTP takes the filters of all plugins up to a phase.
func (p *Plugins) HTTP(until extensions.PluginPhase) (out []*hcmv3.HttpFilter) {
	for _, one := range p.take(until) {
		out = append(out, envoy.PluginFilter(filterOf(one, false), one.Open))
	}
	return out
}

// Network is HTTP for the filters of connections.
func (p *Plugins) Network(until extensions.PluginPhase) (out []*listenerv3.Filter) {
	for _, one := range p.take(until) {
		out = append(out, envoy.ConnectionPluginFilter(filterOf(one, true), one.Open))
	}
	return out
}

func filterOf(one plugin.Standing, network bool) string {
	return names.PluginFilter{Namespace: one.Namespace, Name: one.Name, Network: network, Open: one.Open}.String()
}

func (p *Plugins) take(until extensions.PluginPhase) (out []plugin.Standing) {
	if len(p.rest) == 0 {
		return nil
	}
	for _, phase := range phases {
		var rest []plugin.Standing
		for _, one := range p.rest {
			if one.Phase == phase {
				out = append(out, one)
			} else {
				rest = append(rest, one)
			}
		}
		if p.rest = rest; phase == until {
			break
		}
	}
	return out
}

// Is says whether a resource is the configuration of a WasmPlugin, by its name.
func Is(name string) bool {
	_, ok := names.ParsePluginFilter(name)
	return ok
}

// Build makes the configuration of a WasmPlugin, nil for one that is not there. Without its module it
// lets everything pass, or refuses it.
func Build(v *mesh.View, name string) (proto.Message, error) {
	f, ok := names.ParsePluginFilter(name)
	if !ok {
		return nil, nil
	}
	c := v.Plugin(f.Namespace, f.Name)
	if c == nil || plugin.IsNetwork(c.Spec) != f.Network || c.Open() != f.Open {
		return nil, nil
	}
	content, err := contentOf(c, f.Network)
	if err != nil {
		return nil, err
	}
	return extension(name, content), nil
}

func extension(name string, content proto.Message) proto.Message {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: message.Pack(content)}
}

// Otherwise makes what stands in for a plugin that a proxy rejects, nil for a name that is no plugin's.
func Otherwise(name string) proto.Message {
	f, ok := names.ParsePluginFilter(name)
	if !ok {
		return nil
	}
	return extension(name, envoy.WithoutPlugin(f.Network, f.Open))
}

func contentOf(c *plugin.Content, network bool) (proto.Message, error) {
	if c.Missing {
		return envoy.WithoutPlugin(network, c.Open()), nil
	}
	o := envoy.WasmOptions{
		Name: c.Key.Namespace + "." + c.Key.Name, Root: c.Spec.GetPluginName(), Network: network, OnFailure: onFailure(c.Spec.GetFailStrategy()),
	}
	if c.Module != nil {
		o.Code = c.Module.Bytes
	} else {
		source, atURL, _ := wasm.SourceOf(c.Spec.GetUrl(), "")
		if atURL != nil {
			return nil, atURL
		}
		o.File = source.File
	}
	if config := c.Spec.GetPluginConfig(); config != nil {
		text, err := configuration(config)
		if err != nil {
			return nil, err
		}
		o.Configuration = &text
	}
	for _, e := range c.Spec.GetVmConfig().GetEnv() {
		if e.GetValueFrom() == extensions.EnvValueSource_HOST {
			o.HostEnvironment = append(o.HostEnvironment, e.GetName())
			continue
		}
		if o.Environment == nil {
			o.Environment = map[string]string{}
		}
		o.Environment[e.GetName()] = e.GetValue()
	}
	return envoy.Wasm(o), nil
}

// configuration writes the configuration of a plugin as JSON, the same for equal ones.
func configuration(config *structpb.Struct) (string, error) {
	text, err := json.Marshal(config.AsMap()) // protojson varies its spaces
	return string(text), err
}

func onFailure(s extensions.FailStrategy) wasmv3.FailurePolicy {
	switch s {
	case extensions.FailStrategy_FAIL_OPEN:
		return wasmv3.FailurePolicy_FAIL_OPEN
	case extensions.FailStrategy_FAIL_RELOAD:
		return wasmv3.FailurePolicy_FAIL_RELOAD
	}
	return wasmv3.FailurePolicy_FAIL_CLOSED
}

// Needs returns the needs of a listener for the configurations of the plugins in it. It costs nothing
// for a proxy without plugins.
func Needs(v *mesh.View, l *listenerv3.Listener) ([]resource.Need, error) {
	if !v.HasPlugins() {
		return nil, nil
	}
	all, err := resource.NeedsOf(l)
	var out []resource.Need
	for _, n := range all {
		if n.TypeURL == resource.ExtensionType && Is(n.Name) {
			out = append(out, n)
		}
	}
	return out, err
}
