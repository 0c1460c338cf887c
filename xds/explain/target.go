package explain

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/transport"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// target is where a checked request goes: to a gateway, or to endpoints.
type target struct {
	gateway *discovery.Proxy
	// host is what clients call, with the port unless that is the usual one. port is the number
	// that they call, and carries its protocol.
	host    string
	port    int
	carries discovery.Protocol
	// cluster is the one by which clients reach the service, empty for none.
	cluster   string
	endpoints []endpointAt
}

// endpointAt is an endpoint, with the sidecars that take its requests; nil for those at its address.
type endpointAt struct {
	address  string
	port     int
	sidecars []*discovery.Proxy
}

// protocol says what the caller speaks. Ports without a protocol carry HTTP.
func (t target) protocol(isHTTP bool) simulate.Protocol {
	switch {
	case isHTTP, t.carries.IsHTTP(), t.carries == discovery.Unsupported:
		return simulate.HTTP
	case t.carries.IsTLS():
		return simulate.TLS
	}
	return simulate.TCP
}

// findTarget finds the destination: a host of the mesh, else a proxy, else a host by a short name
// as the caller calls it.
func (c *checker) findTarget() (target, error) {
	if row := c.push.Host(host.Name(strings.ToLower(c.to))); row != nil {
		return c.serviceTarget(row)
	}
	proxy, connected, err := proxyFrom(c.push, c.nodes, c.to)
	if err == nil {
		return c.workloadTarget(proxy, connected)
	}
	for _, h := range c.view().HostsFor(c.to) {
		if row := c.push.Host(h); row != nil {
			return c.serviceTarget(row)
		}
	}
	return target{}, fmt.Errorf("no host of the mesh is called %s, and %w", c.to, err)
}

// serviceTarget is the endpoints of a service: the one that the caller reaches, else the first.
func (c *checker) serviceTarget(row *mesh.HostRow) (target, error) {
	service := c.view().Reached(row.Hostname)
	seen := service != nil
	if !seen {
		service = row.Services[0]
	}
	if c.port == 0 && len(service.Ports()) == 1 {
		c.port = service.Ports()[0].Number
	}
	port, ok := service.Port(c.port)
	if !ok {
		var numbers []int
		for _, p := range service.Ports() {
			numbers = append(numbers, p.Number)
		}
		return target{}, fmt.Errorf("port: %s has the ports %s: name one of them", row.Hostname, numberList(numbers))
	}
	out := target{host: hostText(string(row.Hostname), port.Number), port: port.Number, carries: port.Protocol}
	if seen {
		out.cluster = names.Cluster(names.Outbound, uint32(port.Number), "", string(service.Hostname))
	}
	for _, e := range c.view().EndpointsOf(service) {
		if e.ServicePortName == port.Name {
			out.endpoints = append(out.endpoints, endpointAt{address: e.Address, port: e.Port})
		}
	}
	if len(out.endpoints) == 0 {
		return target{}, fmt.Errorf("%s has no endpoint: nothing judges a request for it", row.Hostname)
	}
	return out, nil
}

// workloadTarget is a port of a workload, or of a gateway.
func (c *checker) workloadTarget(proxy *discovery.Proxy, connected bool) (target, error) {
	switch {
	case proxy.Type == discovery.Router:
		numbers := c.serverPorts(proxy)
		if c.port == 0 && len(numbers) == 1 {
			c.port = numbers[0]
		}
		if c.authority == "" || c.port == 0 {
			return target{}, fmt.Errorf("%s is a gateway: name the port of its server, of %s, and the host of the request by the header host", c.to, numberList(numbers))
		}
		return target{gateway: proxy}, nil
	case proxy.Type == discovery.Proxyless:
		return target{}, fmt.Errorf("%s is a gRPC program without a proxy, which the simulation does not know as a server", c.to)
	case !connected:
		proxy.InterceptionMode, proxy.Certificate = discovery.InterceptionRedirect, anyCertificate
	}
	ports := workload.Ports(c.receiverOf(proxy).view)
	var numbers []int
	for _, p := range ports {
		numbers = append(numbers, p.Number)
	}
	if numbers = slices.Compact(numbers); c.port == 0 && len(numbers) == 1 {
		c.port = numbers[0]
	}
	if c.port == 0 {
		return target{}, fmt.Errorf("port: %s serves the ports %s: name one", c.to, numberList(numbers))
	}
	address := proxy.IPAddresses[0]
	if slices.Contains(proxy.IPAddresses, c.to) {
		address = c.to
	}
	out := target{host: hostText(address, c.port), port: c.port, endpoints: []endpointAt{{address, c.port, []*discovery.Proxy{proxy}}}}
	if i := slices.IndexFunc(ports, func(p workload.Port) bool { return p.Number == c.port }); i >= 0 {
		out.carries = ports[i].Protocol
		if of := ports[i].Services; len(of) > 0 {
			out.host, out.port = hostText(string(of[0].Hostname), ports[i].ServicePort), ports[i].ServicePort
			if c.view().Service(of[0].Hostname) == of[0] {
				out.cluster = names.Cluster(names.Outbound, uint32(out.port), "", string(of[0].Hostname))
			}
		}
	}
	return out, nil
}

