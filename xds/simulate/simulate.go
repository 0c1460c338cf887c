package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// The reasons why a request reaches no destination.
var (
	ErrNoListener    = errors.New("no listener")
	ErrNoFilterChain = errors.New("no filter chain")
	ErrNoRouteConfig = errors.New("no route configuration") // Envoy would wait for it
	ErrNoVirtualHost = errors.New("no virtual host")
	ErrNoRoute       = errors.New("no route")
	ErrNoExtension   = errors.New("no configuration of the filter") // Envoy would wait for it
	ErrRefused       = errors.New("connection refused by RBAC")
	ErrPlaintext     = errors.New("plaintext where TLS is spoken")
	ErrEncrypted     = errors.New("TLS where plaintext is spoken")
	ErrUnnamed       = errors.New("the identity of the client is not known, and RBAC depends on it")
)

// Proxy simulates an Envoy, or a gRPC client, with some resources. It is never modified
// after New.
type Proxy struct {
	listeners  []*listenerv3.Listener
	routes     map[string]*routev3.RouteConfiguration
	clusters   map[string]*clusterv3.Cluster
	endpoints  map[string]*endpointv3.ClusterLoadAssignment
	extensions map[string]*corev3.TypedExtensionConfig
	patched    Patched
}

// New parses listeners, routes, clusters, endpoints and the configurations of filters, and
// ignores resources of other types. It fails on messages that break the rules of Envoy's API,
// which Envoy would refuse.
func New(resources []*resource.Resource) (*Proxy, error) {
	p := &Proxy{
		routes:     map[string]*routev3.RouteConfiguration{},
		clusters:   map[string]*clusterv3.Cluster{},
		endpoints:  map[string]*endpointv3.ClusterLoadAssignment{},
		extensions: map[string]*corev3.TypedExtensionConfig{},
	}
	for _, r := range resources {
		message, err := valid(r.Name, r.Body)
		if err != nil {
			return nil, err
		}
		switch m := message.(type) {
		case *corev3.TypedExtensionConfig:
			if _, err := valid(r.Name, m.GetTypedConfig()); err != nil {
				return nil, err
			}
			p.extensions[m.GetName()] = m
		case *listenerv3.Listener:
			p.listeners = append(p.listeners, m)
		case *routev3.RouteConfiguration:
			p.routes[m.Name] = m
		case *clusterv3.Cluster:
			p.clusters[m.Name] = m
		case *endpointv3.ClusterLoadAssignment:
			p.endpoints[m.ClusterName] = m
		}
	}
	slices.SortFunc(p.listeners, func(a, b *listenerv3.Listener) int { return cmp.Compare(a.Name, b.Name) })
	return p, nil
}

// valid unmarshals a message, and checks it by the rules of Envoy's API.
func valid(name string, packed *anypb.Any) (proto.Message, error) {
	m, err := packed.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("unmarshal %s: %w", name, err)
	}
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			return nil, fmt.Errorf("%s is not valid: %w", name, err)
		}
	}
	return m, nil
}

// Protocol is the protocol of the client.
type Protocol string

// The clients' protocols, all in plaintext except HTTPS and TLS.
const (
	HTTP  Protocol = "http/1.1"
	HTTP2 Protocol = "h2c"
	TCP   Protocol = "tcp"
	// HTTPS is HTTP over TLS that the proxy terminates.
	HTTPS Protocol = "https"
	// TLS is a connection that begins with a TLS handshake, whatever its content.
	TLS Protocol = "tls"
	// GRPC is a call of a program that gets its configuration itself. Host is its target,
	// whose listener it uses. Address and Port have no meaning.
	GRPC Protocol = "grpc"
)

