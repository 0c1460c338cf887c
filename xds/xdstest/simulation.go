package xdstest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// What a simulated request may come to instead of a destination.
var (
	ErrNoListener    = errors.New("no listener")
	ErrNoFilterChain = errors.New("no filter chain")
	ErrNoRouteConfig = errors.New("no route configuration") // Envoy would wait for it
	ErrNoVirtualHost = errors.New("no virtual host")
	ErrNoRoute       = errors.New("no route")
)

// Simulation is what a proxy was sent, as something that requests can be run
// through: listener, filter chain, route, cluster, endpoints. It follows Envoy
// in what generators make use of, and fails on the rest, so that a test never
// passes because a matcher was overlooked.
type Simulation struct {
	listeners []*listenerv3.Listener
	routes    map[string]*routev3.RouteConfiguration
	clusters  map[string]*clusterv3.Cluster
	endpoints map[string]*endpointv3.ClusterLoadAssignment
}

// NewSimulation reads resources of any types; those of other types than the four
// that traffic needs are passed over. It fails on messages that break the rules
// of their fields, which Envoy would refuse.
func NewSimulation(resources []*resource.Resource) (*Simulation, error) {
	s := &Simulation{
		routes:    map[string]*routev3.RouteConfiguration{},
		clusters:  map[string]*clusterv3.Cluster{},
		endpoints: map[string]*endpointv3.ClusterLoadAssignment{},
	}
	for _, r := range resources {
		message, err := r.Body.UnmarshalNew()
		if err != nil {
			return nil, fmt.Errorf("unmarshal %s: %w", r.Name, err)
		}
		if v, ok := message.(interface{ ValidateAll() error }); ok {
			if err := v.ValidateAll(); err != nil {
				return nil, fmt.Errorf("%s is not valid: %w", r.Name, err)
			}
		}
		switch m := message.(type) {
		case *listenerv3.Listener:
			s.listeners = append(s.listeners, m)
		case *routev3.RouteConfiguration:
			s.routes[m.Name] = m
		case *clusterv3.Cluster:
			s.clusters[m.Name] = m
		case *endpointv3.ClusterLoadAssignment:
			s.endpoints[m.ClusterName] = m
		}
	}
	slices.SortFunc(s.listeners, func(a, b *listenerv3.Listener) int { return cmp.Compare(a.Name, b.Name) })
	return s, nil
}

// Protocol is what a simulated client speaks.
type Protocol string

// The protocols of clients. All are plaintext.
const (
	HTTP  Protocol = "http/1.1"
	HTTP2 Protocol = "h2c"
	TCP   Protocol = "tcp"
)

// Request is a request or, where Protocol is TCP, a connection. What is empty
// has the default that is named.
type Request struct {
	// Address and Port are those that the client means: 127.0.0.1 and 80. Beside a
	// proxy that captures traffic, all but a loopback address is redirected to it.
	Address string
	Port    int
	// Inbound requests come from elsewhere to the workload.
	Inbound  bool
	Protocol Protocol
	Host     string // Address and port
	Path     string // "/"; with the query
	Method   string // GET
	Headers  map[string]string
}

func (r Request) withDefaults() Request {
	r.Address = cmp.Or(r.Address, "127.0.0.1")
	r.Port = cmp.Or(r.Port, 80)
	r.Protocol = cmp.Or(r.Protocol, HTTP)
	r.Host = cmp.Or(r.Host, fmt.Sprintf("%s:%d", r.Address, r.Port))
	r.Path = cmp.Or(r.Path, "/")
	r.Method = cmp.Or(r.Method, "GET")
	return r
}

// Result is what becomes of a request.
type Result struct {
	// Err is one of the errors above, wrapped, where the request comes to
	// nothing.
	Err error
	// Listener, FilterChain, VirtualHost and Route name what was passed.
	Listener, FilterChain, VirtualHost, Route string
	// Action is the route that was chosen, nil for TCP.
	Action *routev3.Route
	// Destinations are where the request goes, each with its share.
	Destinations []Destination
	// Status is that of a redirect or a direct response, 0 for none; Location
	// is where the former leads and Body what the latter says.
	Status         int
	Location, Body string
	// Host and Path are as the destination sees them.
	Host, Path string
}