// serverPorts returns the ports of the servers of a gateway's Gateways, in order.
func (c *checker) serverPorts(proxy *discovery.Proxy) []int {
	gateway := generate.NewBuilder(c.push, proxy, nil).View().Gateway()
	if gateway == nil {
		return nil
	}
	var out []int
	for _, g := range gateway.Gateways {
		for _, s := range g.Config.Spec.(*networking.Gateway).GetServers() {
			out = append(out, int(s.GetPort().GetNumber()))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// anyCertificate stands for the certificate of a hypothetical sidecar.
var anyCertificate = discovery.CertificateFiles{Chain: "chain", Key: "key", Roots: "roots"}

// hostText is a host as clients write it, with the port unless it is that of HTTP.
func hostText(name string, port int) string {
	if port == 80 && !strings.Contains(name, ":") {
		return name
	}
	return names.HostPort(name, uint32(port))
}

func numberList(numbers []int) string {
	if len(numbers) == 0 {
		return "(none)"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), "[]")
}

// provedTo returns a request as it comes from a caller with an identity: over mutual TLS of the
// mesh, wherever the sidecar takes that.
func (to *receiver) provedTo(r simulate.Request, identity string, port int) simulate.Request {
	if identity == "" && !r.Unnamed || workload.Mode(to.view, port) == peer.Disable {
		return r
	}
	speaks := transport.SpeaksBytes
	switch r.Protocol {
	case simulate.TCP:
		r.Protocol = simulate.TLS
	case simulate.HTTP:
		r.Protocol, speaks = simulate.HTTPS, transport.SpeaksHTTP1
	case simulate.HTTP2:
		r.Protocol, speaks = simulate.HTTPS, transport.SpeaksHTTP2
	}
	r.Identity, r.ALPN = identity, transport.ClientOptions{Speaks: speaks}.Offers()
	return r
}

// atGateway adds what a gateway does with the request.
func (c *checker) atGateway(out *AccessCheck) error {
	g := c.target.gateway
	e := &explainer{
		question: c.question, push: c.push, nodes: c.nodes, connected: true, proxy: g, types: c.types,
		builder: generate.NewBuilder(c.push, g, generate.For(c.types, g.Type)), refusals: c.refusals,
	}
	e.host, e.http = c.authority, true
	if name, _, ok := cutPort(c.authority); ok {
		e.host = name
	}
	e.buildRoutes()
	p, err := simulated(e.push, e.built)
	if err != nil {
		return err
	}
	r, _ := e.request(p)
	r.Source, r.Claims, r.Identity = out.Caller.Address, c.claims, out.Caller.Identity
	r.Unnamed = c.node && c.proxy.HasCertificate() && r.Identity == ""
	result := p.Run(r)
	out.Request = Request{
		Protocol: string(r.Protocol), Host: r.Host, Address: r.Address, Port: r.Port, Method: cmp.Or(r.Method, http.MethodGet), Path: cmp.Or(r.Path, "/"),
	}
	in := Inbound{
		Endpoints: []string{dialedText(r)}, Proxies: []string{g.ID}, Listener: result.Listener, FilterChain: result.FilterChain, VirtualHost: result.VirtualHost,
		Access: e.accessOf(e.proxy, e.view(), e.built, result, ""), Outcome: Forwarded, Plugins: e.refusals.plugins(e.proxy, e.push, e.built, result.Listener),
	}
	in.Access.weakenedBy(e, e.proxy, e.built, result.Listener)
	switch {
	case in.Access.refuses():
		in.Outcome, in.Status, in.Reason = Fails, result.Status, in.Access.Reason
	case in.Access.isOpen():
		in.Outcome, in.Reason = Unknown, in.Access.Reason
	case malformed(result) != "":
		in.Outcome, in.Status, in.Reason = Fails, result.Status, malformed(result)
	case errors.Is(result.Err, simulate.ErrNoListener):
		in.Outcome, in.Reason = e.noListener()
	case errors.Is(result.Err, simulate.ErrNoFilterChain):
		in.Outcome, in.Reason = Fails, "the listener closes the connection: "+e.whyNoChain(r)
	case in.Access == nil && result.Err != nil:
		in.Outcome, in.Reason = Unknown, result.Err.Error()
	}
	out.Destinations, out.Outcome = []Inbound{in}, in.Outcome
	return nil
}