// Request is a request or, if Protocol is TCP or TLS, a connection. An empty field has
// the default that its comment names.
type Request struct {
	// Address and Port are the client's destination; the defaults are 127.0.0.1 and 80. A
	// proxy that captures traffic takes over connections that are not for a loopback
	// address. Address may be a Unix domain socket, "unix://" and its path.
	Address string
	Port    int
	// Inbound requests come to the workload from elsewhere.
	Inbound  bool
	Protocol Protocol
	SNI      string // the SNI of a TLS or HTTPS client; default none, for HTTPS the name in Host
	// ALPN are the application protocols that a TLS client offers; default none.
	ALPN    []string
	Host    string // default is Address and Port
	Path    string // with the query; default "/"
	Method  string // default GET
	Headers map[string]string
	// Identity is the URI in the certificate of a TLS client, such as
	// spiffe://cluster.local/ns/shop/sa/web; default none. It counts where the proxy asks for
	// a certificate.
	Identity string
	// Unnamed: the certificate of the client has an identity that is not known.
	Unnamed bool
	// Source is the address from which the client connects, default 127.0.0.1. Origin is the
	// address that the PROXY protocol gives, default Source; of a request, by default what the proxy
	// takes from x-forwarded-for.
	Source, Origin string
	// Time is when the request comes, by which tokens expire; default year 1.
	Time time.Time
	// Claims are those of a token that the request has besides those in it, signed by whom its iss
	// names, and found by all providers; nil for none. Values are those of JSON.
	Claims map[string]any
	// Metadata is the dynamic metadata of the request: by filter, then by key. Values are
	// those of JSON.
	Metadata map[string]map[string]any
}

func (r Request) withDefaults() Request {
	r.Source = cmp.Or(r.Source, "127.0.0.1")
	r.Address = cmp.Or(r.Address, "127.0.0.1")
	r.Port = cmp.Or(r.Port, 80)
	r.Protocol = cmp.Or(r.Protocol, HTTP)
	r.Host = cmp.Or(r.Host, fmt.Sprintf("%s:%d", r.Address, r.Port))
	r.Path = cmp.Or(r.Path, "/")
	r.Method = cmp.Or(r.Method, "GET")
	if _, err := netip.ParseAddr(strings.Trim(hostOnly(r.Host), "[]")); r.Protocol == HTTPS && err != nil {
		r.SNI = cmp.Or(r.SNI, hostOnly(r.Host))
	}
	return r
}

// encrypted says whether the client begins with a TLS handshake.
func (r Request) encrypted() bool { return r.Protocol == TLS || r.Protocol == HTTPS }

func (r Request) scheme() string {
	if r.Protocol == HTTPS {
		return "https"
	}
	return "http"
}

// Result is the outcome of a request.
type Result struct {
	// Err wraps one of the errors above if the request reaches no destination.
	Err error
	// Listener, FilterChain, VirtualHost and Route are the names of what matched the
	// request.
	Listener, FilterChain, VirtualHost, Route string
	// RouteConfig is the name of the route configuration that the listener names; empty for none.
	RouteConfig string
	// PassedOver are filters of a patched listener that the simulation does not know. The rest of
	// the result is true only if they let the request be.
	PassedOver []PassedOver
	// Tunnel is the host:port to which endpoints forward the connection, empty for none.
	Tunnel string
	// Chain is the filter chain, nil for a gRPC client.
	Chain *listenerv3.FilterChain
	// Action is the chosen route, with the retries of its virtual host if it has none of its
	// own; nil for TCP and TLS.
	Action *routev3.Route
	// Access are the decisions of the RBAC filters that the request came to, in order. Err is
	// ErrUnnamed if one of them is Unknown and none refuses the request.
	Access []Decision
	// Identity is what the client proved, empty for nothing.
	Identity string
	// Asked: an external authorizer is asked about the request. The result is what becomes of it if
	// that lets it pass.
	Asked bool
	// Token says why the tokens of the request were refused, nil if they were not.
	Token *TokenRefusal
	// Fault is the injected fault, nil for none. If it aborts every request, nothing else
	// happens.
	Fault *Fault
	// Destinations share the request by their weights.
	Destinations []Destination
	// Mirrors get copies of forwarded requests, besides the Destinations.
	Mirrors []Mirror
	// Status is the status of a redirect or a direct response, 0 for none. A redirect has
	// a Location, a direct response a Body.
	Status         int
	Location, Body string
	// Host and Path are those that the destination gets. Headers are those of the request as the
	// filters leave them: what routes add or remove is not in them.
	Host, Path string
	Headers    map[string]string
	// judged is what the last filter that judges knew of the request.
	judged attributes
}

// Judged returns the request, or the connection, as the last filter that judges saw it.
func (r Result) Judged() Request { return r.judged.request }

// Matches reports whether a policy matches what the last filter that judges knew. It is false where
// the simulation does not know.
func (r Result) Matches(p *rbacv3.Policy) bool {
	ok, err := r.judged.policy(p)
	return ok && err == nil
}

// Fault is a fault that the fault filter injects. The percentages are shares of the
// requests.
type Fault struct {
	Delay        time.Duration // 0 for none
	DelayPercent float64
	// Abort is the answer, such as "503" or "gRPC 14"; empty for none.
	Abort        string
	AbortPercent float64
}

