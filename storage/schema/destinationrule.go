package schema

import (
	"math/big"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
)

func destinationRule() *Schema {
	return definition[*networking.DestinationRule]{
		kind: DestinationRule, plural: "destinationrules", shortName: "dr",
		codec:  config.Protobuf[networking.DestinationRule](),
		served: destinationRuleServed(),
		check:  checkDestinationRule,
	}.schema()
}

func destinationRuleServed() fields {
	policy := func(beside ...string) fields {
		return serve(append(beside, "tls")...).with("loadBalancer", serve("simple", "consistentHash", "warmup", "warmupDurationSecs", "localityLbSetting", "zoneAwareLbSetting")).
			with("connectionPool", connectionPoolServed()).with("outlierDetection", outlierDetectionServed())
	}
	whole := policy("retryBudget", "proxyProtocol", "tunnel").with("portLevelSettings", policy("port"))
	return serve("host", "exportTo", "workloadSelector").
		with("trafficPolicy", whole).
		with("subsets", serve("name", "labels").with("trafficPolicy", whole))
}

func connectionPoolServed() fields {
	return fields{}.
		with("tcp", serve("maxConnections", "connectTimeout", "tcpKeepalive", "maxConnectionDuration", "idleTimeout")).
		with("http", serve("http1MaxPendingRequests", "http2MaxRequests", "maxRequestsPerConnection", "maxRetries",
			"idleTimeout", "h2UpgradePolicy", "useClientProtocol", "maxConcurrentStreams", "http2KeepAlive"))
}

func outlierDetectionServed() fields {
	return serve("splitExternalLocalOriginErrors", "consecutiveLocalOriginFailures", "consecutiveGatewayErrors", "consecutive5xxErrors",
		"interval", "baseEjectionTime", "maxEjectionPercent", "minHealthPercent", "outlierDetectionHttpErrorCodes")
}

func checkDestinationRule(c checker, d *networking.DestinationRule) {
	host := c.at("host")
	switch {
	case strings.HasPrefix(d.Host, "*.") && (d.Host == "*.svc" || strings.HasSuffix(d.Host, ".svc")):
		host.fail("%q lacks the domain of the mesh: write it out, as in %q", d.Host, d.Host+".cluster.local")
	case !isIP(d.Host):
		host.failIf(hostPattern(d.Host))
		host.shortName(d.Host)
	}
	checkTrafficPolicy(c.at("trafficPolicy"), d.TrafficPolicy)
	each(c.at("subsets"), d.Subsets, func(c checker, s *networking.Subset) {
		c.at("name").dnsLabel(lower(s.GetName()))
		c.at("labels").labels(s.GetLabels())
		if len(s.GetLabels()) == 0 && s.GetTrafficPolicy() == nil {
			c.warn("has neither labels nor a trafficPolicy: it is the whole service")
		}
		checkTrafficPolicy(c.at("trafficPolicy"), s.GetTrafficPolicy())
	})
	unique(c.at("subsets"), d.Subsets, (*networking.Subset).GetName, "name")
	checkFailover(c, d)
	c.at("exportTo").exportTo(d.ExportTo)
	checkClients(c, d)
}

// A rule with a selector of clients stays in its namespace.
func checkClients(c checker, d *networking.DestinationRule) {
	if d.GetWorkloadSelector() == nil {
		return
	}
	c.at("workloadSelector", "matchLabels").selected(d.GetWorkloadSelector().GetMatchLabels())
	if len(d.GetWorkloadSelector().GetMatchLabels()) == 0 {
		c.at("workloadSelector").warn("has no labels and selects every proxy of the namespace")
	}
	if to := d.ExportTo; len(to) > 1 || len(to) == 1 && to[0] != "." && to[0] != c.report.object.Namespace {
		c.at("exportTo").fail(`excludes workloadSelector, which selects proxies of the rule's own namespace: use ["."], or leave it out`)
	}
}

func checkTrafficPolicy(c checker, p *networking.TrafficPolicy) {
	if p == nil {
		return
	}
	if !anySet(p) {
		c.fail("is empty: set at least one of its fields, or leave it out")
	}
	checkPolicy(c, p)
	if b := p.GetRetryBudget(); b != nil {
		c := c.at("retryBudget")
		c.at("percent").percentage(b.GetPercent().GetValue())
		c.at("budgetInterval").durationOrOff(b.GetBudgetInterval())
	}
	checkTunnel(c.at("tunnel"), p.GetTunnel())
	if p.GetTunnel() != nil && p.GetProxyProtocol() != nil {
		c.at("proxyProtocol").fail("excludes tunnel: set one of them")
	}
	checkPortLevels(c.at("portLevelSettings"), p.PortLevelSettings)
}

