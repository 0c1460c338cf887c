package mesh

import (
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/modules"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/plugin"
	"github.com/portolan-mesh/portolan/xds/mesh/policy"
)

// plugins holds the WasmPlugins by config path, each in the version that counts.
type plugins struct{ tableOf[*plugin.Plugin] }

// pluginParts answers from these. A query is for one place or for the content, so a changed
// configuration changes no listener.
type pluginParts struct{ tableOf[*plugin.Plugin] }

var (
	pluginRows  = plugins{tableOf[*plugin.Plugin]{wasmPluginObjects}}
	pluginViews = pluginParts{tableOf[*plugin.Plugin]{Plugins}}
)

func (t plugins) follow(from, to *PushContext) {
	put := func(path string, object *config.Config) {
		last := t.rowsOf(to).Value(path)
		var version modules.Version
		if object != nil {
			version = to.inputs.Modules.Version(object)
		}
		switch {
		case version.Config == nil:
			t.put(to, path, nil, false)
		case last == nil || last.Version != version:
			t.put(to, path, plugin.New(version, last), true)
		}
	}
	eachObject(from, to, modules.PathPrefix, func(c pmap.Change[*config.Config]) { put(c.Key, c.New) })
	if from.inputs.Modules == to.inputs.Modules {
		return
	}
	for path, object := range to.inputs.Configs.Configs().Prefix(modules.PathPrefix) {
		put(path, object)
	}
}

// contentArgs are the arguments of a query for the content of a plugin; others are places.
const contentArgs = ""

func (t pluginParts) changed(from, to *PushContext, keys []RowKey) []RowKey {
	for c := range pluginRows.diff(from, to) {
		keys = append(keys, RowKey{t.table, c.Key})
	}
	return keys
}

func (t pluginParts) answer(v *View, path, args string) any {
	row := pluginRows.rowsOf(v.push).Value(path)
	if args == contentArgs {
		return row.Content()
	}
	return row.At(plugin.Parse(args))
}

// Plugins returns the WasmPlugins that stand at a place of the proxy, in the order in which requests
// pass those of one phase. It costs nothing if the proxy has none.
func (v *View) Plugins(at plugin.Place) []plugin.Standing {
	var out []plugin.Standing
	args := ""
	for path := range v.plugins() {
		if args == "" {
			args = at.String()
		}
		if one := v.ask(Plugins, path, args).(plugin.Standing); one != (plugin.Standing{}) {
			out = append(out, one)
		}
	}
	plugin.Sort(out, v.RootNamespace())
	return out
}

// HasPlugins says whether WasmPlugins are for the proxy.
func (v *View) HasPlugins() bool {
	for range v.plugins() {
		return true
	}
	return false
}

func (v *View) plugins() func(func(string) bool) {
	return v.ask(Self, selfPlugins, "").(class.Attached).Names(class.Plugin)
}

// Plugin returns what the filter of a WasmPlugin is made of; nil if there is none.
func (v *View) Plugin(namespace, name string) *plugin.Content {
	return v.ask(Plugins, modules.PathPrefix+namespace+"/"+name, contentArgs).(*plugin.Content)
}

// PluginKey names the row of a WasmPlugin, by its path.
func PluginKey(path string) RowKey { return RowKey{Plugins, path} }

// WasmPlugin returns a WasmPlugin as proxies have it; nil if there is none, or it has no effect.
func (p *PushContext) WasmPlugin(key config.Key) *plugin.Plugin {
	return pluginRows.rowsOf(p).Value(key.Path())
}

// followPlugins follows the WasmPlugins that may attach, in the versions that count.
func (t attachmentTable) followPlugins(from, to *PushContext) {
	for c := range pluginRows.diff(from, to) {
		if c.HasOld && (!c.HasNew || c.New.Config.Namespace != c.Old.Config.Namespace) {
			t.remove(to, attachmentKey(class.Plugin, c.Old.Config.Namespace), c.Key)
		}
		if c.HasNew {
			t.add(to, attachmentKey(class.Plugin, c.New.Config.Namespace), c.Key, &attachment{object: c.New.Config})
		}
	}
}

// pluginsFor chooses the WasmPlugins that are for a proxy: those of its own and of the root namespace
// that have no selector and no target, or select or target it. gRPC programs have none.
func (p *PushContext) pluginsFor(who attachedTo) []string {
	if who.Type == discovery.Proxyless || pluginRows.rowsOf(p).Len() == 0 {
		return nil
	}
	var out []string
	root, w := p.mesh.GetRootNamespace(), policyWorkload(who.Proxy, who.workload, who.attached)
	for _, namespace := range patchNamespaces(root, who.Namespace) {
		for path, a := range p.attachmentsIn(class.Plugin, namespace).All() {
			if policy.NewPolicy(a.object).Selects(w, root) {
				out = append(out, path)
			}
		}
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
