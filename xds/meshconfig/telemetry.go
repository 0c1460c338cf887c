package meshconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/schema"
)

type (
	provider   = meshv1alpha1.MeshConfig_ExtensionProvider
	httpHeader = meshv1alpha1.MeshConfig_ExtensionProvider_HttpHeader
	collector  = meshv1alpha1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider
)

// The providers that every mesh has, unless it has another of the name. (Istio: DefaultMeshConfig.)
var builtin = []*provider{
	{Name: "envoy", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{
		EnvoyFileAccessLog: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{Path: "/dev/stdout"},
	}},
	{Name: "prometheus", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_Prometheus{
		Prometheus: &meshv1alpha1.MeshConfig_ExtensionProvider_PrometheusMetricsProvider{},
	}},
}

// Provider returns the provider with a name, of either case, as Telemetries name it; nil for none.
func (c *Config) Provider(name string) *meshv1alpha1.MeshConfig_ExtensionProvider {
	for _, p := range slices.Concat(c.GetExtensionProviders(), builtin) {
		if strings.EqualFold(p.GetName(), name) {
			return p
		}
	}
	return nil
}

// NamesServices says whether the mesh has a provider of traces that does not take the name of a
// proxy's service from its node.
func (c *Config) NamesServices() bool {
	return slices.ContainsFunc(c.GetExtensionProviders(), func(p *provider) bool {
		return p.GetOpentelemetry() != nil || p.GetDatadog() != nil
	})
}

// checkTelemetryProvider refuses what Istio refuses of providers of telemetry, and values that Envoy
// refuses.
func checkTelemetryProvider(at string, p *provider) error {
	var faults *multierror.Error
	service := func(at string, of interface {
		GetService() string
		GetPort() uint32
	}) {
		faults = multierror.Append(faults, schema.CheckServicePort(at, of.GetService(), of.GetPort(), nil))
	}
	switch {
	case p.GetEnvoyFileAccessLog() != nil:
		f := p.GetEnvoyFileAccessLog().GetLogFormat()
		faults = multierror.Append(faults, checkFormat(at+".envoyFileAccessLog.logFormat", f.GetText(), f.GetLabels()))
	case p.GetEnvoyHttpAls() != nil:
		h := p.GetEnvoyHttpAls()
		service(at+".envoyHttpAls", h)
		faults = multierror.Append(faults,
			checkNames(at+".envoyHttpAls.additionalRequestHeadersToLog", h.GetAdditionalRequestHeadersToLog()),
			checkNames(at+".envoyHttpAls.additionalResponseHeadersToLog", h.GetAdditionalResponseHeadersToLog()),
			checkNames(at+".envoyHttpAls.additionalResponseTrailersToLog", h.GetAdditionalResponseTrailersToLog()))
	case p.GetEnvoyTcpAls() != nil:
		service(at+".envoyTcpAls", p.GetEnvoyTcpAls())
	case p.GetEnvoyOtelAls() != nil:
		service(at+".envoyOtelAls", p.GetEnvoyOtelAls())
		f := p.GetEnvoyOtelAls().GetLogFormat()
		faults = multierror.Append(faults, checkFormat(at+".envoyOtelAls.logFormat", f.GetText(), f.GetLabels()))
	case p.GetZipkin() != nil:
		z := p.GetZipkin()
		faults = multierror.Append(faults, schema.CheckServicePort(at+".zipkin", z.GetService(), z.GetPort(), z.GetTimeout()),
			checkPath(at+".zipkin.path", z.GetPath()), checkAdded(at+".zipkin.headers", z.GetHeaders()))
	case p.GetDatadog() != nil:
		service(at+".datadog", p.GetDatadog())
	case p.GetSkywalking() != nil:
		service(at+".skywalking", p.GetSkywalking())
	case p.GetOpentelemetry() != nil:
		faults = multierror.Append(faults, checkCollector(at+".opentelemetry", p.GetOpentelemetry()))
	}
	return faults.ErrorOrNil()
}

// checkCollector checks a collector of OpenTelemetry.
func checkCollector(at string, o *collector) error {
	faults := multierror.Append(nil, schema.CheckServicePort(at, o.GetService(), o.GetPort(), nil))
	if o.GetHttp() != nil && o.GetGrpc() != nil {
		faults = multierror.Append(faults, fmt.Errorf("%s.http: excludes grpc: set one of the two", at))
	}
	faults = multierror.Append(faults,
		checkHTTP(at+".http", o.GetHttp()),
		schema.CheckDuration(at+".grpc.timeout", o.GetGrpc().GetTimeout()),
		checkAdded(at+".grpc.initialMetadata", o.GetGrpc().GetInitialMetadata()))
	if d := o.GetDynatraceSampler(); d != nil {
		at += ".dynatraceSampler"
		if d.GetTenant() == "" {
			faults = multierror.Append(faults, fmt.Errorf("%s.tenant: is missing: write the tenant of Dynatrace", at))
		}
		switch own := d.GetHttpService(); {
		case own != nil:
			faults = multierror.Append(faults, schema.CheckServicePort(at+".httpService", own.GetService(), own.GetPort(), nil))
			if own.GetHttp() == nil {
				faults = multierror.Append(faults, fmt.Errorf("%s.httpService.http: is missing: say how the service is called", at))
			}
			faults = multierror.Append(faults, checkHTTP(at+".httpService.http", own.GetHttp()))
		case o.GetHttp() == nil:
			faults = multierror.Append(faults, fmt.Errorf("%s.httpService: is missing: set it, or http of the provider", at))
		}
	}
	return faults.ErrorOrNil()
}