// Destination is a cluster and its share of the requests.
type Destination struct {
	Cluster string
	Weight  uint32
	// Missing says that the proxy does not have the cluster.
	Missing bool
	// Endpoints are those of the cluster, "address:port" each, in order; empty
	// where the cluster has none, or finds them by itself.
	Endpoints []string
}

// String is the outcome in one line: the clusters, each with its weight where
// there are several; "301 to <location>"; "<status> <body>"; or the error.
func (r Result) String() string {
	switch {
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
	return strings.Join(out, " ")
}

// Endpoints are the addresses that a request may reach, of all destinations.
func (r Result) Endpoints() []string {
	var out []string
	for _, d := range r.Destinations {
		out = append(out, d.Endpoints...)
	}
	return out
}

// Run sends a request.
func (s *Simulation) Run(r Request) Result {
	r = r.withDefaults()
	listener := s.accepts(r)
	if listener == nil {
		return Result{Err: ErrNoListener}
	}
	result := Result{Listener: listener.GetName()}
	chain, err := filterChain(listener, r)
	if err != nil {
		result.Err = err
		return result
	}
	result.FilterChain = chain.GetName()
	if len(chain.GetFilters()) != 1 {
		result.Err = fmt.Errorf("listener %s: simulation of %d network filters", listener.GetName(), len(chain.GetFilters()))
		return result
	}
	filter, err := chain.Filters[0].GetTypedConfig().UnmarshalNew()
	if err != nil {
		result.Err = err
		return result
	}
	switch f := filter.(type) {
	case *hcmv3.HttpConnectionManager:
		s.http(f, r, &result)
	case *tcpv3.TcpProxy:
		s.tcp(f, &result)
	default:
		result.Err = fmt.Errorf("listener %s: simulation of %s", listener.GetName(), proto.MessageName(filter))
	}
	return result
}

func (s *Simulation) tcp(p *tcpv3.TcpProxy, result *Result) {
	if weighted := p.GetWeightedClusters(); weighted != nil {
		for _, c := range weighted.GetClusters() {
			result.Destinations = append(result.Destinations, s.destination(c.GetName(), c.GetWeight()))
		}
		return
	}
	result.Destinations = []Destination{s.destination(p.GetCluster(), 1)}
}

// destination looks a cluster and its endpoints up.
func (s *Simulation) destination(name string, weight uint32) Destination {
	return Destination{
		Cluster: name, Weight: weight, Missing: s.clusters[name] == nil, Endpoints: s.EndpointsOf(name),
	}
}

// EndpointsOf are the endpoints of a cluster that requests go to, "address:port"
// each, in order: its own, or those that were sent for it. Those that are not
// healthy are left out unless so many are that Envoy panics.
func (s *Simulation) EndpointsOf(name string) []string {
	cluster := s.clusters[name]
	assignment := cluster.GetLoadAssignment()
	if cluster.GetEdsClusterConfig() != nil {
		assignment = s.endpoints[cmp.Or(cluster.GetEdsClusterConfig().GetServiceName(), name)]
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

// addresses are those of all endpoints, and those of the healthy ones, in order.
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

// Clusters are the names of all clusters, in order.
func (s *Simulation) Clusters() []string { return sortedNames(s.clusters) }

// Routes are the names of all route configurations, in order.
func (s *Simulation) Routes() []string { return sortedNames(s.routes) }

// Assignments are the names of the clusters that endpoints were sent for, in
// order.
func (s *Simulation) Assignments() []string { return sortedNames(s.endpoints) }

// Listeners are the names of all listeners, in order.
func (s *Simulation) Listeners() []string {
	out := make([]string, 0, len(s.listeners))
	for _, l := range s.listeners {
		out = append(out, l.GetName())
	}
	return out
}

// Cluster, Route, Assignment and Listener return one message, nil for an
// unknown name.
func (s *Simulation) Cluster(name string) *clusterv3.Cluster { return s.clusters[name] }

// Route is like Cluster.
func (s *Simulation) Route(name string) *routev3.RouteConfiguration { return s.routes[name] }

// Assignment is like Cluster.
func (s *Simulation) Assignment(name string) *endpointv3.ClusterLoadAssignment {
	return s.endpoints[name]
}

// Listener is like Cluster.
func (s *Simulation) Listener(name string) *listenerv3.Listener {
	for _, l := range s.listeners {
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