// Only the first policy for a port counts.
func checkPortLevels(c checker, policies []*networking.TrafficPolicy_PortTrafficPolicy) {
	first := map[uint32]string{}
	each(c, policies, func(c checker, p *networking.TrafficPolicy_PortTrafficPolicy) {
		at, port := c.at("port", "number"), portOf(p)
		switch earlier, twice := first[port]; {
		case p.GetPort() == nil:
			c.at("port").fail("is missing: name the number of a port of the service")
		case port < 1 || port > 65535:
			at.warn("is %d, which no port is: the policy has no effect", port)
		case twice:
			at.warn("%d has a policy before, at %s: this one has no effect", port, earlier)
		default:
			first[port] = c.path()
		}
		checkPolicy(c, p)
	})
}

func checkTunnel(c checker, t *networking.TrafficPolicy_TunnelSettings) {
	if t == nil {
		return
	}
	if p := t.GetProtocol(); p != "" && p != "CONNECT" && p != "POST" {
		c.at("protocol").fail("must be CONNECT or POST, is %q", p)
	}
	if !isIP(t.GetTargetHost()) {
		c.at("targetHost").failIf(hostName(t.GetTargetHost()))
	}
	c.at("targetPort").port(t.GetTargetPort())
}

func portOf(p *networking.TrafficPolicy_PortTrafficPolicy) uint32 { return p.GetPort().GetNumber() }

// policy has the fields that TrafficPolicy and PortTrafficPolicy share.
type policy interface {
	GetLoadBalancer() *networking.LoadBalancerSettings
	GetConnectionPool() *networking.ConnectionPoolSettings
	GetOutlierDetection() *networking.OutlierDetection
	GetTls() *networking.ClientTLSSettings
}

func checkPolicy(c checker, p policy) {
	checkConsistentHash(c.at("loadBalancer", "consistentHash"), p.GetLoadBalancer().GetConsistentHash())
	checkWarmup(c.at("loadBalancer"), p.GetLoadBalancer())
	checkLocality(c.at("loadBalancer"), p)
	checkConnectionPool(c.at("connectionPool"), p.GetConnectionPool())
	checkOutlierDetection(c.at("outlierDetection"), p.GetOutlierDetection())
	checkClientTLS(c.at("tls"), p.GetTls())
}

func checkClientTLS(c checker, t *networking.ClientTLSSettings) {
	const longest = 255 // Envoy's
	if n := len(t.GetSni()); n > longest {
		c.at("sni").fail("must have at most %d characters, has %d", longest, n)
	}
	if mode := t.GetMode(); mode == networking.ClientTLSSettings_SIMPLE || mode == networking.ClientTLSSettings_MUTUAL {
		c.at("credentialName").credential(t.GetCredentialName())
	}
	checkClientCertificates(c, t)
	checkInsecureSkipVerify(c, t)
}

// checkClientCertificates checks where the certificates of a client come from: from files,
// or from a credential.
func checkClientCertificates(c checker, t *networking.ClientTLSSettings) {
	mutual := t.GetMode() == networking.ClientTLSSettings_MUTUAL
	needed := mutual && t.GetCredentialName() == ""
	for _, file := range []struct {
		name, path string
		needed     bool
	}{
		{"clientCertificate", t.GetClientCertificate(), needed}, {"privateKey", t.GetPrivateKey(), needed},
		{"caCertificates", t.GetCaCertificates(), false}, {"caCrl", t.GetCaCrl(), false},
	} {
		at := c.at(file.name)
		switch {
		case file.needed && file.path == "":
			at.fail("is missing: mode MUTUAL needs a certificate and its key, or credentialName")
		case file.path == "":
		case t.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL:
			at.warn("has no effect: mode ISTIO_MUTUAL uses the certificate of the proxy")
		case t.GetCredentialName() != "" && (mutual || t.GetMode() == networking.ClientTLSSettings_SIMPLE):
			at.fail("excludes credentialName, which has it: set one of them")
		default:
			at.file(file.path)
		}
	}
}

