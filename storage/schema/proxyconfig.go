package schema

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
)

func proxyConfig() *Schema {
	return definition[*networking.ProxyConfig]{
		kind: ProxyConfig, plural: "proxyconfigs",
		codec:  config.Protobuf[networking.ProxyConfig](),
		served: serve("selector", "concurrency", "environmentVariables").without(ofImages, "image"),
		check:  checkProxyConfig,
	}.schema()
}

func checkProxyConfig(c checker, p *networking.ProxyConfig) {
	c.at("selector", "matchLabels").labels(p.GetSelector().GetMatchLabels())
	for _, name := range slices.Sorted(maps.Keys(p.GetEnvironmentVariables())) {
		c.at("environmentVariables").key(name).variable(name)
	}
	if p.Concurrency != nil {
		c.at("concurrency").notNegative(p.Concurrency.GetValue())
	}
	if image := p.GetImage().GetImageType(); strings.ContainsAny(image, " \t\n") {
		c.at("image", "imageType").fail("must be a word such as distroless, is %q", image)
	}
}
