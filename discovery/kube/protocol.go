package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/portolan-mesh/portolan/discovery"
)

// standardProtocols are the protocols that Kubernetes itself names for appProtocol.
var standardProtocols = map[string]discovery.Protocol{
	"kubernetes.io/h2c": discovery.HTTP2,
	"kubernetes.io/ws":  discovery.HTTP,
	"kubernetes.io/wss": discovery.HTTPS,
}

// tcpPorts are ports whose servers speak first, so that a proxy must not wait for the client to
// tell the protocol: SMTP, DNS, MySQL and MongoDB. (Istio: wellKnownPorts.)
var tcpPorts = map[int32]bool{25: true, 53: true, 3306: true, 27017: true}

// protocolOf returns the protocol of a port: that of appProtocol, else what its name begins with,
// as in http-api. (Istio: kube.ConvertProtocol.)
func protocolOf(p *corev1.ServicePort) discovery.Protocol {
	if p.Protocol == corev1.ProtocolUDP {
		return discovery.UDP
	}
	name := p.Name
	if p.AppProtocol != nil {
		if known, ok := standardProtocols[strings.ToLower(*p.AppProtocol)]; ok {
			return known
		}
		name = *p.AppProtocol
	}
	lower := strings.ToLower(name)
	if lower == "grpc-web" || strings.HasPrefix(lower, "grpc-web-") {
		return discovery.GRPCWeb
	}
	first, _, _ := strings.Cut(name, "-")
	protocol := discovery.ParseProtocol(first)
	if protocol == discovery.Unsupported && tcpPorts[p.Port] {
		return discovery.TCP
	}
	return protocol
}
