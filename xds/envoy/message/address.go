package message

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/portolan-mesh/portolan/xds/names"
)

// Address makes the address of a host: an IP address (IPv6 with or without brackets), a
// host name, or a Unix domain socket. A socket's port is ignored.
func Address(host string, port uint32) *corev3.Address {
	if names.IsUnix(host) {
		return &corev3.Address{Address: &corev3.Address_Pipe{
			Pipe: &corev3.Pipe{Path: strings.TrimPrefix(host, "unix://")},
		}}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}
