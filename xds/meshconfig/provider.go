package meshconfig

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/schema"
)

const providersPath = "meshConfig.extensionProviders"

// The kinds of extension providers that have an effect.
var servedProvider = map[protoreflect.Name]bool{
	"name": true, "envoy_ext_authz_http": true, "envoy_ext_authz_grpc": true,
	"envoy_file_access_log": true, "envoy_http_als": true, "envoy_tcp_als": true, "envoy_otel_als": true,
	"zipkin": true, "datadog": true, "skywalking": true, "opentelemetry": true, "prometheus": true,
}

// Authorizer returns the external authorizer with a name, nil for none.
func (c *Config) Authorizer(name string) *meshv1alpha1.MeshConfig_ExtensionProvider {
	for _, p := range c.GetExtensionProviders() {
		if p.GetName() == name && (p.GetEnvoyExtAuthzHttp() != nil || p.GetEnvoyExtAuthzGrpc() != nil) {
			return p
		}
	}
	return nil
}

// checkProviders refuses what Istio refuses of extension providers (Istio: extensionprovider.go),
// and values that Envoy refuses.
func checkProviders(all []*meshv1alpha1.MeshConfig_ExtensionProvider) error {
	var faults *multierror.Error
	seen := map[string]bool{}
	for i, p := range all {
		at := fmt.Sprintf("%s[%d]", providersPath, i)
		switch name := p.GetName(); {
		case name == "":
			faults = multierror.Append(faults, fmt.Errorf("%s.name: is missing: policies and Telemetries name the provider by it", at))
		case seen[name]:
			faults = multierror.Append(faults, fmt.Errorf("%s.name: %q is the name of another provider: choose another", at, name))
		}
		seen[p.GetName()] = true
		switch {
		case p.GetProvider() == nil:
			faults = multierror.Append(faults, fmt.Errorf("%s: has no kind: set one, such as envoyExtAuthzGrpc", at))
		case p.GetEnvoyExtAuthzHttp() != nil:
			faults = multierror.Append(faults, checkHTTPProvider(at+".envoyExtAuthzHttp", p.GetEnvoyExtAuthzHttp()))
		case p.GetEnvoyExtAuthzGrpc() != nil:
			faults = multierror.Append(faults, checkProvider(at+".envoyExtAuthzGrpc", p.GetEnvoyExtAuthzGrpc()))
		default:
			faults = multierror.Append(faults, checkTelemetryProvider(at, p))
		}
	}
	return faults.ErrorOrNil()
}

// authorizer is what both kinds of external authorizers have.
type authorizer interface {
	GetService() string
	GetPort() uint32
	GetTimeout() *durationpb.Duration
	GetStatusOnError() string
	GetIncludeRequestBodyInCheck() *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody
}

func checkProvider(at string, p authorizer) error {
	faults := multierror.Append(nil, schema.CheckServicePort(at, p.GetService(), p.GetPort(), p.GetTimeout()))
	if text := p.GetStatusOnError(); text != "" {
		code, err := strconv.ParseInt(text, 10, 32)
		if _, known := typev3.StatusCode_name[int32(code)]; err != nil || !known || code == 0 {
			faults = multierror.Append(faults, fmt.Errorf("%s.statusOnError: %q is no status that Envoy knows: use one like 403 or 503", at, text))
		}
	}
	if b := p.GetIncludeRequestBodyInCheck(); b != nil && b.GetMaxRequestBytes() == 0 {
		faults = multierror.Append(faults, fmt.Errorf("%s.includeRequestBodyInCheck.maxRequestBytes: must be at least 1: say how much of a body the proxy may hold", at))
	}
	return faults.ErrorOrNil()
}

func checkHTTPProvider(at string, p *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider) error {
	faults := multierror.Append(nil, checkProvider(at, p))
	if prefix := p.GetPathPrefix(); prefix != "" {
		if _, err := url.Parse(prefix); err != nil || !strings.HasPrefix(prefix, "/") {
			faults = multierror.Append(faults, fmt.Errorf("%s.pathPrefix: must be a path that begins with /, is %q", at, prefix))
		}
	}
	for _, list := range []struct {
		field string
		names []string
	}{
		{"includeRequestHeadersInCheck", p.GetIncludeRequestHeadersInCheck()},
		//lint:ignore SA1019 Istio takes the deprecated field still.
		{"includeHeadersInCheck", p.GetIncludeHeadersInCheck()},
		{"headersToUpstreamOnAllow", p.GetHeadersToUpstreamOnAllow()},
		{"headersToDownstreamOnDeny", p.GetHeadersToDownstreamOnDeny()},
		{"headersToDownstreamOnAllow", p.GetHeadersToDownstreamOnAllow()},
	} {
		for i, name := range list.names {
			if strings.Trim(name, "*") == "" {
				faults = multierror.Append(faults, fmt.Errorf("%s.%s[%d]: %q names no header: write a name, a beginning like x-* or an end like *-id", at, list.field, i, name))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.GetIncludeAdditionalHeadersInCheck())) {
		if err := schema.CheckHeaderName(at+".includeAdditionalHeadersInCheck", name); err != nil {
			faults = multierror.Append(faults, err)
		}
	}
	return faults.ErrorOrNil()
}

// idleProviders warns of providers, and of their fields, that have no effect.
func idleProviders(all []*meshv1alpha1.MeshConfig_ExtensionProvider) (out []string) {
	for i, p := range all {
		at := fmt.Sprintf("%s[%d]", providersPath, i)
		out = append(out, unserved(at, p, servedProvider)...)
		out = append(out, idleTelemetry(at, p)...)
		h := p.GetEnvoyExtAuthzHttp()
		if h.GetIncludeRequestBodyInCheck().GetPackAsBytes() {
			out = append(out, at+".envoyExtAuthzHttp.includeRequestBodyInCheck.packAsBytes has no effect: it is for envoyExtAuthzGrpc")
		}
		//lint:ignore SA1019 Istio takes the deprecated field still.
		if old := h.GetIncludeHeadersInCheck(); len(old) > 0 {
			effect := "is deprecated: use includeRequestHeadersInCheck"
			if len(h.GetIncludeRequestHeadersInCheck()) > 0 {
				effect = "has no effect beside includeRequestHeadersInCheck"
			}
			out = append(out, at+".envoyExtAuthzHttp.includeHeadersInCheck "+effect)
		}
	}
	return out
}
