package bootstrap

import (
	"fmt"
	"net/netip"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
)

// metricsCluster is the cluster for the metrics service of a ProxyConfig. (Istio's bootstrap has the same.)
const metricsCluster = "envoy_metrics_service"

// addStatsSinks adds where a ProxyConfig sends statistics.
func (o Options) addStatsSinks(out *bootstrapv3.Bootstrap) error {
	if at, err := netip.ParseAddrPort(o.Config.GetStatsdUdpAddress()); err == nil { // validated
		address := message.Address(at.Addr().String(), uint32(at.Port()))
		address.GetSocketAddress().Protocol = corev3.SocketAddress_UDP
		out.StatsSinks = append(out.StatsSinks, statsSink("envoy.stat_sinks.statsd", &metricsv3.StatsdSink{
			StatsdSpecifier: &metricsv3.StatsdSink_Address{Address: address},
		}))
	}
	if o.Config.GetEnvoyMetricsService() == nil {
		return nil
	}
	cluster, err := o.metricsCluster()
	if err != nil {
		return err
	}
	out.StaticResources.Clusters = append(out.StaticResources.Clusters, cluster)
	out.StatsSinks = append(out.StatsSinks, statsSink("envoy.stat_sinks.metrics_service", &metricsv3.MetricsServiceConfig{
		GrpcService: message.GRPCService(metricsCluster), TransportApiVersion: corev3.ApiVersion_V3,
	}))
	return nil
}

func statsSink(name string, config proto.Message) *metricsv3.StatsSink {
	return &metricsv3.StatsSink{Name: name, ConfigType: &metricsv3.StatsSink_TypedConfig{TypedConfig: message.Pack(config)}}
}

func (o Options) metricsCluster() (*clusterv3.Cluster, error) {
	service := o.Config.GetEnvoyMetricsService()
	host, port, err := hostPort(service.GetAddress())
	if err != nil {
		return nil, fmt.Errorf("envoyMetricsService.address %q: %w", service.GetAddress(), err)
	}
	options := upstream.ClusterOptions{
		Name: metricsCluster, Type: upstream.StrictDNS, ConnectTimeout: o.ConnectTimeout, DNS: upstream.DNSOptions{Family: upstream.DNSAll},
		Endpoints:    []upstream.Endpoints{{Endpoints: []upstream.Endpoint{{Host: host, Port: port}}}},
		LoadBalancer: upstream.LoadBalancer{Policy: upstream.RoundRobin},
		HTTP:         &upstream.HTTP{Protocol: upstream.HTTP2},
	}
	if isIP(host) {
		options.Type = upstream.Static
	}
	if k := service.GetTcpKeepalive(); k != nil {
		options.Keepalive = &upstream.Keepalive{Probes: k.GetProbes(), Time: k.GetTime().AsDuration(), Interval: k.GetInterval().AsDuration()}
	}
	tls := service.GetTlsSettings()
	if tls.GetMode() != networking.ClientTLSSettings_ISTIO_MUTUAL {
		return upstream.Cluster(options), nil
	}
	if !o.TLS {
		return nil, fmt.Errorf("envoyMetricsService.tlsSettings: ISTIO_MUTUAL needs TLS to the control plane, whose certificate the proxy uses")
	}
	certificate, roots := o.ownSecrets()
	sni := tls.GetSni()
	if sni == "" && !isIP(host) {
		sni = host
	}
	options.Transport = socket.UpstreamTLS(socket.UpstreamTLSOptions{SNI: sni, TLSOptions: socket.TLSOptions{
		ALPN: []string{"h2"}, MinVersion: socket.TLSv1_2, MaxVersion: socket.TLSv1_3, Certificates: []socket.SecretRef{certificate},
		Peer: &socket.PeerValidation{Roots: roots, SubjectAltNames: tls.GetSubjectAltNames()},
	}})
	return upstream.Cluster(options), nil
}
