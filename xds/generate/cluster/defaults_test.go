package cluster_test

import (
	"fmt"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"

	"github.com/portolan-mesh/portolan/xds/xdstest"
)

func keepalive(c *clusterv3.Cluster) any {
	k := c.GetUpstreamConnectionOptions().GetTcpKeepalive()
	if k == nil {
		return "none"
	}
	return fmt.Sprint(k.GetKeepaliveProbes().GetValue(), k.GetKeepaliveTime().GetValue(), k.GetKeepaliveInterval().GetValue())
}

func altStatName(c *clusterv3.Cluster) any { return c.GetAltStatName() }

func dnsRefresh(c *clusterv3.Cluster) any {
	out := &dnsv3.DnsCluster{}
	if err := c.GetClusterType().GetTypedConfig().UnmarshalTo(out); err != nil {
		return err
	}
	return out.GetDnsRefreshRate().AsDuration()
}

// TestMeshDefaults: the mesh configuration decides what rules leave open.
func TestMeshDefaults(t *testing.T) {
	t.Parallel()
	service := xdstest.Object("ServiceEntry", "me", served)
	dns := xdstest.Object("ServiceEntry", "dns", "{hosts: [dns.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}")
	rule := func(policy string) string {
		return xdstest.Object("DestinationRule", "me", "{host: me.example.com, trafficPolicy: "+policy+", subsets: [{name: v1, labels: {a: b}}]}")
	}
	const (
		web, subset, in = "outbound|80||me.example.com", "outbound|80|v1|me.example.com", "inbound|8080||"
		found, inFound  = "outbound|82||me.example.com", "inbound|82||"
		upgrades        = "h2UpgradePolicy: UPGRADE"
		named           = "{outboundClusterStatName: '%SERVICE%_%SERVICE_PORT%_%SERVICE_PORT_NAME%_%SUBSET_NAME%_%TARGET_PORT%', inboundClusterStatName: 'in_%SERVICE_FQDN%_%SERVICE_NAME%_%SERVICE_PORT%_%TARGET_PORT%'}"
		upgrade         = "{connectionPool: {http: {h2UpgradePolicy: UPGRADE}}}"
	)
	for _, tt := range []struct {
		name, mesh, rule, cluster string
		check                     func(*clusterv3.Cluster) any
		want                      any
	}{
		{name: "no probes", cluster: web, check: keepalive, want: "none"},
		{name: "probes of the mesh", mesh: "tcpKeepalive: {probes: 3, time: 10s, interval: 0.5s}", cluster: web, check: keepalive, want: "3 10 1"},
		{name: "also inbound", mesh: "tcpKeepalive: {time: 10s}", cluster: in, check: keepalive, want: "0 10 0"},
		{name: "and of what is passed", mesh: "tcpKeepalive: {time: 10s}", cluster: "PassthroughCluster", check: keepalive, want: "0 10 0"},
		{name: "probes of a rule", mesh: "tcpKeepalive: {probes: 3}", rule: rule("{connectionPool: {tcp: {tcpKeepalive: {time: 7s}}}}"), cluster: web, check: keepalive, want: "0 7 0"},
		{name: "HTTP/2 by the mesh", mesh: upgrades, cluster: web, check: protocol, want: "http2"},
		{name: "not if a rule forbids it", mesh: upgrades, rule: rule("{connectionPool: {http: {h2UpgradePolicy: DO_NOT_UPGRADE}}}"), cluster: web, check: protocol, want: "none"},
		{name: "a rule that does not say", mesh: upgrades, rule: rule("{connectionPool: {http: {maxRetries: 1}}}"), cluster: web, check: protocol, want: "http2"},
		{name: "not for TCP", mesh: upgrades, cluster: "outbound|83||me.example.com", check: protocol, want: "none"},
		{name: "not where HTTP is found", mesh: upgrades, cluster: found, check: protocol, want: "downstream"},
		{name: "but by a rule", rule: rule(upgrade), cluster: found, check: protocol, want: "http2"},
		{name: "not to the application", mesh: upgrades, rule: rule(upgrade), cluster: in, check: protocol, want: "none"},
		{name: "nor where HTTP is found", rule: rule(upgrade), cluster: inFound, check: protocol, want: "downstream"},
		{name: "refresh of DNS", cluster: "outbound|80||dns.example.com", check: dnsRefresh, want: time.Minute},
		{name: "refresh of DNS by the mesh", mesh: "dnsRefreshRate: 5s", cluster: "outbound|80||dns.example.com", check: dnsRefresh, want: 5 * time.Second},
		{name: "the name in statistics", cluster: web, check: altStatName, want: web + ";"},
		{name: "of a pattern", mesh: named, cluster: web, check: altStatName, want: "me.example.com_80_http__80"},
		{name: "with a subset", mesh: named, rule: rule("{connectionPool: {tcp: {maxConnections: 1}}}"), cluster: subset, check: altStatName, want: "me.example.com_80_http_v1_80"},
		{name: "inbound", mesh: named, cluster: in, check: altStatName, want: "in_me.example.com_me.example.com_80_8080"},
		{name: "inbound without a pattern", cluster: in, check: altStatName, want: in + ";"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, service, dns, tt.rule)
			w.SetMesh(tt.mesh)
			c := w.Simulate(captured).Cluster(tt.cluster)
			if c == nil {
				t.Fatalf("there is no %s", tt.cluster)
			}
			if got := tt.check(c); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
