package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/wasmplugin"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// refusals returns what a proxy rejects; nil knows of nothing. Nobody knows what it would reject after
// operations.
type refusals func(proxy *discovery.Proxy) []progress.Refused

func refusalsOf(ctx context.Context, server Nodes, ops []storage.Op) refusals {
	known := map[string][]progress.Refused{}
	return func(proxy *discovery.Proxy) []progress.Refused {
		all, asked := known[proxy.ID]
		if !asked && len(ops) == 0 {
			all = server.Refused(ctx, proxy.ID)
			known[proxy.ID] = all
		}
		return all
	}
}

// of returns the rejection of a resource by a proxy; false if there is none.
func (r refusals) of(proxy *discovery.Proxy, typeURL, name string) (progress.Refused, bool) {
	if r == nil {
		return progress.Refused{}, false
	}
	all := r(proxy)
	i := slices.IndexFunc(all, func(o progress.Refused) bool { return o.TypeURL == typeURL && o.Name == name })
	if i < 0 {
		return progress.Refused{}, false
	}
	return all[i], true
}

// dueTo returns what a proxy said when it refused a resource because of a patch; empty if it did not.
func (r refusals) dueTo(proxy *discovery.Proxy, typeURL, name string, p mesh.PatchNote) string {
	if refused, ok := r.of(proxy, typeURL, name); ok && p.Err == "" && slices.Contains(refused.Objects, p.Filter) {
		return strings.TrimSpace(refused.Message)
	}
	return ""
}

// asHeld replaces the configurations of WasmPlugins that a proxy rejects by those that it has.
func (r refusals) asHeld(proxy *discovery.Proxy, built []generate.Built) (out []generate.Built) {
	for _, b := range built {
		if refused, ok := r.of(proxy, resource.ExtensionType, b.Name); ok && wasmplugin.Is(b.Name) {
			if refused.Has == nil || refused.Has.Body == nil {
				continue
			}
			b.Resource = refused.Has
		}
		out = append(out, b)
	}
	return out
}

// plugins says of each WasmPlugin of a listener that does not run as it is written what a proxy does
// instead.
func (r refusals) plugins(proxy *discovery.Proxy, push *mesh.PushContext, built []generate.Built, listener string) (out []string) {
	of := builtAs(built, resource.ListenerType, listener)
	if of.Resource == nil {
		return nil
	}
	for need := range of.EachNeed {
		if need.TypeURL != resource.ExtensionType || !wasmplugin.Is(need.Name) {
			continue
		}
		if text := r.standIn(proxy, push, need.Name); text != "" {
			out = append(out, text+", "+r.instead(proxy, push, need.Name))
		}
	}
	return out
}

// standIn says why a WasmPlugin does not run at a proxy as it is written, by the name of its filter;
// empty if it does.
func (r refusals) standIn(proxy *discovery.Proxy, push *mesh.PushContext, filter string) string {
	if refused, ok := r.of(proxy, resource.ExtensionType, filter); ok {
		return fmt.Sprintf("%s was refused by the proxy (%s)", pluginOf(filter), strings.TrimSpace(refused.Message))
	}
	c := pluginAt(push, filter)
	if c == nil || push.Inputs().Modules.Has(c) {
		return ""
	}
	if fault := push.Inputs().Modules.Fault(c); fault != "" {
		return fmt.Sprintf("%s has no module (%s)", pluginOf(filter), fault)
	}
	return pluginOf(filter) + " has no module yet"
}

// instead says what happens to requests without a WasmPlugin as it is written.
func (r refusals) instead(proxy *discovery.Proxy, push *mesh.PushContext, filter string) string {
	f, _ := names.ParsePluginFilter(filter)
	former := false
	if refused, ok := r.of(proxy, resource.ExtensionType, filter); ok {
		former = refused.Has != nil && refused.Has.Body != nil && !isStandIn(refused.Has, filter)
	} else if c := pluginAt(push, filter); c != nil {
		former = !push.Inputs().Modules.Version(c).Missing
	}
	switch {
	case former:
		return "and the proxy goes on with it as it was before"
	case f.Open:
		return "and requests pass without it, as failStrategy says"
	}
	return "and the proxy refuses all requests until then, as failStrategy says"
}

// isStandIn says whether a configuration is what stands in for a WasmPlugin.
func isStandIn(r *resource.Resource, filter string) bool {
	other, err := resource.New(filter, wasmplugin.Otherwise(filter))
	return err == nil && other.Version == r.Version
}

// pluginAt returns the WasmPlugin of a filter, nil for none.
func pluginAt(push *mesh.PushContext, filter string) *config.Config {
	f, ok := names.ParsePluginFilter(filter)
	if !ok {
		return nil
	}
	return push.Inputs().Configs.Get(config.Key{Kind: schema.WasmPlugin, Namespace: f.Namespace, Name: f.Name})
}