// checkInsecureSkipVerify checks that insecureSkipVerify is not combined with settings that verify
// the server.
func checkInsecureSkipVerify(c checker, t *networking.ClientTLSSettings) {
	simple, mutual := t.GetMode() == networking.ClientTLSSettings_SIMPLE, t.GetMode() == networking.ClientTLSSettings_MUTUAL
	if !t.GetInsecureSkipVerify().GetValue() || !simple && !mutual {
		return
	}
	const excludes = "excludes insecureSkipVerify, which verifies no server: set one of them"
	if t.GetCaCertificates() != "" {
		c.at("caCertificates").fail(excludes)
	}
	if len(t.GetSubjectAltNames()) > 0 {
		c.at("subjectAltNames").fail(excludes)
	}
	if simple && t.GetCredentialName() != "" {
		c.at("credentialName").fail(excludes)
	}
}

// hashOfNothing is the warning about a consistent hash without a key, which Istio accepts.
const hashOfNothing = "lacks what to hash, and proxies choose endpoints at random: set one of httpHeaderName, httpCookie, useSourceIp, httpQueryParameterName"

func checkConsistentHash(c checker, h *networking.LoadBalancerSettings_ConsistentHashLB) {
	if h == nil {
		return
	}
	switch key := h.HashKey.(type) {
	case nil:
		c.warn(hashOfNothing)
	case *networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp:
		if !key.UseSourceIp {
			c.warn(hashOfNothing)
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		c.at("httpHeaderName").hashedHeader(key.HttpHeaderName)
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		if key.HttpQueryParameterName == "" {
			c.at("httpQueryParameterName").fail("is empty")
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie:
		checkCookie(c.at("httpCookie"), key.HttpCookie)
	}
	//lint:ignore SA1019 the old place of the size is served too
	size := h.MinimumRingSize
	if size != 0 && h.HashAlgorithm != nil {
		c.at("minimumRingSize").fail("excludes ringHash and maglev: use ringHash.minimumRingSize")
	}
	c.at("minimumRingSize").ring(size)
	c.at("ringHash", "minimumRingSize").ring(h.GetRingHash().GetMinimumRingSize())
	if size := h.GetMaglev().GetTableSize(); size != 0 {
		const maxTable = 5000011
		c.at("maglev", "tableSize").atMost(size, maxTable)
		if size <= maxTable && !new(big.Int).SetUint64(size).ProbablyPrime(0) {
			c.at("maglev", "tableSize").fail("must be a prime number, is %d", size)
		}
	}
}

// checkWarmup checks a warm-up, and warns if it has no effect.
func checkWarmup(c checker, l *networking.LoadBalancerSettings) {
	old, warmup := l.GetWarmupDurationSecs(), l.GetWarmup()
	if old == nil && warmup == nil {
		return
	}
	at := c.at("warmupDurationSecs")
	at.durationOrOff(old)
	if warmup != nil {
		if old != nil {
			at.warn("has no effect beside warmup")
		}
		at = c.at("warmup")
		if warmup.GetDuration() == nil {
			at.at("duration").fail("is missing: say how long a new endpoint is warmed up")
		}
		at.at("duration").durationOrOff(warmup.GetDuration())
		at.at("minimumPercent").percentage(warmup.GetMinimumPercent().GetValue())
		if a := warmup.GetAggression(); a != nil && !(a.GetValue() >= 0) {
			at.at("aggression").fail("must not be negative, is %v", a.GetValue())
		}
	}
	simple := l.GetSimple()
	if l.GetConsistentHash() != nil || simple == networking.LoadBalancerSettings_RANDOM || simple == networking.LoadBalancerSettings_PASSTHROUGH {
		at.warn("has no effect: only LEAST_REQUEST and ROUND_ROBIN warm endpoints up")
	}
}

func checkOutlierDetection(c checker, d *networking.OutlierDetection) {
	if d == nil {
		return
	}
	c.at("interval").duration(d.Interval)
	c.at("baseEjectionTime").duration(d.BaseEjectionTime)
	c.at("maxEjectionPercent").percentage(float64(d.MaxEjectionPercent))
	c.at("minHealthPercent").percentage(float64(d.MinHealthPercent))
	if !d.SplitExternalLocalOriginErrors && d.GetConsecutiveLocalOriginFailures().GetValue() > 0 {
		c.at("consecutiveLocalOriginFailures").fail("needs splitExternalLocalOriginErrors: true, which counts these failures apart")
	}
	for i, code := range d.OutlierDetectionHttpErrorCodes {
		if code < 100 || code > 599 {
			c.at("outlierDetectionHttpErrorCodes").index(i).fail("must be from 100 to 599, is %d", code)
		}
	}
	if d.GetConsecutiveGatewayErrors().GetValue() == 0 && d.Consecutive_5XxErrors != nil && d.Consecutive_5XxErrors.Value == 0 && !d.SplitExternalLocalOriginErrors {
		c.warn("ejects no endpoint: consecutive5xxErrors is 0, and consecutiveGatewayErrors is not set")
	}
}

func (c checker) ring(size uint64) {
	const (
		limit  = 8 << 20 // Envoy's
		served = 1 << 20 // envoy.LargestRing
	)
	c.atMost(size, limit)
	if size > served && size <= limit {
		c.warn("is %d: proxies get a ring of %d, as a larger one stops them for seconds at each change of an endpoint", size, served)
	}
}

func (c checker) hashedHeader(name string) {
	switch c.oneLine(name); {
	case name == "":
		c.fail("is missing: name the header to hash")
	case !headerToken.MatchString(name):
		c.warn("%q is not the name of an HTTP header: requests lack it, and proxies choose endpoints at random", name)
	}
}

func (c checker) atMost(n, limit uint64) {
	if n > limit {
		c.fail("must be at most %d, is %d", limit, n)
	}
}

func checkCookie(c checker, cookie *networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie) {
	if cookie.GetName() == "" {
		c.at("name").fail("is missing: name the cookie to hash")
	}
	if ttl := cookie.GetTtl(); ttl != nil && ttl.AsDuration() < 0 {
		c.at("ttl").fail("must not be negative, is %s", ttl.AsDuration())
	} else if ttl.AsDuration() > maxDuration {
		c.at("ttl").fail("must be at most %s, is %s", maxDuration, ttl.AsDuration())
	}
	c.at("name").oneLine(cookie.GetName())
	c.at("path").oneLine(cookie.GetPath())
	each(c.at("attributes"), cookie.GetAttributes(),
		func(c checker, a *networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie_Attribute) {
			if a.GetName() == "" {
				c.at("name").fail("is missing")
			}
			c.at("name").oneLine(a.GetName())
			c.at("value").oneLine(a.GetValue())
		})
}

func (c checker) tcpKeepalive(k *networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive) {
	c.at("time").duration(k.GetTime())
	c.at("interval").duration(k.GetInterval())
}

func checkConnectionPool(c checker, p *networking.ConnectionPoolSettings) {
	if p == nil {
		return
	}
	if p.Tcp == nil && p.Http == nil {
		c.fail("is empty: set tcp or http, or leave it out")
	}
	if tcp := p.Tcp; tcp != nil {
		c := c.at("tcp")
		c.at("maxConnections").notNegative(tcp.MaxConnections)
		c.at("connectTimeout").duration(tcp.ConnectTimeout)
		c.at("maxConnectionDuration").duration(tcp.MaxConnectionDuration)
		c.at("idleTimeout").durationOrOff(tcp.IdleTimeout)
		c.at("tcpKeepalive").tcpKeepalive(tcp.GetTcpKeepalive())
	}
	if http := p.Http; http != nil {
		c := c.at("http")
		c.at("http1MaxPendingRequests").notNegative(http.Http1MaxPendingRequests)
		c.at("http2MaxRequests").notNegative(http.Http2MaxRequests)
		c.at("maxRequestsPerConnection").notNegative(http.MaxRequestsPerConnection)
		c.at("maxRetries").notNegative(http.MaxRetries)
		c.at("maxConcurrentStreams").notNegative(http.MaxConcurrentStreams)
		c.at("idleTimeout").durationOrOff(http.IdleTimeout)
		if k := http.GetHttp2KeepAlive(); k != nil {
			c.at("http2KeepAlive", "interval").neededDuration(k.Interval)
			c.at("http2KeepAlive", "timeout").neededDuration(k.Timeout)
		}
		if http.UseClientProtocol && http.H2UpgradePolicy == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE {
			c.at("useClientProtocol").fail("excludes h2UpgradePolicy UPGRADE: the client's protocol is either kept or upgraded")
		}
	}
}
