package refmesh

import (
	"cmp"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	// Namespaces is the number of namespaces.
	Namespaces = 20
	// Endpoints is the number of endpoints of a service, and Routes that of routes of a
	// VirtualService.
	Endpoints, Routes = 5, 10
	// HTTPPort and TCPPort are the ports of every service.
	HTTPPort, TCPPort = 8080, 9000
	// Target is the service that tests change: it has both a VirtualService and a
	// DestinationRule, and all Sidecars import it.
	Target = 8
	// TargetInCluster is such a service of Mesh.HalfInCluster in the cluster.
	TargetInCluster = 12
	// RootNamespace is the namespace of a Sidecar for the whole mesh.
	RootNamespace = "istio-system"
	// Credential is the secret of Mesh.Credentials, in the first namespace.
	Credential = "origin"
	// Door is the secret of Mesh.Gateways, in the first namespace, and SecurePort the port of
	// their servers.
	Door, SecurePort = "door", 8443
	// Authorities is the file of Mesh.Originate.
	Authorities = "/etc/mesh/authorities.pem"
)

// Mesh says what a reference mesh has. Without Sidecars, every proxy sees every service.
type Mesh struct {
	// Services is the number of services.
	Services int
	// MeshWide adds one Sidecar in the root namespace, which imports this many services.
	MeshWide int
	// PerNamespace adds a Sidecar in each namespace, which imports this many services. The
	// first half of these is the same everywhere.
	PerNamespace int
	// Localities and LabelSets are how many of each the endpoints have; 0 means one.
	Localities, LabelSets int
	// Delegated moves the last route of each VirtualService to a delegate.
	Delegated bool
	// Credentials makes services with a DestinationRule accept only TLS. Gateways originate it
	// with the secret Credential.
	Credentials bool
	// Originate makes the same services accept only TLS. Proxies verify them by the authorities
	// in the file Authorities on their machine.
	Originate bool
	// Peers gives proxies a certificate of the mesh, and endpoints the label of mutual TLS and an
	// account.
	Peers bool
	// Policies adds a policy about requests in each namespace, and a RequestAuthentication for the
	// whole mesh.
	Policies bool
	// Patches is the number of EnvoyFilters in the root namespace.
	Patches int
	// Gateways is the number of Gateways in the first namespace. Each accepts HTTPS for a host
	// of its own, with routes to a service. The routers with the label app=edge run all of them
	// on one port, with the certificate Door.
	Gateways int
	// Patterns is the number of additional services with a wildcard host. Proxies look up the
	// names.
	Patterns int
	// HalfInCluster says that a cluster of Kubernetes has half of the services (InCluster), and
	// their VirtualServices and DestinationRules. All hosts are then as those of such services.
	HalfInCluster bool
}

// Objects returns the whole mesh, or what of it no cluster has: ServiceEntries first, then what
// refers to them.
func (m Mesh) Objects() []*config.Config {
	out := m.services(false)
	for i := range m.Patterns {
		out = append(out, m.Pattern(i, ""))
	}
	if m.Policies {
		out = append(out, m.Authentication())
		for i := range Namespaces {
			out = append(out, m.Policy(i, "/admin"))
		}
	}
	for i := range m.Patches {
		out = append(out, m.Patch(i))
	}
	if m.Credentials {
		out = append(out, m.ChangeSecret(0).Objects...)
	}
	for i := range m.Gateways {
		out = append(out, m.Gateway(i), m.GatewayRoutes(i, ""))
	}
	if m.Gateways > 0 {
		out = append(out, m.ChangeDoor(0).Objects...)
	}
	return append(out, m.sidecars()...)
}

// ObjectsOfCluster returns what the cluster of a mesh has. Each ServiceEntry stands for a Service and
// its pods.
func (m Mesh) ObjectsOfCluster() []*config.Config { return m.services(true) }

