package schema

import (
	"encoding/hex"
	"net/url"
	"strings"

	extensions "istio.io/api/extensions/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
)

func wasmPlugin() *Schema {
	return definition[*extensions.WasmPlugin]{
		kind: WasmPlugin, plural: "wasmplugins",
		codec:  config.Protobuf[extensions.WasmPlugin](),
		stored: true,
		check:  checkWasmPlugin,
	}.schema()
}

func checkWasmPlugin(c checker, p *extensions.WasmPlugin) {
	c.target(p)
	if p.Phase == extensions.PluginPhase_AUTHN || p.Phase == extensions.PluginPhase_AUTHZ {
		c.at("phase").insecure("%s is not served yet: requests that the plugin would deny are let through", p.Phase)
	}
	at := c.at("url")
	if at.required(p.Url); p.Url != "" {
		u, err := url.Parse(p.Url)
		switch {
		case err != nil:
			at.fail("is no URL: %v", err)
		default:
			at.oneOf(u.Scheme, "oci", "file", "http", "https") // without one it is an image
		}
	}
	if sum, err := hex.DecodeString(p.Sha256); p.Sha256 != "" && (err != nil || len(sum) != 32) {
		c.at("sha256").fail("must be 64 hexadecimal digits, is %q", p.Sha256)
	}
	each(c.at("match"), p.Match, func(c checker, m *extensions.WasmPlugin_TrafficSelector) {
		for i, port := range m.GetPorts() {
			c.at("ports").index(i).at("number").port(port.GetNumber())
		}
	})
	env := c.at("vmConfig", "env")
	each(env, p.GetVmConfig().GetEnv(), func(c checker, e *extensions.EnvVar) {
		c.at("name").required(strings.TrimSpace(e.GetName()))
		if e.GetValueFrom() == extensions.EnvValueSource_HOST && e.GetValue() != "" {
			c.at("value").fail("does not go with valueFrom HOST: leave it out")
		}
	})
	unique(env, p.GetVmConfig().GetEnv(), (*extensions.EnvVar).GetName, "name")
}
