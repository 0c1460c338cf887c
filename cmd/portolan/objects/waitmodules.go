package objects

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/admin"
)

// withoutModule says where a user learns what proxies do without a module.
const withoutModule = "portolan describe says what proxies do without it"

// waitForModule has the change be done when all servers have the module of a WasmPlugin. Other kinds
// have none.
func (o *waitFlags) waitForModule(key config.Key) {
	if key.Kind == schema.WasmPlugin {
		o.plugins = append(o.plugins, key)
	}
}

// missing returns those of the missing modules for which the change waits.
func (o *waitFlags) missing(p admin.Propagation) (out []status.MissingModule) {
	for _, m := range p.MissingModules {
		if slices.ContainsFunc(o.plugins, func(key config.Key) bool { return key.Path() == m.Plugin }) {
			out = append(out, m)
		}
	}
	return out
}

// moduleFault says why servers could not fetch one of the missing modules; empty if none failed.
func moduleFault(p admin.Propagation) string {
	for _, m := range p.MissingModules {
		if m.Fault != "" {
			return fmt.Sprintf("%s on server %s: %s", pluginName(m.Plugin), cli.ServerName(m.Server), m.Fault)
		}
	}
	return ""
}

// missingPlugins names the WasmPlugins of the missing modules, each once.
func missingPlugins(p admin.Propagation) string {
	var names []string
	for _, m := range p.MissingModules {
		names = append(names, pluginName(m.Plugin))
	}
	slices.Sort(names)
	return cli.FormatList(slices.Compact(names), false)
}

// pluginName returns the name of a WasmPlugin as users write it, by its path.
func pluginName(path string) string {
	_, name, _ := strings.Cut(path, schema.WasmPlugin.Kind+"/")
	return strings.ToLower(schema.WasmPlugin.Kind) + "/" + name
}
