package schema

import (
	"math/big"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

func destinationRule() *Schema {
	return definition[*networking.DestinationRule]{
		kind: DestinationRule, plural: "destinationrules", shortName: "dr",
		newSpec: func() *networking.DestinationRule { return &networking.DestinationRule{} },
		served:  destinationRuleServed(),
		check:   checkDestinationRule,
	}.schema()
}

func destinationRuleServed() fields {
	// Of tls only the mode DISABLE is served; checkClientTLS refuses the others.
	policy := func(beside ...string) fields {
		return serve(append(beside, "tls")...).with("loadBalancer", serve("simple", "consistentHash")).
			with("connectionPool", connectionPoolServed()).with("outlierDetection", serve("minHealthPercent"))
	}
	whole := policy().with("portLevelSettings", policy("port"))
	return serve("host", "exportTo").
		refuse("workloadSelector", "is not served yet, and without it the rule would apply to every client: leave it out").
		with("trafficPolicy", whole).
		with("subsets", serve("name", "labels").with("trafficPolicy", whole))
}

func connectionPoolServed() fields {
	return fields{}.
		with("tcp", serve("maxConnections", "connectTimeout", "tcpKeepalive", "maxConnectionDuration", "idleTimeout")).
		with("http", serve("http1MaxPendingRequests", "http2MaxRequests", "maxRequestsPerConnection", "maxRetries",
			"idleTimeout", "h2UpgradePolicy", "useClientProtocol", "maxConcurrentStreams"))
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
	c.at("exportTo").exportTo(d.ExportTo)
}

func checkTrafficPolicy(c checker, p *networking.TrafficPolicy) {
	if p == nil {
		return
	}
	if !anySet(p) {
		c.fail("is empty: set at least one of its fields, or leave it out")
	}
	checkPolicy(c, p)
	each(c.at("portLevelSettings"), p.PortLevelSettings, func(c checker, p *networking.TrafficPolicy_PortTrafficPolicy) {
		c.at("port", "number").port(portOf(p))
		checkPolicy(c, p)
	})
	unique(c.at("portLevelSettings"), p.PortLevelSettings, portOf, "port", "number")
}

func portOf(p *networking.TrafficPolicy_PortTrafficPolicy) uint32 { return p.GetPort().GetNumber() }

// policy is what TrafficPolicy and PortTrafficPolicy have alike.
type policy interface {
	GetLoadBalancer() *networking.LoadBalancerSettings
	GetConnectionPool() *networking.ConnectionPoolSettings
	GetTls() *networking.ClientTLSSettings
}

func checkPolicy(c checker, p policy) {
	checkConsistentHash(c.at("loadBalancer", "consistentHash"), p.GetLoadBalancer().GetConsistentHash())
	checkConnectionPool(c.at("connectionPool"), p.GetConnectionPool())
	checkClientTLS(c.at("tls"), p.GetTls())
}

// checkClientTLS refuses what would otherwise be sent in plaintext.
func checkClientTLS(c checker, t *networking.ClientTLSSettings) {
	if mode := t.GetMode(); mode != networking.ClientTLSSettings_DISABLE {
		c.at("mode").fail("%s is not served yet: connections would be in plaintext; only DISABLE is", mode)
	}
}

func checkConsistentHash(c checker, h *networking.LoadBalancerSettings_ConsistentHashLB) {
	if h == nil {
		return
	}
	switch key := h.HashKey.(type) {
	case nil:
		c.fail("lacks what to hash: set one of httpHeaderName, httpCookie, useSourceIp, httpQueryParameterName")
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		c.at("httpHeaderName").headerName(key.HttpHeaderName)
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
	const maxRing = 8 << 20 // Envoy's limit
	c.at("minimumRingSize").atMost(size, maxRing)
	c.at("ringHash", "minimumRingSize").atMost(h.GetRingHash().GetMinimumRingSize(), maxRing)
	if size := h.GetMaglev().GetTableSize(); size != 0 {
		const maxTable = 5000011
		c.at("maglev", "tableSize").atMost(size, maxTable)
		if size <= maxTable && !new(big.Int).SetUint64(size).ProbablyPrime(0) {
			c.at("maglev", "tableSize").fail("must be a prime number, is %d", size)
		}
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
	each(c.at("attributes"), cookie.GetAttributes(),
		func(c checker, a *networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie_Attribute) {
			if a.GetName() == "" {
				c.at("name").fail("is missing")
			}
		})
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
		c.at("idleTimeout").duration(tcp.IdleTimeout)
		c.at("tcpKeepalive", "time").duration(tcp.GetTcpKeepalive().GetTime())
		c.at("tcpKeepalive", "interval").duration(tcp.GetTcpKeepalive().GetInterval())
	}
	if http := p.Http; http != nil {
		c := c.at("http")
		c.at("http1MaxPendingRequests").notNegative(http.Http1MaxPendingRequests)
		c.at("http2MaxRequests").notNegative(http.Http2MaxRequests)
		c.at("maxRequestsPerConnection").notNegative(http.MaxRequestsPerConnection)
		c.at("maxRetries").notNegative(http.MaxRetries)
		c.at("maxConcurrentStreams").notNegative(http.MaxConcurrentStreams)
		c.at("idleTimeout").duration(http.IdleTimeout)
		if http.UseClientProtocol && http.H2UpgradePolicy == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE {
			c.at("useClientProtocol").fail("excludes h2UpgradePolicy UPGRADE: the client's protocol is either kept or upgraded")
		}
	}
}
