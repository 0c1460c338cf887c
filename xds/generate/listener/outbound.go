package listener

import (
	"cmp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// egressNames names the listeners of the egress listeners that have a port.
func egressNames(v *mesh.View, yield func(string) bool) bool {
	for _, l := range v.Egress() {
		if l.Port != 0 && !yield(outboundName(v, l, l.Port)) {
			return false
		}
	}
	return true
}

func outboundName(v *mesh.View, l mesh.EgressListener, port int) string {
	return envoy.ListenerName(outboundBind(v, l), uint32(port))
}

func outboundBind(v *mesh.View, l mesh.EgressListener) string {
	return cmp.Or(l.Bind, loopback(v.Shape()))
}

// outbound makes the listener of a port, nil where nothing stands behind it.
// HTTP goes to the routes of the port, what is not HTTP to one service: all that
// tells connections apart is the port. Where both are on one port, the first
// bytes decide.
func outbound(v *mesh.View, name string, l mesh.EgressListener, port int) (*resource.Resource, error) {
	if !l.Protocol.IsServed() {
		return nil, nil
	}
	http := route.Carries(v, l, port)
	var tcp *mesh.ServiceRow
	if l.Port == 0 || !http {
		tcp = tcpService(v, l, port)
	}
	options := envoy.ListenerOptions{
		Name: name, Host: outboundBind(v, l), Port: uint32(port),
		Direction: corev3.TrafficDirection_OUTBOUND,
	}
	var children []string
	if http {
		children = []string{envoy.SidecarRouteConfigName(uint32(port))}
	}
	switch {
	case http && tcp != nil:
		options.HTTPInspector = true
		options.FilterChains = []*listenerv3.FilterChain{httpChain(v, name, port, envoy.PlaintextHTTP())}
		options.DefaultFilterChain = tcpChain(v, tcp, port)
	case http:
		options.FilterChains = []*listenerv3.FilterChain{httpChain(v, name, port, nil)}
	case tcp != nil:
		options.FilterChains = []*listenerv3.FilterChain{tcpChain(v, tcp, port)}
	default:
		return nil, nil
	}
	options.AccessLogs = accessLogs(v, true)
	return resource.New(name, envoy.Listener(options), children...)
}

// tcpService is the service that gets the connections of a port: the oldest of
// those that the listener sees. (Istio: of services that collide, the first
// keeps the port.) Where the listener itself says that its port is not HTTP,
// those count that speak HTTP there, too.
func tcpService(v *mesh.View, l mesh.EgressListener, port int) *mesh.ServiceRow {
	var oldest *mesh.ServiceRow
	for name, use := range v.PortHosts(port) {
		if !use.TCP && l.Port == 0 {
			continue
		}
		row := v.ServiceAt(l, host.Name(name))
		if row == nil {
			continue
		}
		p, ok := row.Port(port)
		if !ok || !p.Protocol.IsServed() || p.Protocol.IsHTTP() && l.Port == 0 {
			continue
		}
		if oldest == nil || discovery.CompareServices(row.Service(), oldest.Service()) < 0 {
			oldest = row
		}
	}
	return oldest
}

func httpChain(v *mesh.View, name string, port int, protocols []string) *listenerv3.FilterChain {
	return envoy.FilterChain(envoy.FilterChainOptions{
		ApplicationProtocols: protocols,
		Filters: []*listenerv3.Filter{envoy.HTTPConnectionManager(envoy.HTTPOptions{
			StatPrefix:      envoy.HTTPStatPrefix(envoy.Outbound, name),
			RouteConfigName: envoy.SidecarRouteConfigName(uint32(port)),
			AccessLogs:      accessLogs(v, false),
		})},
	})
}

func tcpChain(v *mesh.View, service *mesh.ServiceRow, port int) *listenerv3.FilterChain {
	cluster := envoy.ClusterName(envoy.Outbound, uint32(port), "", string(service.Hostname))
	hash := v.Rule(service).PolicyFor("", port).GetLoadBalancer().GetConsistentHash()
	return envoy.FilterChain(envoy.FilterChainOptions{
		Filters: []*listenerv3.Filter{envoy.TCPProxy(envoy.TCPProxyOptions{
			StatPrefix:   cluster,
			Clusters:     []envoy.WeightedCluster{{Name: cluster}},
			HashSourceIP: hash.GetUseSourceIp(),
			AccessLogs:   accessLogs(v, false),
		})},
	})
}
