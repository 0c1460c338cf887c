package envoy

import (
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	originalsrcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_src/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// Names of filters, as EnvoyFilters match them.
const (
	HTTPInspectorName         = "envoy.filters.listener.http_inspector"
	TLSInspectorName          = "envoy.filters.listener.tls_inspector"
	OriginalDstName           = "envoy.filters.listener.original_dst"
	OriginalSrcName           = "envoy.filters.listener.original_src"
	ProxyProtocolName         = "envoy.filters.listener.proxy_protocol"
	HTTPConnectionManagerName = "envoy.filters.network.http_connection_manager"
	TCPProxyName              = "envoy.filters.network.tcp_proxy"
	FaultName                 = "envoy.filters.http.fault"
	CORSName                  = "envoy.filters.http.cors"
	RouterName                = "envoy.filters.http.router"
)

// OriginalSourceMark is the mark on the packets of connections that keep the
// source address of the client, by which the machine's routes find them.
const OriginalSourceMark = 1337

// ListenerOptions describe a listener.
type ListenerOptions struct {
	Name string
	// Host and Port are the address, as for Address.
	Host string
	Port uint32
	// MoreHosts are further addresses with the same port.
	MoreHosts []string
	// QUIC listens for HTTP/3, on UDP. Nothing looks at connections before filter chains do.
	QUIC bool
	// Unbound listeners have no socket: they take over connections that were
	// redirected to another listener.
	Unbound bool
	// Free listeners may have an address that the machine does not.
	Free bool
	// HandOff gives a connection to the listener of the address that the client
	// meant to connect to, and keeps it where there is none.
	HandOff bool
	// OriginalDst restores the destination address that the client meant, so that filter
	// chains can match it. OriginalSrc makes connections to the application come from
	// the client's own address.
	OriginalDst, OriginalSrc bool
	// ProxyProtocol reads who the client is from a header of the PROXY protocol, in either
	// version. Connections without the header are closed.
	ProxyProtocol bool
	// Transparent listeners take connections to any address, as TPROXY delivers
	// them.
	Transparent bool
	Direction   corev3.TrafficDirection
	// HTTPInspector and TLSInspector look at the first bytes, so that filter chains can
	// match the protocol. They skip the ports of Uninspected, where the server may speak
	// first.
	HTTPInspector, TLSInspector bool
	Uninspected                 []uint32
	// DetectionTimeout is how long the HTTP inspector waits for these bytes; 0
	// is without limit. When it has passed the connection goes on undetected.
	DetectionTimeout time.Duration
	FilterChains     []*listenerv3.FilterChain
	// DefaultFilterChain gets what no other chain matches; nil to close it.
	DefaultFilterChain *listenerv3.FilterChain
	// AccessLogs record connections that no chain's filters see.
	AccessLogs []*accesslogv3.AccessLog
}

// Listener makes a listener.
func Listener(o ListenerOptions) *listenerv3.Listener {
	out := &listenerv3.Listener{
		Name:               o.Name,
		Address:            Address(o.Host, o.Port),
		TrafficDirection:   o.Direction,
		FilterChains:       o.FilterChains,
		DefaultFilterChain: o.DefaultFilterChain,
		AccessLog:          o.AccessLogs,
	}
	for _, h := range o.MoreHosts {
		out.AdditionalAddresses = append(out.AdditionalAddresses, &listenerv3.AdditionalAddress{Address: Address(h, o.Port)})
	}
	if o.QUIC {
		quic(out)
		return out
	}
	// An explicit 0 is no timeout; left out it would be 15 s.
	out.ListenerFiltersTimeout = durationpb.New(0)
	out.ContinueOnListenerFiltersTimeout = true
	if o.Unbound {
		out.BindToPort = wrapperspb.Bool(false)
	}
	if o.Free {
		out.Freebind = wrapperspb.Bool(true)
	}
	if o.HandOff {
		out.UseOriginalDst = wrapperspb.Bool(true)
	}
	if o.Transparent {
		out.Transparent = wrapperspb.Bool(true)
	}
	if o.HTTPInspector {
		out.ListenerFiltersTimeout = durationpb.New(o.DetectionTimeout)
	}
	out.ListenerFilters = o.listenerFilters()
	return out
}

// quic makes the addresses of a listener those of UDP, on which it speaks QUIC. Each worker
// has a socket of its own, without which packets of one connection would go to several.
func quic(l *listenerv3.Listener) {
	l.Address.GetSocketAddress().Protocol = corev3.SocketAddress_UDP
	for _, a := range l.GetAdditionalAddresses() {
		a.GetAddress().GetSocketAddress().Protocol = corev3.SocketAddress_UDP
	}
	l.UdpListenerConfig = &listenerv3.UdpListenerConfig{
		QuicOptions: &listenerv3.QuicProtocolOptions{}, DownstreamSocketConfig: &corev3.UdpSocketConfig{},
	}
	l.EnableReusePort = wrapperspb.Bool(true)
}

// listenerFilters: the header of the PROXY protocol comes before all else on a connection,
// and addresses are restored before anything is inspected.
func (o ListenerOptions) listenerFilters() []*listenerv3.ListenerFilter {
	var out []*listenerv3.ListenerFilter
	if o.ProxyProtocol {
		out = append(out, listenerFilter(ProxyProtocolName, &proxyprotocolv3.ProxyProtocol{}))
	}
	if o.OriginalDst {
		out = append(out, listenerFilter(OriginalDstName, &originaldstv3.OriginalDst{}))
	}
	if o.OriginalSrc {
		out = append(out, listenerFilter(OriginalSrcName, &originalsrcv3.OriginalSrc{Mark: OriginalSourceMark}))
	}
	if o.TLSInspector {
		out = append(out, o.inspector(TLSInspectorName, &tlsinspectorv3.TlsInspector{}))
	}
	if o.HTTPInspector {
		out = append(out, o.inspector(HTTPInspectorName, &httpinspectorv3.HttpInspector{}))
	}
	return out
}

func (o ListenerOptions) inspector(name string, config proto.Message) *listenerv3.ListenerFilter {
	out := listenerFilter(name, config)
	out.FilterDisabled = anyPort(o.Uninspected)
	return out
}

// anyPort matches connections to one of some ports; nil where there are none.
func anyPort(ports []uint32) *listenerv3.ListenerFilterChainMatchPredicate {
	var rules []*listenerv3.ListenerFilterChainMatchPredicate
	for _, port := range ports {
		rules = append(rules, &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
				DestinationPortRange: &typev3.Int32Range{Start: int32(port), End: int32(port) + 1},
			},
		})
	}
	switch len(rules) {
	case 0:
		return nil
	case 1:
		return rules[0]
	}
	return &listenerv3.ListenerFilterChainMatchPredicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_OrMatch{
		OrMatch: &listenerv3.ListenerFilterChainMatchPredicate_MatchSet{Rules: rules},
	}}
}

