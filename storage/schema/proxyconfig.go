package schema

import (
	"strings"

	networking "istio.io/api/networking/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
)

func proxyConfig() *Schema {
	return definition[*networking.ProxyConfig]{
		kind: ProxyConfig, plural: "proxyconfigs",
		codec:  config.Protobuf[networking.ProxyConfig](),
		served: serve("selector", "concurrency", "environmentVariables").without("image", proxyConfigIdle["image"]),
		check:  checkProxyConfig,
	}.schema()
}

func checkProxyConfig(c checker, p *networking.ProxyConfig) {
	c.at("selector", "matchLabels").labels(p.GetSelector().GetMatchLabels())
	for name := range p.GetEnvironmentVariables() {
		if name == "" || strings.ContainsAny(name, "= \x00") {
			c.at("environmentVariables").key(name).fail("is no name of a variable")
		}
	}
	if p.Concurrency != nil {
		c.at("concurrency").notNegative(p.Concurrency.GetValue())
	}
	if image := p.GetImage().GetImageType(); strings.ContainsAny(image, " \t\n") {
		c.at("image", "imageType").fail("must be a word such as distroless, is %q", image)
	}
}
