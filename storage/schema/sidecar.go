package schema

import (
	"net"
	"net/netip"
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
		with("ingress", serve("bind", "captureMode", "defaultEndpoint", "tls").with("port", port).with("connectionPool", connectionPoolServed())).
		with("egress", serve("bind", "captureMode", "hosts").with("port", port)).
		with("outboundTrafficPolicy", serve("mode").with("egressProxy", serve("host", "subset").with("port", serve("number")))).
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
	apart(c.at("ingress"), s.Ingress)
	apart(c.at("egress"), s.Egress)
	checkSockets(c.at("egress"), s.Egress)
	checkOutboundTrafficPolicy(c.at("outboundTrafficPolicy"), s.OutboundTrafficPolicy)
	for i, l := range s.Egress {
		if l.GetPort() == nil && i < len(s.Egress)-1 {
			c.at("egress").index(i).fail("has no port and takes all the rest: it must be the last, and the only one")
		}
	}
}

// apart checks that listeners of one port are at different addresses, which all of them name.
func apart[L interface {
	GetPort() *networking.SidecarPort
	GetBind() string
}](c checker, all []L) {
	type place struct {
		port    uint32
		address string
	}
	placeOf := func(l L) place {
		at := place{l.GetPort().GetNumber(), l.GetBind()}
		if ip, err := netip.ParseAddr(at.address); err == nil {
			at.address = ip.Unmap().String()
		}
		return at
	}
	for i, l := range all {
		at := placeOf(l)
		if at.port == 0 {
			continue
		}
		for k, o := range all[:i] {
			other := placeOf(o)
			if other.port != at.port {
				continue
			}
			first := c.index(k).at("port", "number").path()
			if at.address == "" || other.address == "" {
				c.index(i).at("port", "number").fail("%d is set twice, also at %s: give each of the listeners a bind of its own, or put their hosts into one", at.port, first)
			} else if at.address == other.address {
				c.index(i).at("bind").fail("%s with port %d is set twice, also at %s", at.address, at.port, first)
			}
		}
	}
}

func checkIngress(c checker, l *networking.IstioIngressListener) {
	if l.GetPort() == nil {
		c.at("port").fail("is missing: number, protocol and name")
		return
	}
	c.at("port", "number").port(l.Port.GetNumber())
	c.at("port", "protocol").protocol(l.Port.GetProtocol())
	switch lower(l.Port.GetProtocol()) {
	case protocolUDP, protocolHTTPProxy:
		c.at("port", "protocol").notServed("%s is not served yet: the listener has no effect", l.Port.GetProtocol())
	case "":
		c.at("port", "protocol").warn("is missing: HTTP is looked for where traffic is captured, else the port is plain TCP")
	}
	if strings.HasPrefix(l.Bind, unixScheme) {
		c.at("bind").fail("must be an IP address: an ingress listener has no socket, and its defaultEndpoint may be one")
	} else {
		c.at("bind").bind(l.Bind)
	}
	checkCapture(c.at("captureMode"), l.CaptureMode)
	checkConnectionPool(c.at("connectionPool"), l.ConnectionPool)
	if p := lower(l.Port.GetProtocol()); l.GetConnectionPool().GetHttp() != nil && p != "" && !slices.Contains([]string{protocolHTTP, protocolHTTP2, protocolGRPC, "grpc-web"}, p) {
		c.at("connectionPool", "http").warn("is for HTTP, and the protocol of the port is %s: only tcp has an effect", l.Port.GetProtocol())
	}
	checkIngressTLS(c, l)
	checkDefaultEndpoint(c.at("defaultEndpoint"), l.DefaultEndpoint)
}

// A sidecar has certificates in files only.
func checkIngressTLS(c checker, l *networking.IstioIngressListener) {
	tls, at := l.GetTls(), c.at("tls")
	if tls == nil {
		return
	}
	switch tls.GetMode() {
	case networking.ServerTLSSettings_ISTIO_MUTUAL, networking.ServerTLSSettings_AUTO_PASSTHROUGH:
		at.at("mode").fail("%s is not for sidecars: use SIMPLE, MUTUAL or OPTIONAL_MUTUAL", tls.GetMode())
	case networking.ServerTLSSettings_PASSTHROUGH:
		at.warn("has no effect with mode PASSTHROUGH, which ends no TLS: use SIMPLE, MUTUAL or OPTIONAL_MUTUAL")
	}
	checkVersions(at, tls)
	checkCiphers(at.at("cipherSuites"), tls.GetCipherSuites())
	checkPins(at, tls)
	checkServerFiles(at, tls)
	const gateways = "is for gateways: leave it out"
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"httpsRedirect", tls.GetHttpsRedirect()}, {"credentialName", tls.GetCredentialName() != ""}, {"credentialNames", len(tls.GetCredentialNames()) > 0},
		{"tlsCertificates", len(tls.GetTlsCertificates()) > 0}, {"subjectAltNames", len(tls.GetSubjectAltNames()) > 0},
	} {
		if f.set {
			at.at(f.name).fail(gateways)
		}
	}
}