// checkHTTP checks how a collector is called over HTTP. Envoy needs a timeout.
func checkHTTP(at string, h *meshv1alpha1.MeshConfig_ExtensionProvider_HttpService) error {
	if h == nil {
		return nil
	}
	return multierror.Append(nil, checkPath(at+".path", h.GetPath()), schema.CheckDuration(at+".timeout", h.GetTimeout()), checkAdded(at+".headers", h.GetHeaders())).ErrorOrNil()
}

func checkPath(at, path string) error {
	if path != "" && !strings.HasPrefix(path, "/") {
		return fmt.Errorf("%s: must be a path that begins with /, is %q", at, path)
	}
	return nil
}

// checkAdded checks headers that proxies add to what they report.
func checkAdded(at string, headers []*httpHeader) error {
	var faults *multierror.Error
	for i, h := range headers {
		at := fmt.Sprintf("%s[%d]", at, i)
		faults = multierror.Append(faults, schema.CheckHeaderName(at+".name", h.GetName()))
		switch {
		case h.GetEnvName() != "":
			faults = multierror.Append(faults, fmt.Errorf("%s.envName: is not served: each server would have a value of its own. Write the value", at))
		case h.GetValue() == "":
			faults = multierror.Append(faults, fmt.Errorf("%s.value: is missing", at))
		}
	}
	return faults.ErrorOrNil()
}

func checkNames(at string, names []string) error {
	var faults *multierror.Error
	for i, name := range names {
		faults = multierror.Append(faults, schema.CheckHeaderName(fmt.Sprintf("%s[%d]", at, i), name))
	}
	return faults.ErrorOrNil()
}

// checkFormat checks the text and the labels of a format, in which Envoy replaces commands.
func checkFormat(at, text string, labels *structpb.Struct) error {
	var faults *multierror.Error
	if err := schema.CheckLogFormat(text); err != nil {
		faults = multierror.Append(faults, fmt.Errorf("%s.text: %w", at, err))
	}
	return multierror.Append(faults, checkLabels(at+".labels", labels)).ErrorOrNil()
}

func checkLabels(at string, labels *structpb.Struct) error {
	var faults *multierror.Error
	for _, name := range sortedFields(labels) {
		at, value := at+"."+name, labels.GetFields()[name]
		if s := value.GetStructValue(); s != nil {
			faults = multierror.Append(faults, checkLabels(at, s))
		}
		if err := schema.CheckLogFormat(value.GetStringValue()); err != nil {
			faults = multierror.Append(faults, fmt.Errorf("%s: %w", at, err))
		}
	}
	return faults.ErrorOrNil()
}

// idleTelemetry warns of fields of a provider of telemetry that have no effect.
func idleTelemetry(at string, p *provider) (out []string) {
	if e := p.GetOpentelemetry().GetServiceAttributeEnrichment(); e != meshv1alpha1.MeshConfig_ExtensionProvider_ISTIO_CANONICAL {
		out = append(out, fmt.Sprintf("%s.opentelemetry.serviceAttributeEnrichment is not served yet and has no effect", at))
	}
	return out
}

// checkTracing refuses values that Envoy refuses.
func checkTracing(t *meshv1alpha1.Tracing) error {
	const path = "meshConfig.defaultConfig.tracing"
	var faults *multierror.Error
	if s := t.GetSampling(); !(s >= 0 && s <= 100) {
		faults = multierror.Append(faults, fmt.Errorf("%s.sampling: must be from 0 to 100, is %v", path, s))
	}
	for _, name := range slices.Sorted(maps.Keys(t.GetCustomTags())) {
		at, tag := path+".customTags["+name+"]", t.GetCustomTags()[name]
		switch {
		case name == "":
			faults = multierror.Append(faults, fmt.Errorf("%s: has no name", at))
		case tag.GetLiteral().GetValue() == "" && tag.GetEnvironment().GetName() == "" && tag.GetHeader().GetName() == "":
			faults = multierror.Append(faults, fmt.Errorf("%s: lacks a value: set one of literal.value, environment.name, header.name", at))
		}
	}
	return faults.ErrorOrNil()
}

// checkDefaultProviders refuses more than one provider of traces.
func checkDefaultProviders(d *meshv1alpha1.MeshConfig_DefaultProviders) error {
	if n := len(d.GetTracing()); n > 1 {
		return fmt.Errorf("meshConfig.defaultProviders.tracing: names %d providers: tracing takes one", n)
	}
	return nil
}

// sortedFields returns the names of the fields of a struct, in order.
func sortedFields(s *structpb.Struct) []string { return slices.Sorted(maps.Keys(s.GetFields())) }