// services returns the objects of the services in the cluster, or of all others.
func (m Mesh) services(inCluster bool) []*config.Config {
	var entries, rest []*config.Config
	for i := range m.Services {
		if m.InCluster(i) != inCluster {
			continue
		}
		entries = append(entries, m.ServiceEntry(i))
		if HasRoutes(i) {
			rest = append(rest, m.VirtualService(i, ""))
			if m.Delegated {
				rest = append(rest, m.Delegate(i, ""))
			}
		}
		if HasRule(i) {
			rest = append(rest, m.DestinationRule(i, DefaultConnections))
		}
	}
	return append(entries, rest...)
}

// InCluster reports whether the cluster of a mesh has a service: four of each eight. Among these
// are as many with a VirtualService and with a DestinationRule as among the others.
func (m Mesh) InCluster(i int) bool { return m.HalfInCluster && i/4%2 == 1 }

// HasRoutes reports whether a service has a VirtualService: every other does.
func HasRoutes(i int) bool { return i%2 == 0 }

// HasRule reports whether a service has a DestinationRule: half of those with a VirtualService
// do, and half of those without.
func HasRule(i int) bool { return i%4 < 2 }

// Namespace returns the namespace of a service.
func Namespace(i int) string { return fmt.Sprintf("ns-%02d", i%Namespaces) }

// Name returns the name of a service and of its objects.
func Name(i int) string { return fmt.Sprintf("s%05d", i) }

// Host is the host name of a service, unless Mesh.Host says otherwise.
func Host(i int) string { return Name(i) + "." + Namespace(i) + ".mesh.test" }

// Host is the host name of a service of the mesh.
func (m Mesh) Host(i int) string {
	if m.HalfInCluster {
		return Name(i) + "." + Namespace(i) + ".svc.cluster.local"
	}
	return Host(i)
}

// Address is the virtual address of a service.
func Address(i int) string { return fmt.Sprintf("10.%d.%d.%d", 64+i/62500, i/250%250, i%250+1) }

// EndpointAddress is the address of the endpoint e of a service.
func EndpointAddress(i, e int) string { return address(128, i*Endpoints+e) }

// address returns the n-th address of a range that begins at 10.<first>.0.1.
func address(first, n int) string {
	return fmt.Sprintf("10.%d.%d.%d", first+n/62500, n/250%250, n%250+1)
}

func meta(kind config.GroupVersionKind, namespace, name string) config.Meta {
	return config.Meta{GroupVersionKind: kind, Namespace: namespace, Name: name, Labels: map[string]string{"app": name}}
}

// ServiceEntry is the object of a service.
func (m Mesh) ServiceEntry(i int) *config.Config {
	spec := &networking.ServiceEntry{
		Hosts: []string{m.Host(i)}, Addresses: []string{Address(i)},
		Location: networking.ServiceEntry_MESH_INTERNAL, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{
			{Name: "http", Number: HTTPPort, Protocol: "HTTP"},
			{Name: "tcp", Number: TCPPort, Protocol: "TCP"},
		},
	}
	account := ""
	if m.Peers {
		account = Name(i)
	}
	for e := range Endpoints {
		spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{
			Address: EndpointAddress(i, e), Labels: m.labels(i, e), Locality: m.Locality(i, e), Weight: 1, ServiceAccount: account,
		})
	}
	return &config.Config{Meta: meta(schema.ServiceEntry, Namespace(i), Name(i)), Spec: spec}
}

// labels returns the labels of an endpoint: its subset, and one of the sets of labels.
func (m Mesh) labels(i, e int) map[string]string {
	version := "v1"
	if e >= 3 {
		version = "v2"
	}
	out := map[string]string{"app": Name(i), "version": version}
	if m.LabelSets > 1 {
		out["set"] = fmt.Sprintf("l%d", (i+e)%m.LabelSets)
	}
	if m.Peers {
		out[labels.TLSMode] = labels.TLSModeIstio
	}
	return out
}

// Locality returns the locality of an endpoint, in the form region/zone/subzone.
func (m Mesh) Locality(i, e int) string {
	return fmt.Sprintf("region-1/zone-%d/a", (i/Namespaces+e)%max(m.Localities, 1))
}

