package socket

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// ProxyProtocolVersion is a version of the PROXY protocol, 0 for none.
type ProxyProtocolVersion int

// The versions.
const (
	ProxyProtocolV1 ProxyProtocolVersion = 1 + iota
	ProxyProtocolV2
)

const (
	proxyProtocolSocket = "envoy.transport_sockets.upstream_proxy_protocol"
	rawBufferSocket     = "envoy.transport_sockets.raw_buffer"
)

// raw makes the socket for plaintext.
func raw() *corev3.TransportSocket {
	return socket(rawBufferSocket, &corev3.TransportSocket_TypedConfig{TypedConfig: message.Pack(&rawbufferv3.RawBuffer{})})
}

// Wrap makes a socket that begins each connection with a plaintext PROXY protocol header
// and then uses inner; nil means plaintext. Version 0 returns inner.
func (v ProxyProtocolVersion) Wrap(inner *corev3.TransportSocket) *corev3.TransportSocket {
	var version corev3.ProxyProtocolConfig_Version
	switch v {
	case ProxyProtocolV1:
		version = corev3.ProxyProtocolConfig_V1
	case ProxyProtocolV2:
		version = corev3.ProxyProtocolConfig_V2
	default:
		return inner
	}
	if inner == nil {
		inner = raw()
	}
	return &corev3.TransportSocket{
		Name: proxyProtocolSocket,
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: message.Pack(&proxyprotocolv3.ProxyProtocolUpstreamTransport{
			Config:          &corev3.ProxyProtocolConfig{Version: version},
			TransportSocket: inner,
		})},
	}
}