// AbortsAll says whether the fault aborts every request.
func (f *Fault) AbortsAll() bool { return f != nil && f.Abort != "" && f.AbortPercent >= 100 }

// String describes the fault, such as "delay 10% by 5s, abort 1% with 503".
func (f *Fault) String() string {
	var out []string
	if f.Delay > 0 {
		out = append(out, fmt.Sprintf("delay %v%% by %s", f.DelayPercent, f.Delay))
	}
	if f.Abort != "" {
		out = append(out, fmt.Sprintf("abort %v%% with %s", f.AbortPercent, f.Abort))
	}
	return strings.Join(out, ", ")
}

// Destination is a cluster and its share of the requests.
type Destination struct {
	Cluster string
	Weight  uint32
	// Host is the request's host at this destination, if it differs from that of the
	// others.
	Host string
	// Missing says that the proxy lacks the cluster.
	Missing bool
	// Endpoints are the endpoints of the cluster, "address:port" each, in order: host
	// names in a DNS cluster, the resolved host in a dynamic DNS cluster, none in an
	// original destination cluster.
	Endpoints []string
}

// String returns the outcome in one line: the clusters, with weights if there are
// several; "301 to <location>"; "<status> <body>"; or the error. A fault comes before it,
// mirrors after it.
func (r Result) String() string {
	switch f := r.Fault; {
	case f.AbortsAll():
		return f.String()
	case f != nil:
		r.Fault = nil
		return f.String() + ", " + r.String()
	case r.Err != nil:
		return r.Err.Error()
	case r.Location != "":
		return fmt.Sprintf("%d to %s", r.Status, r.Location)
	case r.Status != 0:
		return strings.TrimSpace(fmt.Sprintf("%d %s", r.Status, r.Body))
	}
	var out []string
	for _, d := range r.Destinations {
		text := d.Cluster
		if len(r.Destinations) > 1 {
			text += fmt.Sprintf("=%d", d.Weight)
		}
		if d.Missing {
			text += " (missing)"
		}
		out = append(out, text)
	}
	for _, m := range r.Mirrors {
		out = append(out, "mirrored "+m.String())
	}
	return strings.Join(out, " ")
}

// Config is the path of the object that the filter chain comes from, empty for none.
func (r Result) Config() string { return message.ConfigOf(r.Chain.GetMetadata()) }

// Endpoints returns the addresses of all destinations.
func (r Result) Endpoints() []string {
	var out []string
	for _, d := range r.Destinations {
		out = append(out, d.Endpoints...)
	}
	return out
}

// Run simulates a request.
func (p *Proxy) Run(r Request) Result {
	r = r.withDefaults()
	if r.Protocol == GRPC {
		return p.call(r)
	}
	listener := p.accepts(r)
	if listener == nil {
		return Result{Err: ErrNoListener}
	}
	result := Result{Listener: listener.GetName()}
	chain, err := filterChain(listener, r)
	if err != nil {
		result.Err = err
		return result
	}
	result.FilterChain, result.Chain = chain.GetName(), chain
	p.passOverListenerFilters(listener, &result)
	if ends := chain.GetTransportSocket() != nil; ends && !r.encrypted() {
		result.Err = fmt.Errorf("listener %s: %w", listener.GetName(), ErrPlaintext)
		return result
	}
	result.Err = p.chain(listener, chain, r, &result)
	return result
}

// chain runs a connection through the network filters of a chain.
func (p *Proxy) chain(l *listenerv3.Listener, chain *listenerv3.FilterChain, r Request, result *Result) error {
	filters, err := p.networkFilters(chain, result)
	if err != nil {
		return fmt.Errorf("listener %s: %w", l.GetName(), err)
	}
	_, name := handshake(l, r)
	on := attributes{request: r, connection: true, serverName: name}
	if on.identity, on.encrypted, err = identityOf(chain, r); err != nil {
		return err
	}
	on.unnamed = on.identity == unnamed
	if !on.unnamed {
		result.Identity = on.identity
	}
	if !on.pass(filters.guards, result) {
		return cmp.Or(result.Err, fmt.Errorf("listener %s: %w", l.GetName(), ErrRefused))
	}
	switch f := filters.last.(type) {
	case *hcmv3.HttpConnectionManager:
		if r.encrypted() && chain.GetTransportSocket() == nil {
			return fmt.Errorf("listener %s: %w", l.GetName(), ErrEncrypted)
		}
		on.connection = false
		p.http(f, on, result)
	case *tcpv3.TcpProxy:
		p.tcp(f, result)
		if filters.resolver != nil && name != "" {
			p.resolveTo(net.JoinHostPort(name, fmt.Sprint(filters.resolver.GetPortValue())), result.Destinations)
		}
	}
	return result.Err
}

