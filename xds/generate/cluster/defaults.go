package cluster

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// These settings come from the mesh configuration if a rule has none.

func connectTimeout(v *mesh.View) time.Duration {
	return v.Mesh(mesh.ConnectTimeout).GetConnectTimeout().AsDuration()
}

// dnsRefreshRate is the time that proxies wait after a failed resolution.
func dnsRefreshRate(v *mesh.View) time.Duration {
	return v.Mesh(mesh.DNSRefreshRate).GetDnsRefreshRate().AsDuration()
}

// keepalive returns the TCP keepalive of a policy, else of the mesh.
func keepalive(v *mesh.View, policy *networking.TrafficPolicy) *upstream.Keepalive {
	k := policy.GetConnectionPool().GetTcp().GetTcpKeepalive()
	if k == nil {
		k = v.Mesh(mesh.TCPKeepalive).GetTcpKeepalive()
	}
	if k == nil {
		return nil
	}
	return &upstream.Keepalive{Probes: k.GetProbes(), Time: k.GetTime().AsDuration(), Interval: k.GetInterval().AsDuration()}
}

// ofProxy sets what the configuration of a proxy says of all its clusters, for a port of a protocol.
func ofProxy(v *mesh.View, protocol discovery.Protocol, o upstream.ClusterOptions) upstream.ClusterOptions {
	config := v.ProxyConfig()
	o.BufferLimit = uint32(max(0, config.Connections(v.IsGateway()).GetClusterPerConnectionBufferLimitBytes().GetValue()))
	if config.PreservesHeaderCase() && (protocol.IsHTTP() || protocol == discovery.Unsupported) {
		var http upstream.HTTP
		if o.HTTP != nil {
			http = *o.HTTP
		}
		http.PreserveCase = true
		o.HTTP = &http
	}
	return o
}

// upgrades says whether the proxy speaks HTTP/2 to the endpoints of an outbound cluster
// whose port does not declare it. The policy decides, else the mesh, which decides only
// for HTTP ports. (Istio: shouldH2Upgrade.)
func upgrades(v *mesh.View, policy *networking.TrafficPolicy, protocol discovery.Protocol) bool {
	switch policy.GetConnectionPool().GetHttp().GetH2UpgradePolicy() {
	case networking.ConnectionPoolSettings_HTTPSettings_UPGRADE:
		return protocol.IsHTTP() || protocol == discovery.Unsupported
	case networking.ConnectionPoolSettings_HTTPSettings_DO_NOT_UPGRADE:
		return false
	}
	return protocol.IsHTTP() && v.Mesh(mesh.H2UpgradePolicy).UpgradesToHTTP2()
}

// StatName is the name of an outbound cluster in statistics, empty if the mesh has no
// pattern for it.
func StatName(v *mesh.View, s *mesh.ServiceRow, subset string, port discovery.Port) string {
	pattern := v.Mesh(mesh.OutboundClusterStatName).GetOutboundClusterStatName()
	return statName(pattern, s, subset, port, cmp.Or(port.TargetPort, port.Number))
}

// InboundStatName is the name of an inbound cluster in statistics. It is empty if the
// mesh has no pattern for it, or the port belongs to no service.
func InboundStatName(v *mesh.View, p workload.Port) string {
	pattern := v.Mesh(mesh.InboundClusterStatName).GetInboundClusterStatName()
	if len(p.Services) == 0 {
		return ""
	}
	port, _ := p.Services[0].Port(p.ServicePort)
	return statName(pattern, p.Services[0], "", port, p.Number)
}

// statName fills in the pattern. (Istio: telemetry.BuildStatPrefix.)
func statName(pattern string, s *mesh.ServiceRow, subset string, port discovery.Port, target int) string {
	if pattern == "" {
		return ""
	}
	ref := serviceRef(s)
	return strings.NewReplacer(
		"%SERVICE%", string(s.Hostname), "%SERVICE_NAME%", ref.Name, "%SERVICE_FQDN%", string(s.Hostname), "%SUBSET_NAME%", subset,
		"%SERVICE_PORT%", strconv.Itoa(port.Number), "%SERVICE_PORT_NAME%", port.Name,
		"%TARGET_PORT%", strconv.Itoa(target),
	).Replace(pattern)
}
