package cluster

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// The settings of the mesh for what a rule does not say.

func connectTimeout(v *mesh.View) time.Duration {
	return v.Mesh(mesh.ConnectTimeout).GetConnectTimeout().AsDuration()
}

// dnsRefreshRate is how long proxies wait after a name was not resolved.
func dnsRefreshRate(v *mesh.View) time.Duration {
	return v.Mesh(mesh.DNSRefreshRate).GetDnsRefreshRate().AsDuration()
}

// keepalive are the probes of a policy, else of the mesh.
func keepalive(v *mesh.View, policy *networking.TrafficPolicy) *envoy.Keepalive {
	k := policy.GetConnectionPool().GetTcp().GetTcpKeepalive()
	if k == nil {
		k = v.Mesh(mesh.TCPKeepalive).GetTcpKeepalive()
	}
	if k == nil {
		return nil
	}
	return &envoy.Keepalive{Probes: k.GetProbes(), Time: k.GetTime().AsDuration(), Interval: k.GetInterval().AsDuration()}
}

// upgrades says whether HTTP/2 is spoken to the endpoints of an outbound cluster though the
// port does not say so: as the policy says, else the mesh, which speaks of HTTP ports alone.
// (Istio: shouldH2Upgrade.)
func upgrades(v *mesh.View, policy *networking.TrafficPolicy, protocol discovery.Protocol) bool {
	switch policy.GetConnectionPool().GetHttp().GetH2UpgradePolicy() {
	case networking.ConnectionPoolSettings_HTTPSettings_UPGRADE:
		return protocol.IsHTTP() || protocol == discovery.Unsupported
	case networking.ConnectionPoolSettings_HTTPSettings_DO_NOT_UPGRADE:
		return false
	}
	return protocol.IsHTTP() && v.Mesh(mesh.H2UpgradePolicy).UpgradesToHTTP2()
}

// StatName is the name of an outbound cluster in statistics, empty where the mesh has no
// pattern for it.
func StatName(v *mesh.View, s *mesh.ServiceRow, subset string, port discovery.Port) string {
	pattern := v.Mesh(mesh.OutboundClusterStatName).GetOutboundClusterStatName()
	return statName(pattern, s, subset, port, cmp.Or(port.TargetPort, port.Number))
}

// InboundStatName is the name of an inbound cluster in statistics, empty where the mesh has
// no pattern for it, or the port is of no service.
func InboundStatName(v *mesh.View, p workload.Port) string {
	pattern := v.Mesh(mesh.InboundClusterStatName).GetInboundClusterStatName()
	if len(p.Services) == 0 {
		return ""
	}
	port, _ := p.Services[0].Port(p.ServicePort)
	return statName(pattern, p.Services[0], "", port, p.Number)
}

// statName fills in a pattern. (Istio: telemetry.BuildStatPrefix.)
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
