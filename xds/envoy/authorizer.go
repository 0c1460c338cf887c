package envoy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	networkauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

type (
	httpProvider = meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider
	grpcProvider = meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider
	askedBody    = meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody
)

// askTimeout is how long a proxy waits for an external authorizer that sets no timeout. (Istio: extauthz.go.)
const askTimeout = 600 * time.Second

// Authorizer describes an external authorizer, asked over HTTP or over gRPC: one of the two is nil.
type Authorizer struct {
	HTTP *httpProvider
	GRPC *grpcProvider
	// Cluster is where it is.
	Cluster string
	// Selected matches the metadata of what it is asked about.
	Selected *matcherv3.MetadataMatcher
}

// Service is the service of the authorizer, [namespace/]host.
func (a Authorizer) Service() string { return cmp.Or(a.HTTP.GetService(), a.GRPC.GetService()) }

// Port is the port of the service.
func (a Authorizer) Port() uint32 { return cmp.Or(a.HTTP.GetPort(), a.GRPC.GetPort()) }

// HTTPFilter makes the filter that asks about requests. (Istio: generateHTTPConfig, generateGRPCConfig.)
func (a Authorizer) HTTPFilter() *httpauthzv3.ExtAuthz {
	out := &httpauthzv3.ExtAuthz{TransportApiVersion: corev3.ApiVersion_V3, FilterEnabledMetadata: a.Selected}
	if p := a.GRPC; p != nil {
		out.Services = &httpauthzv3.ExtAuthz_GrpcService{GrpcService: a.grpcService()}
		out.FailureModeAllow, out.ClearRouteCache = p.GetFailOpen(), p.GetClearRouteCache()
		out.StatusOnError, out.WithRequestBody = statusOnError(p.GetStatusOnError()), body(p.GetIncludeRequestBodyInCheck())
		return out
	}
	p := a.HTTP
	out.Services = &httpauthzv3.ExtAuthz_HttpService{HttpService: a.httpService()}
	out.FailureModeAllow, out.ClearRouteCache = p.GetFailOpen(), p.GetClearRouteCache()
	out.StatusOnError, out.WithRequestBody = statusOnError(p.GetStatusOnError()), body(p.GetIncludeRequestBodyInCheck())
	asked := p.GetIncludeRequestHeadersInCheck()
	if len(asked) == 0 {
		//lint:ignore SA1019 Istio takes the deprecated field still.
		asked = p.GetIncludeHeadersInCheck()
	}
	out.AllowedHeaders = headersLike(asked)
	return out
}

// NetworkFilter makes the filter that asks about connections, which only gRPC can.
func (a Authorizer) NetworkFilter() *networkauthzv3.ExtAuthz {
	return &networkauthzv3.ExtAuthz{
		StatPrefix: TCPRBACStatPrefix, TransportApiVersion: corev3.ApiVersion_V3, FilterEnabledMetadata: a.Selected,
		FailureModeAllow: a.GRPC.GetFailOpen(), GrpcService: a.grpcService(),
	}
}

func (a Authorizer) httpService() *httpauthzv3.HttpService {
	_, host, ok := strings.Cut(a.HTTP.GetService(), "/")
	if !ok {
		host = a.HTTP.GetService()
	}
	out := &httpauthzv3.HttpService{
		PathPrefix: a.HTTP.GetPathPrefix(),
		ServerUri: &corev3.HttpUri{
			Uri: "http://" + host, Timeout: timeout(a.HTTP.GetTimeout()),
			HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: a.Cluster},
		},
	}
	if added := a.HTTP.GetIncludeAdditionalHeadersInCheck(); len(added) > 0 {
		out.AuthorizationRequest = &httpauthzv3.AuthorizationRequest{}
		for _, name := range slices.Sorted(maps.Keys(added)) {
			out.AuthorizationRequest.HeadersToAdd = append(out.AuthorizationRequest.HeadersToAdd, &corev3.HeaderValue{Key: name, Value: added[name]})
		}
	}
	up, denied, allowed := a.HTTP.GetHeadersToUpstreamOnAllow(), a.HTTP.GetHeadersToDownstreamOnDeny(), a.HTTP.GetHeadersToDownstreamOnAllow()
	if len(up)+len(denied)+len(allowed) > 0 {
		out.AuthorizationResponse = &httpauthzv3.AuthorizationResponse{
			AllowedUpstreamHeaders: headersLike(up), AllowedClientHeaders: headersLike(denied), AllowedClientHeadersOnSuccess: headersLike(allowed),
		}
	}
	return out
}

// grpcService names the authorizer without the bars of the cluster, which are no part of a host. (Istio: generateGRPCConfig.)
func (a Authorizer) grpcService() *corev3.GrpcService {
	return &corev3.GrpcService{
		Timeout: timeout(a.GRPC.GetTimeout()),
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
			ClusterName: a.Cluster, Authority: strings.ReplaceAll(a.Cluster, "|", "_."),
		}},
	}
}

func timeout(d *durationpb.Duration) *durationpb.Duration {
	if d == nil {
		return durationpb.New(askTimeout)
	}
	return d
}

func body(b *askedBody) *httpauthzv3.BufferSettings {
	if b == nil {
		return nil
	}
	return &httpauthzv3.BufferSettings{MaxRequestBytes: b.GetMaxRequestBytes(), AllowPartialMessage: b.GetAllowPartialMessage(), PackAsBytes: b.GetPackAsBytes()}
}

// statusOnError is the status of a checked text, nil for Envoy's 403.
func statusOnError(text string) *typev3.HttpStatus {
	code, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return nil
	}
	return &typev3.HttpStatus{Code: typev3.StatusCode(code)}
}

// headersLike matches the names of headers without regard to case: abc, abc* and *abc. (Istio: generateHeaders.)
func headersLike(patterns []string) *matcherv3.ListStringMatcher {
	if len(patterns) == 0 {
		return nil
	}
	out := &matcherv3.ListStringMatcher{}
	for _, p := range patterns {
		m := &matcherv3.StringMatcher{IgnoreCase: true}
		if text, ok := strings.CutPrefix(p, "*"); ok {
			m.MatchPattern = &matcherv3.StringMatcher_Suffix{Suffix: text}
		} else if text, ok := strings.CutSuffix(p, "*"); ok {
			m.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: text}
		} else {
			m.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: p}
		}
		out.Patterns = append(out.Patterns, m)
	}
	return out
}