func listenerFilter(name string, config proto.Message) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{
		Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: message.Pack(config)},
	}
}

// The protocols that the inspectors detect.
const (
	TransportRaw = "raw_buffer"
	TransportTLS = "tls"
	ProtocolHTTP = "http/1.1"
	ProtocolH2C  = "h2c"
)

// PlaintextHTTP are the application protocols by which a filter chain gets the
// HTTP that is not encrypted.
func PlaintextHTTP() []string { return []string{ProtocolHTTP, ProtocolH2C} }

// MeshProtocols are the application protocols that workloads of the mesh offer each other
// in the handshake of TLS. (Istio: allIstioMtlsALPNs.)
func MeshProtocols() []string {
	return []string{"istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2"}
}

// FilterChainOptions describe a filter chain: its match, in which all conditions must
// hold, and its filters. Without a match it gets every connection.
type FilterChainOptions struct {
	Name string
	// Config is the names.ConfigPath of the object that it comes from, empty for none.
	Config string
	// Prefixes are the destination addresses it is for.
	Prefixes []CIDR
	// DestinationPort is the port the client meant to connect to, 0 for any.
	DestinationPort      uint32
	TransportProtocol    string
	ApplicationProtocols []string
	ServerNames          []string
	Filters              []*listenerv3.Filter
	// Transport decrypts the connections, which have some seconds to shake hands; nil
	// leaves them as they are.
	Transport *corev3.TransportSocket
}

// CIDR is a range of addresses.
type CIDR struct {
	Address string
	Bits    uint32
}

// handshakeTimeout closes a connection that has not shaken hands. (Istio:
// defaultGatewayTransportSocketConnectTimeout.)
const handshakeTimeout = 15 * time.Second

// FilterChain makes a filter chain.
func FilterChain(o FilterChainOptions) *listenerv3.FilterChain {
	match := &listenerv3.FilterChainMatch{
		DestinationPort:      message.Count(o.DestinationPort),
		TransportProtocol:    o.TransportProtocol,
		ApplicationProtocols: o.ApplicationProtocols,
		ServerNames:          o.ServerNames,
	}
	for _, p := range o.Prefixes {
		match.PrefixRanges = append(match.PrefixRanges, &corev3.CidrRange{
			AddressPrefix: p.Address, PrefixLen: wrapperspb.UInt32(p.Bits),
		})
	}
	out := &listenerv3.FilterChain{Name: o.Name, Filters: o.Filters, Metadata: ConfigMetadata(o.Config), TransportSocket: o.Transport}
	if o.Transport != nil {
		out.TransportSocketConnectTimeout = durationpb.New(handshakeTimeout)
	}
	if proto.Size(match) > 0 {
		out.FilterChainMatch = match
	}
	return out
}
