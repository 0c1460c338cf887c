package message

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// ADS is the source of resources that come over the bootstrap's ADS stream. Envoy waits
// for them without timeout, since the server answers every name.
func ADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(0),
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}
}

// secretPatience is how long Envoy waits for the first answer of SDS.
const secretPatience = 15 * time.Second

// SDS is the source of secrets that a cluster of the bootstrap serves.
//
// Envoy waits for them before it uses a new cluster or listener. Meanwhile it uses the former one,
// which may be in plaintext, and while it starts it asks for no listeners. Nobody promises that
// such a source ever answers, so Envoy waits 15 s at most, unlike for ADS. Then it uses the new
// one, whose connections fail until the secrets arrive: none goes on in plaintext.
// https://envoyproxy.io/docs/envoy/v1.40.0/configuration/security/secret
func SDS(cluster string) *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{GRPCService(cluster)},
		}},
		InitialFetchTimeout: durationpb.New(secretPatience),
		ResourceApiVersion:  corev3.ApiVersion_V3,
	}
}

// Envoy reconnects after a random pause: up to firstPause, doubled after each stream on which it
// got nothing. If a proxy already has everything, the server that takes over sends nothing. So the
// pauses grow even while servers are available. Envoy's default maximum of 30 s would delay a
// change by as much.
// https://github.com/envoyproxy/envoy/issues/24236
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 5 * time.Second
)

// GRPCService is the xDS service of a cluster. Envoy reconnects to it after 5 s at most.
func GRPCService(cluster string) *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
		ClusterName: cluster,
		RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{BaseInterval: Seconds(firstPause), MaxInterval: Seconds(lastPause)}},
	}}}
}
