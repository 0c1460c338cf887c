package virtualhost

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
)

// forward describes the destinations of a route and how it changes requests.
func (t translator) forward(http *networking.HTTPRoute) *envoy.Forward {
	out := &envoy.Forward{
		Timeout:       http.GetTimeout().AsDuration(),
		PrefixRewrite: http.GetRewrite().GetUri(),
		HostRewrite:   http.GetRewrite().GetAuthority(),
		Mirrors:       t.mirrors(http),
		GRPCWeb:       t.grpcWeb,
	}
	if r := http.GetRewrite().GetUriRegexRewrite(); r != nil {
		out.RegexRewrite = &envoy.RegexRewrite{Match: r.GetMatch(), Substitution: r.GetRewrite()}
	}
	for _, d := range http.GetRoute() {
		if len(http.GetRoute()) > 1 && d.GetWeight() <= 0 {
			continue
		}
		at := t.destination(d.GetDestination())
		out.Clusters = append(out.Clusters, envoy.WeightedCluster{
			Name: at.cluster(), Weight: uint32(max(d.GetWeight(), 0)), Headers: headers(d.GetHeaders()),
		})
		out.HashPolicies = append(out.HashPolicies, at.hashPolicies(t.view)...)
		out.GRPCWeb = out.GRPCWeb || at.isGRPCWeb()
	}
	out.Retry = t.retry(http.GetRetries(), len(out.HashPolicies) > 0)
	return out
}

// retry returns the retry policy of a route, else of the mesh, else the default.
func (t translator) retry(r *networking.HTTPRetry, hashed bool) *envoy.RetryOptions {
	out := &envoy.RetryOptions{ConsistentHash: hashed}
	if r == nil {
		r = t.view.Mesh(mesh.DefaultHTTPRetryPolicy).GetDefaultHttpRetryPolicy()
	}
	if r == nil {
		return out
	}
	out.Attempts = &r.Attempts
	out.On = r.GetRetryOn()
	out.PerTryTimeout = r.GetPerTryTimeout().AsDuration()
	out.Backoff = r.GetBackoff().AsDuration()
	out.RemoteLocalities = r.GetRetryRemoteLocalities().GetValue()
	if ignore := r.GetRetryIgnorePreviousHosts(); ignore != nil {
		out.IgnorePreviousHosts = &ignore.Value
	}
	return out
}

func (t translator) redirect(r *networking.HTTPRedirect) *envoy.Redirect {
	out := &envoy.Redirect{
		Code: r.GetRedirectCode(), Scheme: r.GetScheme(), Host: r.GetAuthority(),
		Path: r.GetUri(), PrefixRewrite: r.GetPrefixRewrite(), Port: r.GetPort(), TLS: t.tls,
	}
	if r.GetDerivePort() == networking.HTTPRedirect_FROM_REQUEST_PORT {
		out.Port = uint32(t.port)
	}
	return out
}

func directResponse(r *networking.HTTPDirectResponse) *envoy.DirectResponse {
	out := &envoy.DirectResponse{Status: r.GetStatus()}
	switch body := r.GetBody().GetSpecifier().(type) {
	case *networking.HTTPBody_String_:
		out.Body = []byte(body.String_)
	case *networking.HTTPBody_Bytes:
		out.Body = body.Bytes
	}
	return out
}

// fault describes the faults of a route, nil for none. As in Istio, a fault without a
// percentage is off.
func fault(f *networking.HTTPFaultInjection) *envoy.Fault {
	out := &envoy.Fault{}
	if d := f.GetDelay(); d.GetFixedDelay() != nil {
		//lint:ignore SA1019 Istio takes the deprecated field still.
		out.Delay = &envoy.Delay{Duration: d.GetFixedDelay().AsDuration(), Percentage: float64(d.GetPercent())}
		if d.GetPercentage() != nil {
			out.Delay.Percentage = d.GetPercentage().GetValue()
		}
	}
	switch a := f.GetAbort(); e := a.GetErrorType().(type) {
	case *networking.HTTPFaultInjection_Abort_HttpStatus:
		out.Abort = &envoy.Abort{HTTPStatus: uint32(e.HttpStatus), Percentage: a.GetPercentage().GetValue()}
	case *networking.HTTPFaultInjection_Abort_GrpcStatus:
		if status, ok := schema.GRPCStatus(e.GrpcStatus); ok {
			out.Abort = &envoy.Abort{GRPCStatus: status, Percentage: a.GetPercentage().GetValue()}
		}
	}
	if out.Delay == nil && out.Abort == nil {
		return nil
	}
	return out
}

func headers(h *networking.Headers) envoy.Headers {
	return envoy.Headers{Request: headerOps(h.GetRequest()), Response: headerOps(h.GetResponse())}
}

func headerOps(o *networking.Headers_HeaderOperations) envoy.HeaderOps {
	return envoy.HeaderOps{Set: o.GetSet(), Add: o.GetAdd(), Remove: o.GetRemove()}
}

func configPath(m *config.Meta) string {
	return names.ConfigPath(m.Group, m.Version, m.Kind, m.Namespace, m.Name)
}
