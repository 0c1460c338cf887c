package cluster

import (
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
)

// apply translates the traffic policy of a port, nil for none, into options. With upgrade
// the proxy speaks HTTP/2 even if the port does not declare it.
func apply(policy *networking.TrafficPolicy, protocol discovery.Protocol, upgrade bool, o *upstream.ClusterOptions) {
	pool := policy.GetConnectionPool()
	if timeout := pool.GetTcp().GetConnectTimeout(); timeout != nil {
		o.ConnectTimeout = timeout.AsDuration()
	}
	o.LoadBalancer = loadBalancer(policy.GetLoadBalancer())
	o.CircuitBreakers = upstream.CircuitBreakers{
		MaxConnections:     limit(pool.GetTcp().GetMaxConnections()),
		MaxPendingRequests: limit(pool.GetHttp().GetHttp1MaxPendingRequests()),
		MaxRequests:        limit(pool.GetHttp().GetHttp2MaxRequests()),
		MaxRetries:         limit(pool.GetHttp().GetMaxRetries()),
	}
	o.CircuitBreakers.RetryBudget = retryBudget(policy.GetRetryBudget())
	if http := upstreamHTTP(pool, protocol, upgrade); http != (upstream.HTTP{}) {
		o.HTTP = &http
	}
	o.Outliers = outliers(policy.GetOutlierDetection(), protocol)
	o.ProxyProtocol = proxyProtocol(policy.GetProxyProtocol())
}

// retryBudget applies the API's defaults: 20 percent of the requests, and at least three.
func retryBudget(b *networking.TrafficPolicy_RetryBudget) *upstream.RetryBudget {
	if b == nil {
		return nil
	}
	out := &upstream.RetryBudget{Percent: 20, MinConcurrency: 3, Interval: b.GetBudgetInterval().AsDuration()}
	if p := b.GetPercent(); p != nil {
		out.Percent = p.GetValue()
	}
	if n := b.GetMinRetryConcurrency(); n > 0 {
		out.MinConcurrency = n
	}
	return out
}

// outliers translates outlier detection, nil for none. (Istio: applyOutlierDetection.)
func outliers(d *networking.OutlierDetection, protocol discovery.Protocol) *upstream.OutlierDetection {
	if d == nil {
		return nil
	}
	out := &upstream.OutlierDetection{
		Consecutive5xx:         number(d.GetConsecutive_5XxErrors()),
		ConsecutiveGateway:     number(d.GetConsecutiveGatewayErrors()),
		SplitLocalOrigin:       d.GetSplitExternalLocalOriginErrors(),
		ConsecutiveLocalOrigin: d.GetConsecutiveLocalOriginFailures().GetValue(),
		Interval:               d.GetInterval().AsDuration(),
		BaseEjectionTime:       d.GetBaseEjectionTime().AsDuration(),
		MaxEjectionPercent:     limit(d.GetMaxEjectionPercent()),
	}
	if protocol.IsHTTP() || protocol == discovery.Unsupported {
		out.ErrorCodes = d.GetOutlierDetectionHttpErrorCodes()
	}
	return out
}

func number(n *wrapperspb.UInt32Value) *uint32 {
	if n == nil {
		return nil
	}
	return &n.Value
}

func proxyProtocol(p *networking.TrafficPolicy_ProxyProtocol) socket.ProxyProtocolVersion {
	switch {
	case p == nil:
		return 0
	case p.GetVersion() == networking.TrafficPolicy_ProxyProtocol_V2:
		return socket.ProxyProtocolV2
	}
	return socket.ProxyProtocolV1
}

// limit translates a limit; 0 means none, as for a number that is not positive.
func limit(n int32) uint32 { return uint32(max(n, 0)) }

// loadBalancer returns LeastRequest unless the settings say otherwise. PASSTHROUGH is a
// cluster type, see Outbound.Type.
func loadBalancer(settings *networking.LoadBalancerSettings) upstream.LoadBalancer {
	if hash := settings.GetConsistentHash(); hash != nil {
		if maglev := hash.GetMaglev(); maglev != nil {
			return upstream.LoadBalancer{Policy: upstream.Maglev, TableSize: maglev.GetTableSize()}
		}
		//lint:ignore SA1019 Istio takes the deprecated field still.
		size := hash.GetMinimumRingSize()
		if ring := hash.GetRingHash(); ring != nil {
			size = ring.GetMinimumRingSize()
		}
		return upstream.LoadBalancer{Policy: upstream.RingHash, MinimumRingSize: size}
	}
	switch settings.GetSimple() {
	case networking.LoadBalancerSettings_ROUND_ROBIN:
		return upstream.LoadBalancer{Policy: upstream.RoundRobin, WarmUp: warmUp(settings)}
	case networking.LoadBalancerSettings_RANDOM:
		return upstream.LoadBalancer{Policy: upstream.Random}
	}
	return upstream.LoadBalancer{Policy: upstream.LeastRequest, WarmUp: warmUp(settings)}
}

// warmUp defaults to a linear slow start from 10 percent; it is nil without a duration.
func warmUp(settings *networking.LoadBalancerSettings) *upstream.WarmUp {
	warmup := settings.GetWarmup()
	if warmup == nil {
		warmup = &networking.WarmupConfiguration{Duration: settings.GetWarmupDurationSecs()}
	}
	if warmup.GetDuration().AsDuration() == 0 {
		return nil
	}
	out := &upstream.WarmUp{Window: warmup.GetDuration().AsDuration(), MinPercent: 10, Aggression: 1}
	if p := warmup.GetMinimumPercent(); p != nil {
		out.MinPercent = p.GetValue()
	}
	if a := warmup.GetAggression(); a != nil {
		out.Aggression = a.GetValue()
	}
	return out
}

// upstreamHTTP chooses the HTTP version and options for the endpoints. It is zero if no
// setting asks for any and the port does not declare HTTP/2.
func upstreamHTTP(pool *networking.ConnectionPoolSettings, protocol discovery.Protocol, upgrade bool) upstream.HTTP {
	http := pool.GetHttp()
	out := upstream.HTTP{
		IdleTimeout:              http.GetIdleTimeout(),
		MaxConnectionDuration:    pool.GetTcp().GetMaxConnectionDuration().AsDuration(),
		MaxRequestsPerConnection: limit(http.GetMaxRequestsPerConnection()),
		MaxConcurrentStreams:     limit(http.GetMaxConcurrentStreams()),
		PingInterval:             http.GetHttp2KeepAlive().GetInterval().AsDuration(),
		PingTimeout:              http.GetHttp2KeepAlive().GetTimeout().AsDuration(),
	}
	if http.GetIdleTimeout() == nil {
		out.IdleTimeout = pool.GetTcp().GetIdleTimeout()
	}
	switch {
	case protocol.IsHTTP() && http.GetUseClientProtocol():
		out.Protocol = upstream.UseDownstream
	case protocol.IsHTTP2(), upgrade:
		out.Protocol = upstream.HTTP2
	}
	return out
}

// detectedHTTP returns the options for a port without a declared protocol on which the
// proxy detects HTTP. It uses the client's HTTP version, unless a rule upgrades it.
func detectedHTTP(asked *upstream.HTTP) *upstream.HTTP {
	var out upstream.HTTP
	if asked != nil {
		out = *asked
	}
	if out.Protocol != upstream.HTTP2 {
		out.Protocol = upstream.UseDownstream
	}
	return &out
}
