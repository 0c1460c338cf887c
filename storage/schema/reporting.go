package schema

import (
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// checkReportingProvider refuses what Istio refuses of providers of logs, traces and metrics, and
// values that Envoy refuses.
func checkReportingProvider(c checker, p *meshv1alpha1.MeshConfig_ExtensionProvider) {
	switch {
	case p.GetEnvoyFileAccessLog() != nil:
		f := p.GetEnvoyFileAccessLog().GetLogFormat()
		checkLogFormat(c.at("envoyFileAccessLog", "logFormat"), f.GetText(), f.GetLabels())
	case p.GetEnvoyHttpAls() != nil:
		c, h := c.at("envoyHttpAls"), p.GetEnvoyHttpAls()
		c.servicePort(h.GetService(), h.GetPort(), nil)
		headerNames(c.at("additionalRequestHeadersToLog"), h.GetAdditionalRequestHeadersToLog())
		headerNames(c.at("additionalResponseHeadersToLog"), h.GetAdditionalResponseHeadersToLog())
		headerNames(c.at("additionalResponseTrailersToLog"), h.GetAdditionalResponseTrailersToLog())
	case p.GetEnvoyTcpAls() != nil:
		c.at("envoyTcpAls").servicePort(p.GetEnvoyTcpAls().GetService(), p.GetEnvoyTcpAls().GetPort(), nil)
	case p.GetEnvoyOtelAls() != nil:
		c, o := c.at("envoyOtelAls"), p.GetEnvoyOtelAls()
		c.servicePort(o.GetService(), o.GetPort(), nil)
		checkLogFormat(c.at("logFormat"), o.GetLogFormat().GetText(), o.GetLogFormat().GetLabels())
	case p.GetZipkin() != nil:
		c, z := c.at("zipkin"), p.GetZipkin()
		c.servicePort(z.GetService(), z.GetPort(), z.GetTimeout())
		c.at("path").absolutePath(z.GetPath())
		headersToAdd(c.at("headers"), z.GetHeaders())
	case p.GetDatadog() != nil:
		c.at("datadog").servicePort(p.GetDatadog().GetService(), p.GetDatadog().GetPort(), nil)
	case p.GetSkywalking() != nil:
		c.at("skywalking").servicePort(p.GetSkywalking().GetService(), p.GetSkywalking().GetPort(), nil)
	case p.GetOpentelemetry() != nil:
		checkCollector(c.at("opentelemetry"), p.GetOpentelemetry())
	}
}

// checkCollector checks a collector of OpenTelemetry.
func checkCollector(c checker, o *meshv1alpha1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider) {
	c.servicePort(o.GetService(), o.GetPort(), nil)
	if o.GetHttp() != nil && o.GetGrpc() != nil {
		c.at("http").fail("excludes grpc: set one of the two")
	}
	checkCollectorHTTP(c.at("http"), o.GetHttp())
	c.at("grpc", "timeout").duration(o.GetGrpc().GetTimeout())
	headersToAdd(c.at("grpc", "initialMetadata"), o.GetGrpc().GetInitialMetadata())
	if o.GetServiceAttributeEnrichment() != meshv1alpha1.MeshConfig_ExtensionProvider_ISTIO_CANONICAL {
		c.at("serviceAttributeEnrichment").notServed("has no effect here: it takes names from pods, and a proxy here has the name of its service from its node")
	}
	d := o.GetDynatraceSampler()
	if d == nil {
		return
	}
	at := c.at("dynatraceSampler")
	if d.GetTenant() == "" {
		at.at("tenant").fail("is missing: write the tenant of Dynatrace")
	}
	switch own := d.GetHttpService(); {
	case own != nil:
		at.at("httpService").servicePort(own.GetService(), own.GetPort(), nil)
		if own.GetHttp() == nil {
			at.at("httpService", "http").fail("is missing: say how the service is called")
		}
		checkCollectorHTTP(at.at("httpService", "http"), own.GetHttp())
	case o.GetHttp() == nil:
		at.at("httpService").fail("is missing: set it, or http of the provider")
	}
}

// checkCollectorHTTP checks how a collector is called over HTTP.
func checkCollectorHTTP(c checker, h *meshv1alpha1.MeshConfig_ExtensionProvider_HttpService) {
	c.at("path").absolutePath(h.GetPath())
	c.at("timeout").duration(h.GetTimeout())
	headersToAdd(c.at("headers"), h.GetHeaders())
}

// absolutePath checks the path of requests, which may be left out.
func (c checker) absolutePath(path string) {
	if path != "" && !strings.HasPrefix(path, "/") {
		c.fail("must be a path that begins with /, is %q", path)
	}
}

// headersToAdd checks headers that proxies add to what they report.
func headersToAdd(c checker, headers []*meshv1alpha1.MeshConfig_ExtensionProvider_HttpHeader) {
	each(c, headers, func(c checker, h *meshv1alpha1.MeshConfig_ExtensionProvider_HttpHeader) {
		c.at("name").headerName(h.GetName())
		switch {
		case h.GetEnvName() != "":
			c.at("envName").fail("is not served: each server would have a value of its own. Write the value")
		case h.GetValue() == "":
			c.at("value").fail("is missing")
		}
	})
}

func headerNames(c checker, names []string) {
	each(c, names, func(c checker, name string) { c.headerName(name) })
}

// checkLogFormat checks the text and the labels of a format, in which Envoy replaces commands.
func checkLogFormat(c checker, text string, labels *structpb.Struct) {
	c.at("text").failIf(formatOf(text, logCommands, c.at("text").expression))
	checkLogLabels(c.at("labels"), labels)
}

func checkLogLabels(c checker, labels *structpb.Struct) {
	for _, name := range sortedKeys(labels.GetFields()) {
		c, value := c.key(name), labels.GetFields()[name]
		checkLogLabels(c, value.GetStructValue())
		c.failIf(formatOf(value.GetStringValue(), logCommands, c.expression))
	}
}

// checkTracing refuses values that Envoy refuses.
func checkTracing(c checker, t *meshv1alpha1.Tracing) {
	if s := t.GetSampling(); !(s >= 0 && s <= 100) {
		c.at("sampling").fail("must be from 0 to 100, is %v", s)
	}
	for _, name := range sortedKeys(t.GetCustomTags()) {
		at, tag := c.at("customTags").key(name), t.GetCustomTags()[name]
		switch {
		case name == "":
			at.fail("has no name")
		case tag.GetLiteral().GetValue() == "" && tag.GetEnvironment().GetName() == "" && tag.GetHeader().GetName() == "":
			at.fail("lacks a value: set one of literal.value, environment.name, header.name")
		}
	}
}

// checkDefaultProviders refuses more than one provider of traces.
func checkDefaultProviders(c checker, d *meshv1alpha1.MeshConfig_DefaultProviders) {
	if n := len(d.GetTracing()); n > 1 {
		c.at("tracing").fail("names %d providers: tracing takes one", n)
	}
}