// checkOutboundTrafficPolicy checks where traffic to unknown hosts goes.
func checkOutboundTrafficPolicy(c checker, p *networking.OutboundTrafficPolicy) {
	proxy, at := p.GetEgressProxy(), c.at("egressProxy")
	if proxy == nil {
		return
	}
	if p.GetMode() != networking.OutboundTrafficPolicy_ALLOW_ANY {
		at.fail("needs mode ALLOW_ANY: with %s no traffic to unknown hosts passes", p.GetMode())
	}
	at.at("host").failIf(hostName(proxy.GetHost()))
	at.at("host").shortName(proxy.GetHost())
	if proxy.GetPort() == nil {
		at.at("port").fail("is missing: name the number of a port of the service")
	} else {
		at.at("port", "number").port(proxy.GetPort().GetNumber())
	}
	if proxy.GetSubset() != "" {
		at.at("subset").dnsLabel(lower(proxy.GetSubset()))
	}
}

// checkSockets checks that egress listeners have sockets of their own.
func checkSockets(c checker, all []*networking.IstioEgressListener) {
	socket := func(l *networking.IstioEgressListener) string {
		if l.GetPort() == nil || l.GetPort().GetNumber() != 0 || !strings.HasPrefix(l.GetBind(), unixScheme) {
			return ""
		}
		return l.GetBind()
	}
	unique(c, all, socket, "bind")
	for i, l := range all {
		for k, other := range all {
			if socket(other) != "" && strings.HasPrefix(socket(l), socket(other)+"/") {
				c.index(i).at("bind").fail("is within %s, which is a socket and no directory", c.index(k).at("bind").path())
			}
		}
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
	if strings.HasPrefix(endpoint, unixScheme) {
		c.unixSocket(endpoint)
		return
	}
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		c.fail("must be an address and a port such as 127.0.0.1:8080, is %q", endpoint)
		return
	}
	if !slices.Contains([]string{"", "127.0.0.1", "0.0.0.0", "::1", "::"}, host) {
		c.fail("must be on 127.0.0.1, [::1], 0.0.0.0 or [::], the workload itself, is %q", endpoint)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		c.fail("must have a port from 1 to 65535, is %q", endpoint)
	}
}

func checkEgress(c checker, l *networking.IstioEgressListener) {
	checkEgressBind(c, l)
	if l.GetPort() != nil {
		c.at("port", "protocol").protocol(l.Port.GetProtocol())
		switch lower(l.Port.GetProtocol()) {
		case protocolUDP:
			c.at("port", "protocol").notServed("%s is not served yet: the listener has no effect", l.Port.GetProtocol())
		case "":
			c.at("port", "protocol").warn("is missing: the port is plain TCP")
		}
	}
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
	for i, host := range l.GetHosts() {
		namespace, name, _ := strings.Cut(host, "/")
		if first, ok := seen[namespace+"/*"]; ok && name != "*" && namespace != "~" {
			c.at("hosts").index(i).warn("%q is covered by %q at [%d]", host, namespace+"/*", first)
		}
	}
}

// checkEgressBind checks the address of an egress listener: an IP address, or a Unix
// domain socket, which has port 0.
func checkEgressBind(c checker, l *networking.IstioEgressListener) {
	unix, number := strings.HasPrefix(l.GetBind(), unixScheme), l.GetPort().GetNumber()
	switch {
	case unix && l.GetPort() == nil:
		c.at("port").fail("is missing: a Unix domain socket needs number 0 and a protocol")
	case unix && number != 0:
		c.at("port", "number").fail("must be 0 for a Unix domain socket, is %d", number)
	case unix:
		c.at("bind").unixSocket(l.GetBind())
		if l.GetCaptureMode() == networking.CaptureMode_IPTABLES {
			c.at("captureMode").fail("must be DEFAULT or NONE for a Unix domain socket, whose traffic nothing captures")
		}
		return
	case l.GetPort() != nil && number == 0:
		c.at("port", "number").fail("must be a port from 1 to 65535, is 0, which is for a bind of %s and a path", unixScheme)
	case l.GetPort() != nil:
		c.at("port", "number").port(number)
	}
	if !unix {
		c.at("bind").bind(l.GetBind())
	}
	checkCapture(c.at("captureMode"), l.GetCaptureMode())
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
