package upstream

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// HealthCheck makes a proxy check a path of every endpoint of a cluster, except Unchecked
// ones. An endpoint gets traffic after it has answered 200, and none after two failures
// in a row.
type HealthCheck struct {
	// Host is the Host header of the checks. By default it would be the cluster's name,
	// which servers refuse.
	Host, Path string
	Interval   time.Duration
	// HTTP2 makes the checks use HTTP/2.
	HTTP2 bool
}

const (
	healthCheckTimeout = time.Second
	failuresToEject    = 2
)

func (h *HealthCheck) apply(c *clusterv3.Cluster) {
	if h == nil {
		return
	}
	check := &corev3.HealthCheck_HttpHealthCheck{Host: h.Host, Path: h.Path}
	if h.HTTP2 {
		check.CodecClientType = typev3.CodecClientType_HTTP2
	}
	interval := durationpb.New(h.Interval)
	c.HealthChecks = []*corev3.HealthCheck{{
		Timeout:            durationpb.New(healthCheckTimeout),
		Interval:           interval,
		NoTrafficInterval:  interval, // else once a minute before the first request
		UnhealthyThreshold: wrapperspb.UInt32(failuresToEject),
		HealthyThreshold:   wrapperspb.UInt32(1),
		HealthChecker:      &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: check},
	}}
	// Otherwise a removed endpoint would keep its traffic until a check fails.
	c.IgnoreHealthOnHostRemoval = true
}

func (e Endpoint) checkConfig() *endpointv3.Endpoint_HealthCheckConfig {
	if !e.Unchecked {
		return nil
	}
	return &endpointv3.Endpoint_HealthCheckConfig{DisableActiveHealthCheck: true}
}