// call simulates a gRPC call. The listener of its target has the routes.
func (p *Proxy) call(r Request) Result {
	listener := p.Listener(r.Host)
	if listener.GetApiListener() == nil {
		return Result{Err: ErrNoListener}
	}
	result, manager := Result{Listener: listener.GetName()}, &hcmv3.HttpConnectionManager{}
	if result.Err = listener.GetApiListener().GetApiListener().UnmarshalTo(manager); result.Err == nil {
		p.http(manager, attributes{request: r}, &result)
	}
	return result
}

func (p *Proxy) tcp(filter *tcpv3.TcpProxy, result *Result) {
	result.Tunnel = filter.GetTunnelingConfig().GetHostname()
	if weighted := filter.GetWeightedClusters(); weighted != nil {
		for _, c := range weighted.GetClusters() {
			result.Destinations = append(result.Destinations, p.destination(c.GetName(), c.GetWeight()))
		}
		return
	}
	result.Destinations = []Destination{p.destination(filter.GetCluster(), 1)}
}

func (p *Proxy) destination(name string, weight uint32) Destination {
	return Destination{
		Cluster: name, Weight: weight, Missing: p.clusters[name] == nil, Endpoints: p.EndpointsOf(name),
	}
}

// EndpointsOf returns the endpoints of a cluster that get requests, "address:port" each,
// in order. Unhealthy endpoints get none, unless so many are unhealthy that Envoy panics.
func (p *Proxy) EndpointsOf(name string) []string {
	cluster := p.clusters[name]
	assignment := cluster.GetLoadAssignment()
	if cluster.GetEdsClusterConfig() != nil {
		assignment = p.endpoints[cmp.Or(cluster.GetEdsClusterConfig().GetServiceName(), name)]
	}
	threshold := 50.0
	if t := cluster.GetCommonLbConfig().GetHealthyPanicThreshold(); t != nil {
		threshold = t.GetValue()
	}
	all, healthy := addresses(assignment)
	if 100*float64(len(healthy)) < threshold*float64(len(all)) {
		return all
	}
	return healthy
}

// addresses returns the sorted addresses of all endpoints, and of the healthy ones.
func addresses(assignment *endpointv3.ClusterLoadAssignment) (all, healthy []string) {
	for _, locality := range assignment.GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			address := e.GetEndpoint().GetAddress()
			text := address.GetPipe().GetPath()
			if socket := address.GetSocketAddress(); socket != nil {
				text = fmt.Sprintf("%s:%d", socket.GetAddress(), socket.GetPortValue())
			}
			all = append(all, text)
			switch e.GetHealthStatus() {
			case corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_HEALTHY:
				healthy = append(healthy, text)
			}
		}
	}
	slices.Sort(all)
	slices.Sort(healthy)
	return all, healthy
}

// Clusters returns the names of all clusters, in order.
func (p *Proxy) Clusters() []string { return sortedNames(p.clusters) }

// Routes returns the names of all route configurations, in order.
func (p *Proxy) Routes() []string { return sortedNames(p.routes) }

// Listeners returns the names of all listeners, in order.
func (p *Proxy) Listeners() []string {
	out := make([]string, 0, len(p.listeners))
	for _, l := range p.listeners {
		out = append(out, l.GetName())
	}
	return out
}

// Cluster returns the cluster with a name, nil for none.
func (p *Proxy) Cluster(name string) *clusterv3.Cluster { return p.clusters[name] }

// Route returns the route configuration with a name, nil for none.
func (p *Proxy) Route(name string) *routev3.RouteConfiguration { return p.routes[name] }

// Assignment returns the load assignment with a name, nil for none.
func (p *Proxy) Assignment(name string) *endpointv3.ClusterLoadAssignment {
	return p.endpoints[name]
}

// Listener returns the listener with a name, nil for none.
func (p *Proxy) Listener(name string) *listenerv3.Listener {
	for _, l := range p.listeners {
		if l.GetName() == name {
			return l
		}
	}
	return nil
}

func sortedNames[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
