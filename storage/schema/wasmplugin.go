package schema

import (
	"strings"

	extensions "istio.io/api/extensions/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/wasm"
)

func wasmPlugin() *Schema {
	return definition[*extensions.WasmPlugin]{
		kind: WasmPlugin, plural: "wasmplugins",
		codec: config.Protobuf[extensions.WasmPlugin](),
		served: serve("selector", "targetRef", "targetRefs", "url", "sha256", "pluginConfig", "pluginName", "phase", "priority", "failStrategy", "vmConfig", "match", "type").
			without("has no effect here: it is for images (oci://), which are refused", "imagePullPolicy", "imagePullSecret").
			refuse("verificationKey", "is not served yet: nobody would verify the module by it. Leave it out, and give sha256"),
		check: checkWasmPlugin,
	}.schema()
}

func checkWasmPlugin(c checker, p *extensions.WasmPlugin) {
	c.target(p)
	if c.at("url").required(p.Url); p.Url != "" {
		_, atURL, atSum := wasm.SourceOf(p.Url, p.Sha256)
		c.at("url").failIf(atURL)
		c.at("sha256").failIf(atSum)
	}
	known(c.at("phase"), extensions.PluginPhase_name, p.Phase)
	known(c.at("failStrategy"), extensions.FailStrategy_name, p.FailStrategy)
	known(c.at("type"), extensions.PluginType_name, p.Type)
	each(c.at("match"), p.Match, func(c checker, m *extensions.WasmPlugin_TrafficSelector) {
		known(c.at("mode"), typev1beta1.WorkloadMode_name, m.GetMode())
		for i, port := range m.GetPorts() {
			c.at("ports").index(i).at("number").port(port.GetNumber())
		}
	})
	env := c.at("vmConfig", "env")
	each(env, p.GetVmConfig().GetEnv(), func(c checker, e *extensions.EnvVar) {
		c.at("name").required(strings.TrimSpace(e.GetName()))
		known(c.at("valueFrom"), extensions.EnvValueSource_name, e.GetValueFrom())
		if e.GetValueFrom() == extensions.EnvValueSource_HOST && e.GetValue() != "" {
			c.at("value").fail("does not go with valueFrom HOST: leave it out")
		}
	})
	unique(env, p.GetVmConfig().GetEnv(), (*extensions.EnvVar).GetName, "name")
}

// known refuses a number that stands for no value of an enum.
func known[E ~int32](c checker, names map[int32]string, value E) {
	if _, ok := names[int32(value)]; !ok {
		c.fail("is %d, which stands for no value: write one by its name", value)
	}
}
