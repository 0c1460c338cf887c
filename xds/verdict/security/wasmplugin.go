package security

import (
	"cmp"
	"slices"

	extensions "istio.io/api/extensions/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/wasm"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// WasmPlugin judges a WasmPlugin: whom it is for, and whether its module is there.
func WasmPlugin(j *verdict.Judge, object *config.Config) {
	p := &pluginJudge{selection: selectionOf(j, object), spec: object.Spec.(*extensions.WasmPlugin)}
	p.unused()
	p.module()
	p.unmatched()
	p.ports()
	if servers := p.servers(); servers.Count() > 0 {
		p.add(verdict.PluginNotForGRPC, "spec", "give the programs sidecars, or narrow the plugin to workloads that have one",
			"is nothing that a gRPC program runs: %s", servers)
	}
}

type pluginJudge struct {
	selection
	spec *extensions.WasmPlugin
}

// module tells of a module that is not there, and of a sum that nobody checks.
func (j *pluginJudge) module() {
	source, atURL, atSum := wasm.SourceOf(j.spec.GetUrl(), j.spec.GetSha256())
	if fault := cmp.Or(atURL, atSum); fault != nil {
		j.add(verdict.ModuleMissing, "spec.url", "apply it anew as the server asks for", "%v: the plugin has no effect", fault)
		return
	}
	if source.File != "" {
		if source.Sum != "" {
			j.add(verdict.ModuleUnverified, "spec.sha256", "leave it out, or serve the module by http or https",
				"is checked by nobody, as the module is a file on the machines. An Envoy reads a replaced file only when the WasmPlugin changes")
		}
		return
	}
	path := j.object.Key().Path()
	j.Read(verdict.ModuleRow, path)
	j.ReadMesh(mesh.PluginKey(path))
	modules := j.Mesh().Inputs().Modules
	if modules.Has(j.object) {
		return
	}
	then := "its proxies let all requests pass without the plugin, as failStrategy says"
	switch version := modules.Version(j.object); {
	case !version.Missing:
		then = "its proxies go on with the plugin as it was before"
	case j.spec.GetFailStrategy() != extensions.FailStrategy_FAIL_OPEN:
		then = "its proxies refuse all requests until it has, as failStrategy says"
	}
	if fault := modules.Fault(j.object); fault != "" {
		j.add(verdict.ModuleMissing, "spec.url", "see that the servers of the mesh reach the URL, and that sha256 is the sum of the module",
			"is not fetched by the leading server: %s; %s", fault, then)
		return
	}
	j.add(verdict.ModuleAwaited, "spec.url", "wait a moment", "is not fetched by the leading server yet; %s", then)
}

// unmatched tells of a plugin for gateways alone that matches what comes into workloads alone.
func (j *pluginJudge) unmatched() {
	client := func(m *extensions.WasmPlugin_TrafficSelector) bool {
		return m.GetMode() != typev1beta1.WorkloadMode_SERVER
	}
	if len(j.spec.GetMatch()) > 0 && !slices.ContainsFunc(j.spec.GetMatch(), client) && j.gatewaysAlone() {
		j.add(verdict.PluginUnmatched, verdict.At("spec.match", 0)+".mode", "write CLIENT, which stands for gateways too, or leave the mode out",
			"is SERVER: gateways have no traffic of that kind, and the plugin is for gateways alone")
	}
}
