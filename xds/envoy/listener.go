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
	GRPCWebName               = "envoy.filters.http.grpc_web"
	FaultName                 = "envoy.filters.http.fault"
	CORSName                  = "envoy.filters.http.cors"
	RouterName                = "envoy.filters.http.router"
)

// OriginalSourceMark is the mark on packets of connections that keep the client's source
// address. The machine's routes match it.
const OriginalSourceMark = 1337

// ListenerOptions describe a listener.
type ListenerOptions struct {
	Name string
	// Host and Port are the address, as for Address.
	Host string
	Port uint32
	// MoreHosts are further addresses with the same port.
	MoreHosts []string
	// QUIC makes it an HTTP/3 listener, on UDP, without listener filters.
	QUIC bool
	// Unbound listeners have no socket: they take connections that another listener hands
	// off.
	Unbound bool
	// Free listeners may bind an address that the machine does not have.
	Free bool
	// HandOff hands a connection to the listener of its original destination, and keeps
	// it if there is none.
	HandOff bool
	// OriginalDst restores the original destination address, so that filter chains can
	// match it. OriginalSrc makes connections to the application come from the client's
	// address.
	OriginalDst, OriginalSrc bool
	// ProxyProtocol reads the client's address from a PROXY protocol header of either
	// version. Connections without the header are closed.
	ProxyProtocol bool
	// Transparent listeners accept connections to any address, as TPROXY delivers them.
	Transparent bool
	Direction   corev3.TrafficDirection
	// HTTPInspector and TLSInspector inspect the first bytes, so that filter chains can
	// match the protocol; nil for no inspection.
	HTTPInspector, TLSInspector *Inspection
	// DetectionTimeout is how long the inspectors wait for these bytes; 0 means no
	// limit. After it, the connection goes on undetected.
	DetectionTimeout time.Duration
	FilterChains     []*listenerv3.FilterChain
	// DefaultFilterChain gets connections that no other chain matches; nil closes them.
	DefaultFilterChain *listenerv3.FilterChain
	// AccessLogs record connections that match no filter chain.
	AccessLogs []*accesslogv3.AccessLog
	// BufferLimit bounds what is buffered of a connection, softly, in bytes; nil means Envoy's MiB.
	BufferLimit *wrapperspb.Int32Value
}

// Listener makes a listener.
func Listener(o ListenerOptions) *listenerv3.Listener {
	out := &listenerv3.Listener{
		Name:               o.Name,
		Address:            message.Address(o.Host, o.Port),
		TrafficDirection:   o.Direction,
		FilterChains:       o.FilterChains,
		DefaultFilterChain: o.DefaultFilterChain,
		AccessLog:          o.AccessLogs,

		PerConnectionBufferLimitBytes: unsigned(o.BufferLimit),
	}
	for _, h := range o.MoreHosts {
		out.AdditionalAddresses = append(out.AdditionalAddresses, &listenerv3.AdditionalAddress{Address: message.Address(h, o.Port)})
	}
	if o.QUIC {
		quic(out)
		return out
	}
	// An explicit 0 means no timeout; omitted, it would be 15 s.
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
	if o.HTTPInspector != nil || o.TLSInspector != nil {
		out.ListenerFiltersTimeout = durationpb.New(o.DetectionTimeout)
	}
	out.ListenerFilters = o.listenerFilters()
	return out
}

// quic turns the addresses of a listener into UDP addresses for QUIC. Each worker has its
// own socket; otherwise packets of one connection would go to several workers.
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

// The PROXY protocol header comes first on a connection. Addresses are restored before
// inspection.
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
	if o.TLSInspector != nil {
		out = append(out, o.TLSInspector.filter(TLSInspectorName, &tlsinspectorv3.TlsInspector{}))
	}
	if o.HTTPInspector != nil {
		out = append(out, o.HTTPInspector.filter(HTTPInspectorName, &httpinspectorv3.HttpInspector{}))
	}
	return out
}

// Inspection says on which ports an inspector looks at the first bytes of a connection. On a
// port where the server may speak first it would wait for a client that waits.
type Inspection struct {
	// Except are ports that it skips. If there are any in Only, it skips all others.
	Except, Only []uint32
}

func (i *Inspection) filter(name string, config proto.Message) *listenerv3.ListenerFilter {
	out := listenerFilter(name, config)
	out.FilterDisabled = anyPort(i.Except)
	if len(i.Only) > 0 {
		out.FilterDisabled = &listenerv3.ListenerFilterChainMatchPredicate{
			Rule: &listenerv3.ListenerFilterChainMatchPredicate_NotMatch{NotMatch: anyPort(i.Only)},
		}
	}
	return out
}

// anyPort matches connections to any of the ports; nil if there are none.
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

// The transport and application protocols that the inspectors detect.
const (
	TransportRaw = "raw_buffer"
	TransportTLS = "tls"
	ProtocolHTTP = "http/1.1"
	ProtocolH2C  = "h2c"
)

// PlaintextHTTP returns the application protocols with which a filter chain matches
// unencrypted HTTP.
func PlaintextHTTP() []string { return []string{ProtocolHTTP, ProtocolH2C} }

// MeshProtocols returns the ALPN protocols that workloads of the mesh offer each other.
// (Istio: allIstioMtlsALPNs.)
func MeshProtocols() []string { return append(MeshBytes(), MeshHTTP()...) }

// MeshBytes returns those of connections that carry bytes. Istio's own proxies offer the
// second one, too, with which they would send each other a preamble.
func MeshBytes() []string { return []string{"istio", "istio-peer-exchange"} }

// MeshHTTP returns those of connections that carry HTTP.
func MeshHTTP() []string { return []string{"istio-http/1.0", "istio-http/1.1", "istio-h2"} }

// FilterChainOptions describe a filter chain: its filters, and its match, in which all
// conditions must hold. Without conditions it matches every connection.
type FilterChainOptions struct {
	Name string
	// Config is the names.ConfigPath of the object behind it, empty for none.
	Config string
	// Prefixes are the destination addresses that it matches.
	Prefixes []CIDR
	// DestinationPort is the original destination port, 0 for any.
	DestinationPort      uint32
	TransportProtocol    string
	ApplicationProtocols []string
	ServerNames          []string
	Filters              []*listenerv3.Filter
	// Transport terminates TLS, with a handshake timeout; nil for plaintext.
	Transport *corev3.TransportSocket
}

// CIDR is an address range.
type CIDR struct {
	Address string
	Bits    uint32
}

// handshakeTimeout closes connections whose handshake takes longer. (Istio:
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
	out := &listenerv3.FilterChain{Name: o.Name, Filters: o.Filters, Metadata: message.ConfigMetadata(o.Config), TransportSocket: o.Transport}
	if o.Transport != nil {
		out.TransportSocketConnectTimeout = durationpb.New(handshakeTimeout)
	}
	if proto.Size(match) > 0 {
		out.FilterChainMatch = match
	}
	return out
}