// VirtualService returns the VirtualService of a service: ten routes by header and path, each
// to two subsets or services by weight. A mark replaces the value of the last header match. If
// the mesh is Delegated, a Delegate has the last route.
func (m Mesh) VirtualService(i int, mark string) *config.Config {
	spec := &networking.VirtualService{Hosts: []string{m.Host(i)}}
	for r := range Routes {
		value := fmt.Sprintf("tenant-%02d", r)
		if r == Routes-1 && mark != "" {
			value = mark
		}
		route := &networking.HTTPRoute{
			Name:  fmt.Sprintf("r%02d", r),
			Route: m.weighted(i, int32(10*r)),
		}
		match := &networking.HTTPMatchRequest{
			Uri: &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: fmt.Sprintf("/api/v1/%s/%02d", Name(i), r)}},
		}
		if r%2 == 1 {
			match.Headers = map[string]*networking.StringMatch{
				"x-tenant": {MatchType: &networking.StringMatch_Exact{Exact: value}},
			}
		}
		route.Match = []*networking.HTTPMatchRequest{match}
		if m.Delegated && r == Routes-1 {
			route.Route, match.Headers = nil, nil
			route.Delegate = &networking.Delegate{Name: Name(i) + "-team", Namespace: Namespace(i)}
		}
		spec.Http = append(spec.Http, route)
	}
	return &config.Config{Meta: meta(schema.VirtualService, Namespace(i), Name(i)), Spec: spec}
}

// Delegate returns the delegate with the last route of a service's VirtualService: a route by a
// header, to two subsets or services. A mark replaces the header's value.
func (m Mesh) Delegate(i int, mark string) *config.Config {
	match := &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: cmp.Or(mark, "tenant-of-team")}}
	return &config.Config{Meta: meta(schema.VirtualService, Namespace(i), Name(i)+"-team"), Spec: &networking.VirtualService{
		Http: []*networking.HTTPRoute{{
			Match: []*networking.HTTPMatchRequest{{Headers: map[string]*networking.StringMatch{"x-tenant": match}}},
			Route: m.weighted(i, 50),
		}},
	}}
}

// Pattern returns a service with a wildcard host: "*.p00001.mark.outside.test".
func (m Mesh) Pattern(i int, mark string) *config.Config {
	name := fmt.Sprintf("p%05d", i)
	return &config.Config{Meta: meta(schema.ServiceEntry, Namespace(i), name), Spec: &networking.ServiceEntry{
		Hosts:    []string{fmt.Sprintf("*.%s.%s.outside.test", name, cmp.Or(mark, "as-made"))},
		Location: networking.ServiceEntry_MESH_EXTERNAL, Resolution: networking.ServiceEntry_DYNAMIC_DNS,
		Ports: []*networking.ServicePort{{Name: "http", Number: HTTPPort, Protocol: "HTTP"}},
	}}
}

// GatewayHost is the host of a Gateway.
func GatewayHost(i int) string { return fmt.Sprintf("g%05d.edge.test", i) }

// Gateway returns a Gateway that accepts HTTPS for its host, and for more.
func (m Mesh) Gateway(i int, more ...string) *config.Config {
	name := fmt.Sprintf("g%05d", i)
	return &config.Config{Meta: meta(schema.Gateway, Namespace(0), name), Spec: &networking.Gateway{
		Selector: map[string]string{"app": "edge"},
		Servers: []*networking.Server{{
			Port:  &networking.Port{Number: SecurePort, Name: "https", Protocol: "HTTPS"},
			Hosts: append([]string{GatewayHost(i)}, more...),
			Tls:   &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_SIMPLE, CredentialName: Door},
		}},
	}}
}

