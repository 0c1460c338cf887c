package schema

import (
	"net"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
)

func sidecar() *Schema {
	return definition[*networking.Sidecar]{
		kind: Sidecar, plural: "sidecars", shortName: "sc",
		codec:  config.Protobuf[networking.Sidecar](),
		served: sidecarServed(),
		check:  checkSidecar,
	}.schema()
}

func sidecarServed() fields {
	port := serve("number", "protocol", "name").refuse("targetPort", "is no longer a field of sidecars: leave it out")
	return serve("workloadSelector").
		with("ingress", serve("bind", "captureMode", "defaultEndpoint").with("port", port).with("connectionPool", connectionPoolServed()).
			secures("tls", "the port takes plaintext")).
		with("egress", serve("bind", "captureMode", "hosts").with("port", port)).
		with("outboundTrafficPolicy", serve("mode").secures("egressProxy", "connections to unknown hosts pass the proxy by")).
		with("inboundConnectionPool", connectionPoolServed())
}

func checkSidecar(c checker, s *networking.Sidecar) {
	if len(s.Ingress) == 0 && len(s.Egress) == 0 && s.OutboundTrafficPolicy == nil && s.InboundConnectionPool == nil {
		c.fail("is empty: set at least one of ingress, egress, outboundTrafficPolicy and inboundConnectionPool")
	}
	c.at("workloadSelector").selector(s.WorkloadSelector)
	checkConnectionPool(c.at("inboundConnectionPool"), s.InboundConnectionPool)
	each(c.at("ingress"), s.Ingress, checkIngress)
	each(c.at("egress"), s.Egress, checkEgress)
	unique(c.at("ingress"), s.Ingress, func(l *networking.IstioIngressListener) uint32 { return l.GetPort().GetNumber() }, "port", "number")
	unique(c.at("egress"), s.Egress, func(l *networking.IstioEgressListener) uint32 { return l.GetPort().GetNumber() }, "port", "number")
	for i, l := range s.Egress {
		if l.GetPort() == nil && i < len(s.Egress)-1 {
			c.at("egress").index(i).fail("has no port and takes all the rest: it must be the last, and the only one")
		}
	}
}

func checkIngress(c checker, l *networking.IstioIngressListener) {
	if l.GetPort() == nil {
		c.at("port").fail("is missing: number, protocol and name")
		return
	}
	checkSidecarPort(c.at("port"), l.Port)
	if l.Port.GetProtocol() == "" {
		c.at("port").at("protocol").warn("is missing: HTTP is looked for where traffic is captured, else the port is plain TCP")
	}
	c.at("bind").bind(l.Bind)
	checkCapture(c.at("captureMode"), l.CaptureMode)
	checkConnectionPool(c.at("connectionPool"), l.ConnectionPool)
	checkDefaultEndpoint(c.at("defaultEndpoint"), l.DefaultEndpoint)
}

func checkSidecarPort(c checker, p *networking.SidecarPort) {
	c.at("number").port(p.Number)
	c.at("protocol").protocol(p.Protocol)
	switch lower(p.Protocol) {
	case protocolUDP, protocolHTTPProxy:
		c.at("protocol").notServed("%s is not served yet: the listener has no effect", p.Protocol)
	}
}

func checkCapture(c checker, mode networking.CaptureMode) {
	if mode == networking.CaptureMode_IPTABLES {
		c.warn("IPTABLES is for sidecars that capture traffic: for others the listener is a plain one on its address and port")
	}
}

// checkDefaultEndpoint checks where an ingress listener sends connections: to
// the workload beside it and nowhere else.
func checkDefaultEndpoint(c checker, endpoint string) {
	if endpoint == "" {
		return
	}
	if socket, ok := strings.CutPrefix(endpoint, unixScheme); ok {
		if !strings.HasPrefix(socket, "/") && !strings.HasPrefix(socket, "@") {
			c.fail("must be %s and an absolute path, is %q", unixScheme, endpoint)
		}
		c.socket(socket)
		return
	}
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		c.fail("must be an address and a port such as 127.0.0.1:8080, is %q", endpoint)
		return
	}
	if !slices.Contains([]string{"127.0.0.1", "0.0.0.0", "::1", "::"}, host) {
		c.fail("must be on 127.0.0.1, [::1], 0.0.0.0 or [::], the workload itself, is %q", endpoint)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		c.fail("must have a port from 1 to 65535, is %q", endpoint)
	}
}

func checkEgress(c checker, l *networking.IstioEgressListener) {
	if l.GetPort() != nil {
		checkSidecarPort(c.at("port"), l.Port)
		if l.Port.GetProtocol() == "" {
			c.at("port").at("protocol").warn("is missing: the port is plain TCP")
		}
	} else if l.GetBind() != "" {
		c.at("port").fail("is missing: a bind address needs a port")
	}
	c.at("bind").bind(l.GetBind())
	checkCapture(c.at("captureMode"), l.GetCaptureMode())
	if len(l.GetHosts()) == 0 {
		c.at("hosts").fail("is missing: name at least one namespace/host, */* for all")
	}
	each(c.at("hosts"), l.GetHosts(), checkEgressHost)
	seen := map[string]int{}
	for i, host := range l.GetHosts() {
		if first, ok := seen[host]; ok {
			c.at("hosts").index(i).warn("%q is listed twice, also at [%d]", host, first)
			continue
		}
		seen[host] = i
	}
}

// checkEgressHost checks "namespace/host"; a namespace that begins with "~"
// excludes, "~" alone means none.
func checkEgressHost(c checker, value string) {
	namespace, _, ok := strings.Cut(value, "/")
	if !ok {
		c.fail("%q lacks a namespace: write namespace/host, such as */%s", value, value)
		return
	}
	if excluded, ok := strings.CutPrefix(namespace, "~"); ok && excluded != "" {
		c.namespacedHost(strings.TrimPrefix(value, "~"), "*", ".")
		return
	}
	c.namespacedHost(value, "*", ".", "~")
}
