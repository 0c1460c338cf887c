package cluster

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
)

// apply turns the traffic policy of a port, nil for none, into options.
func apply(policy *networking.TrafficPolicy, protocol discovery.Protocol, o *envoy.ClusterOptions) {
	pool := policy.GetConnectionPool()
	if timeout := pool.GetTcp().GetConnectTimeout(); timeout != nil {
		o.ConnectTimeout = timeout.AsDuration()
	}
	o.LoadBalancer = loadBalancer(policy.GetLoadBalancer())
	o.CircuitBreakers = envoy.CircuitBreakers{
		MaxConnections:     limit(pool.GetTcp().GetMaxConnections()),
		MaxPendingRequests: limit(pool.GetHttp().GetHttp1MaxPendingRequests()),
		MaxRequests:        limit(pool.GetHttp().GetHttp2MaxRequests()),
		MaxRetries:         limit(pool.GetHttp().GetMaxRetries()),
	}
	if k := pool.GetTcp().GetTcpKeepalive(); k != nil {
		o.Keepalive = &envoy.Keepalive{
			Probes: k.GetProbes(), Time: k.GetTime().AsDuration(), Interval: k.GetInterval().AsDuration(),
		}
	}
	if http := upstreamHTTP(pool, protocol); http != (envoy.UpstreamHTTP{}) {
		o.HTTP = &http
	}
}

// limit reads a number that is no limit where it is not positive.
func limit(n int32) uint32 { return uint32(max(n, 0)) }

// loadBalancer is LeastRequest unless the settings ask for something else.
// PASSTHROUGH is a type of cluster, see Outbound.Type.
func loadBalancer(settings *networking.LoadBalancerSettings) envoy.LoadBalancer {
	if hash := settings.GetConsistentHash(); hash != nil {
		if maglev := hash.GetMaglev(); maglev != nil {
			return envoy.LoadBalancer{Policy: envoy.Maglev, TableSize: maglev.GetTableSize()}
		}
		//lint:ignore SA1019 Istio takes the deprecated field still.
		size := hash.GetMinimumRingSize()
		if ring := hash.GetRingHash(); ring != nil {
			size = ring.GetMinimumRingSize()
		}
		return envoy.LoadBalancer{Policy: envoy.RingHash, MinimumRingSize: size}
	}
	switch settings.GetSimple() {
	case networking.LoadBalancerSettings_ROUND_ROBIN:
		return envoy.LoadBalancer{Policy: envoy.RoundRobin}
	case networking.LoadBalancerSettings_RANDOM:
		return envoy.LoadBalancer{Policy: envoy.Random}
	}
	return envoy.LoadBalancer{Policy: envoy.LeastRequest}
}

// upstreamHTTP is how HTTP is spoken to the endpoints, zero where nothing is
// asked for and the port does not say HTTP/2.
func upstreamHTTP(pool *networking.ConnectionPoolSettings, protocol discovery.Protocol) envoy.UpstreamHTTP {
	http := pool.GetHttp()
	out := envoy.UpstreamHTTP{
		IdleTimeout:              http.GetIdleTimeout().AsDuration(),
		MaxConnectionDuration:    pool.GetTcp().GetMaxConnectionDuration().AsDuration(),
		MaxRequestsPerConnection: limit(http.GetMaxRequestsPerConnection()),
		MaxConcurrentStreams:     limit(http.GetMaxConcurrentStreams()),
	}
	if http.GetIdleTimeout() == nil {
		out.IdleTimeout = pool.GetTcp().GetIdleTimeout().AsDuration()
	}
	switch {
	case protocol.IsHTTP() && http.GetUseClientProtocol():
		out.Protocol = envoy.UseDownstream
	case protocol.IsHTTP2(),
		protocol.IsHTTP() && http.GetH2UpgradePolicy() == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE:
		out.Protocol = envoy.HTTP2
	}
	return out
}

// detectedHTTP is how HTTP is spoken where the proxy found that a client speaks it,
// on a port that declares nothing: in the client's version.
func detectedHTTP(asked *envoy.UpstreamHTTP) *envoy.UpstreamHTTP {
	var out envoy.UpstreamHTTP
	if asked != nil {
		out = *asked
	}
	out.Protocol = envoy.UseDownstream
	return &out
}