// GatewayRoutes returns a VirtualService that routes the host of a Gateway to a service. A mark
// names the route.
func (m Mesh) GatewayRoutes(i int, mark string) *config.Config {
	name := fmt.Sprintf("g%05d", i)
	return &config.Config{Meta: meta(schema.VirtualService, Namespace(0), name), Spec: &networking.VirtualService{
		Hosts: []string{GatewayHost(i)}, Gateways: []string{name},
		Http: []*networking.HTTPRoute{{Name: mark, Route: []*networking.HTTPRouteDestination{
			{Destination: &networking.Destination{Host: m.Host(i % m.Services), Port: &networking.PortSelector{Number: HTTPPort}}},
		}}},
	}}
}

// weighted returns two destinations: the subsets of a service, if it has some, else the service
// and its neighbour.
func (m Mesh) weighted(i int, weight int32) []*networking.HTTPRouteDestination {
	port := &networking.PortSelector{Number: HTTPPort}
	one := &networking.Destination{Host: m.Host(i), Port: port}
	other := &networking.Destination{Host: Host((i + 1) % m.Services), Port: port}
	if HasRule(i) {
		one = &networking.Destination{Host: m.Host(i), Port: port, Subset: "v1"}
		other = &networking.Destination{Host: m.Host(i), Port: port, Subset: "v2"}
	}
	return []*networking.HTTPRouteDestination{
		{Destination: one, Weight: 100 - weight}, {Destination: other, Weight: weight},
	}
}

// DefaultConnections is how many connections a DestinationRule allows at first.
const DefaultConnections = 1024

// DestinationRule returns the DestinationRule of a service: two subsets, outlier detection,
// and pools of so many connections.
func (m Mesh) DestinationRule(i, connections int) *config.Config {
	spec := &networking.DestinationRule{
		Host: m.Host(i),
		TrafficPolicy: &networking.TrafficPolicy{
			ConnectionPool: &networking.ConnectionPoolSettings{
				Tcp:  &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: int32(connections), ConnectTimeout: durationpb.New(2 * time.Second)},
				Http: &networking.ConnectionPoolSettings_HTTPSettings{Http1MaxPendingRequests: 256, MaxRequestsPerConnection: 64},
			},
			OutlierDetection: &networking.OutlierDetection{
				Consecutive_5XxErrors: wrapperspb.UInt32(5), Interval: durationpb.New(10 * time.Second),
				BaseEjectionTime: durationpb.New(30 * time.Second), MaxEjectionPercent: 50,
			},
		},
		Subsets: []*networking.Subset{
			{Name: "v1", Labels: map[string]string{"version": "v1"}},
			{Name: "v2", Labels: map[string]string{"version": "v2"}},
		},
	}
	if m.Credentials {
		spec.TrafficPolicy.Tls = &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CredentialName: Credential}
	}
	if m.Originate {
		spec.TrafficPolicy.Tls = &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, CaCertificates: Authorities}
	}
	return &config.Config{Meta: meta(schema.DestinationRule, Namespace(i), Name(i)), Spec: spec}
}

func (m Mesh) sidecars() []*config.Config {
	var out []*config.Config
	if m.MeshWide > 0 {
		out = append(out, sidecar(RootNamespace, m.imports(0, m.MeshWide)))
	}
	if m.PerNamespace > 0 {
		for n := range Namespaces {
			out = append(out, sidecar(Namespace(n), m.imports(n, m.PerNamespace)))
		}
	}
	return out
}

// imports returns count services that namespace n imports. Half of them are the first ones of
// the mesh, Target among them. The other half differs for each namespace.
func (m Mesh) imports(n, count int) []string {
	var out []string
	same := max(count/2, Target+1)
	for i := range same {
		out = append(out, "*/"+m.Host(i))
	}
	for i := range count - same {
		out = append(out, "*/"+m.Host(same+(n*(count-same)+i)%max(m.Services-same, 1)))
	}
	return out
}

func sidecar(namespace string, hosts []string) *config.Config {
	return &config.Config{
		Meta: meta(schema.Sidecar, namespace, "default"),
		Spec: &networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: hosts}}},
	}
}
