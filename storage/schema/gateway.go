package schema

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
)

func gateway() *Schema {
	return definition[*networking.Gateway]{
		kind: Gateway, plural: "gateways", shortName: "gw",
		codec: config.Protobuf[networking.Gateway](),
		// Which fields of a server are served depends on its protocol: see checkServer.
		served: serve("selector", "servers"),
		check:  checkGateway,
	}.schema()
}

func serverServed() fields {
	return serve("bind", "hosts", "name", "tls").
		with("port", serve("number", "name", "protocol").refuse("targetPort", "is no longer a field of gateways: leave it out"))
}

func checkGateway(c checker, g *networking.Gateway) {
	c.at("selector").labels(g.Selector)
	if len(g.Servers) == 0 {
		c.at("servers").fail("is missing: a gateway needs at least one server")
	}
	each(c.at("servers"), g.Servers, checkServer)
	unique(c.at("servers"), g.Servers, func(s *networking.Server) string { return s.GetPort().GetName() }, "port", "name")
}

func checkServer(c checker, s *networking.Server) {
	if s.GetPort() == nil {
		c.at("port").fail("is missing: number, name and protocol")
		return
	}
	checkServerPort(c.at("port"), s.Port)
	checkServerBind(c, s)
	if len(s.Hosts) == 0 {
		c.at("hosts").fail(`is missing: name at least one host, "*" for all`)
	}
	each(c.at("hosts"), s.Hosts, func(c checker, host string) { c.namespacedHost(host, "*", ".") })
	unique(c.at("hosts"), s.Hosts, identity)
	switch p := lower(s.Port.Protocol); p {
	case protocolHTTP, protocolHTTP2, protocolGRPC, "grpc-web":
		checkPlaintext(c.at("tls"), s.Tls)
		c.unserved(s.ProtoReflect(), serverServed())
	case protocolHTTPS, protocolTLS:
		if s.Tls == nil {
			c.at("tls").fail("is missing: protocol %s needs it", s.Port.Protocol)
		} else {
			checkServerTLS(c.at("tls"), s.Tls)
		}
		c.unserved(s.ProtoReflect(), serverServed())
	case protocolTCP, "mongo", "mysql", "redis":
		if s.Tls != nil {
			c.at("tls").fail("needs protocol HTTPS or TLS: use TLS for a server that ends TLS and passes on what is within")
		}
		c.unserved(s.ProtoReflect(), serverServed())
	default:
		if slices.Contains(protocols(), p) {
			c.notServed(serverNotServed, s.Port.Protocol, s.Port.Number)
		}
	}
}

const serverNotServed = "is a server of protocol %s on port %d, which is not served yet and has no effect"

// checkServerBind checks the address of a server: an IP address and a port, or a Unix domain
// socket, which has port 0.
func checkServerBind(c checker, s *networking.Server) {
	number := c.at("port", "number")
	switch {
	case !strings.HasPrefix(s.Bind, unixScheme):
		number.port(s.Port.Number)
		c.at("bind").bind(s.Bind)
	case s.Port.Number != 0:
		number.fail("must be 0 for a Unix domain socket, is %d", s.Port.Number)
	default:
		c.at("bind").unixSocket(s.Bind)
	}
}

func checkServerPort(c checker, p *networking.Port) {
	if p.Name == "" {
		c.at("name").fail("is missing: every port has a name of its own")
	} else {
		c.at("name").dnsLabel(lower(p.Name))
	}
	if p.Protocol == "" {
		c.at("protocol").fail("is missing: HTTP, for instance")
	}
	c.at("protocol").protocol(p.Protocol)
}

// checkPlaintext refuses certificates that would not be used.
func checkPlaintext(c checker, t *networking.ServerTLSSettings) {
	if t != nil && anySet(t, "httpsRedirect") {
		c.fail("certificates and modes need protocol HTTPS or TLS: a plaintext port takes httpsRedirect only")
	}
}
