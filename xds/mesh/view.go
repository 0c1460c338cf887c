package mesh

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/mesh/sidecar"
)

// Query is one query of a generator to a View: a row and, if the row has several
// queries, which one. Its answer stays the same while the row and the class do.
type Query struct {
	Row RowKey
	// Args distinguish queries of one row: an egress listener, a namespace.
	Args string
}

// Dependency is a query with its answer.
type Dependency struct {
	Query  Query
	Answer any
}

// View is a context as one class of proxies sees it, with visibility applied. A recording
// View keeps all queries, also those for absent rows. A View is for one goroutine.
type View struct {
	push  *PushContext
	class Class
	scope sidecar.Scope
	// workload is the one whose own resources are being built, nil in the view of a class.
	workload *workload
	reads    *reads // nil if the view does not record
	// settled has the last ProxyConfig of the view and of its copies.
	settled *atomic.Pointer[settled]
}

// NewView returns the view of a class, which does not record.
func NewView(p *PushContext, c Class) *View {
	return &View{push: p, class: c, scope: sidecar.Scope{Namespace: c.Namespace, Sidecar: p.sidecarOf(c)}, settled: &atomic.Pointer[settled]{}}
}

// SameScope says whether two views have the same class, Sidecar, Gateways and mesh
// configuration. Changed rows do not show the effects of a change of these.
func (v *View) SameScope(o *View) bool {
	return v.SameButGateways(o) && slices.Equal(v.gateways(), o.gateways())
}

// SameButGateways is like SameScope, but ignores the Gateways.
func (v *View) SameButGateways(o *View) bool {
	return v.class == o.class && v.scope == o.scope && v.push.mesh == o.push.mesh
}

// gateways returns the class's Gateways in this context, nil for one that is gone.
func (v *View) gateways() []*routing.Gateway {
	var out []*routing.Gateway
	for path := range v.class.Attached.Names(class.Gateway) {
		out = append(out, gatewayRows.rowsOf(v.push).Value(path))
	}
	return out
}

// Of returns the view of one proxy of the class, which also knows its workload. It does
// not record.
func (v *View) Of(proxy *discovery.Proxy) *View {
	out := *v
	out.workload, out.reads = &workload{Proxy: proxy, push: v.push}, nil
	return &out
}

// Recording returns a view of the same context and class that records from now on.
func (v *View) Recording() *View {
	out := *v
	out.reads = &reads{}
	return &out
}

// Dependencies returns the recorded queries with their answers, each once.
func (v *View) Dependencies() []Dependency { return slices.Clip(v.reads.list) }

// reads holds the recorded queries. Most resources make so few that a linear search is
// faster than a map.
type reads struct {
	list  []Dependency
	index map[Query]int // nil while the list is short

	patches []PatchNote
}

const shortReads = 16

// find returns the index of a query, -1 if it was not recorded.
func (r *reads) find(q Query) int {
	if r.index != nil {
		if i, ok := r.index[q]; ok {
			return i
		}
		return -1
	}
	return slices.IndexFunc(r.list, func(d Dependency) bool { return d.Query == q })
}

func (r *reads) add(q Query, answer any) {
	r.list = append(r.list, Dependency{q, answer})
	switch {
	case r.index != nil:
		r.index[q] = len(r.list) - 1
	case len(r.list) > shortReads:
		r.index = make(map[Query]int, 2*shortReads)
		for i, d := range r.list {
			r.index[d.Query] = i
		}
	}
}

// Answer returns the current result of a query, without recording it. It is comparable by
// == with the answer of a Dependency.
func (v *View) Answer(q Query) any { return tables[q.Row.Table].answer(v, q.Row.Key, q.Args) }

// ask answers a query and records it.
func (v *View) ask(table Table, key, args string) any {
	q := Query{RowKey{table, key}, args}
	if v.reads == nil {
		return v.Answer(q)
	}
	if i := v.reads.find(q); i >= 0 {
		return v.reads.list[i].Answer
	}
	answer := v.Answer(q)
	v.reads.add(q, answer)
	return answer
}

// Class returns the class whose view it is.
func (v *View) Class() Class { return v.class }

// Shape returns the properties of the proxy that need no recording.
func (v *View) Shape() Shape { return v.class.Shape }

// The queries about the class itself.
const (
	selfListener  = "listener"
	selfRoutes    = "routes"
	selfPassed    = "passed"
	selfSidecar   = "sidecar"
	selfNamespace = "namespace"
	selfLabels    = "labels"
	selfTrait     = "trait"
	selfIPs       = "ips"
	selfRegion    = "region"
	selfServes    = "serves"
	selfDelta     = "routeDelta"
	selfHTTPProxy = "httpProxy"
	selfCertified = "certified"
	selfSDS       = "secretCluster"
	selfFiles     = "certificate"
	selfSecrets   = "secrets"
	selfRoots     = "systemRoots"

	selfShortNames = "shortNames"
	selfOwnLabels  = "ownLabels"
	selfListeners  = "listeners"
	selfPolicies   = "policies"
	selfPeers      = "peers"
	selfProbes     = "probes"

	selfTelemetries = "telemetries"
	selfPlugins     = "plugins"
	selfServiceName = "serviceName"
	selfSettings    = "settings"
	selfGroup       = "group"
)

// selfTable answers queries about the properties of the class or the workload.
type selfTable struct{ tableOf[bool] }

func (selfTable) answer(v *View, key, args string) any {
	switch key {
	case selfListener:
		return v.Gateway().Listener(args)
	case selfRoutes:
		return v.Gateway().RoutesNamed(args)
	case selfPassed:
		return v.class.PassesTLSTo(host.Name(args))
	case selfSidecar:
		return v.scope.Sidecar
	case selfNamespace:
		return v.class.Namespace == args
	case selfTrait:
		return v.class.Trait(args)
	case selfIPs:
		return v.ips()
	case selfRegion:
		return v.region()
	case selfServes:
		return v.identity()
	case selfDelta:
		return v.class.RouteDelta
	case selfHTTPProxy:
		port := v.HTTPProxyPort()
		return port > 0 && (args == "" || args == strconv.Itoa(port))
	case selfCertified:
		return v.class.Certified
	case selfSDS:
		return v.class.SecretCluster
	case selfFiles:
		if v.workload == nil {
			return discovery.CertificateFiles{}
		}
		return v.workload.Certificate
	case selfRoots:
		if v.workload == nil {
			return ""
		}
		return v.workload.SystemRoots
	case selfSecrets:
		return v.workload != nil && v.workload.MayHaveSecrets()
	case selfOwnLabels:
		if v.workload == nil {
			return ""
		}
		return v.workload.place().Labels.String()
	case selfListeners:
		if v.workload == nil {
			return ""
		}
		return strings.Join(v.workload.Listeners, class.Separator)
	case selfPolicies:
		return v.ownPolicies(policiesOf(args)).keys
	case selfPeers:
		return v.selectedPeers()
	case selfProbes:
		return v.probeKeys()
	case selfTelemetries:
		return v.class.Attached.Of(class.Telemetry)
	case selfPlugins:
		return v.class.Attached.Of(class.Plugin)
	case selfServiceName:
		return v.class.ServiceName
	case selfSettings:
		return v.class.Settings
	case selfGroup:
		return v.group()
	case selfShortNames:
		return host.FormatShortNames(v.class.Domain, args)
	default:
		return v.class.Attached.Has(class.Source, args)
	}
}

// Gateway returns the merged gateway of a router, nil for other proxies. It does not
// record.
func (v *View) Gateway() *routing.MergedGateway {
	if v.class.Shape.Type != discovery.Router {
		return nil
	}
	return v.push.merged.gateway(v)
}

// GatewayListener returns a listener of the merged gateway by its name, nil for none. The
// answer depends only on that listener's servers.
func (v *View) GatewayListener(name string) *routing.Listener {
	return v.ask(Self, selfListener, name).(*routing.Listener)
}

// GatewayRoutes returns the servers that share a route configuration, by its name, nil
// for none. The answer depends only on these servers.
func (v *View) GatewayRoutes(name string) *routing.Routes {
	return v.ask(Self, selfRoutes, name).(*routing.Routes)
}

// RouteDelta says whether the proxy takes virtual hosts as separate resources. If not,
// they are part of their route configurations.
func (v *View) RouteDelta() bool { return v.ask(Self, selfDelta, "").(bool) }

// HasCertificate says whether the proxy has its own certificate for mTLS in the mesh, which
// backs the secrets "default" and "ROOTCA".
func (v *View) HasCertificate() bool { return v.ask(Self, selfCertified, "").(bool) }

// SecretCluster is the cluster of the proxy's bootstrap that serves these secrets; empty if this
// server does.
func (v *View) SecretCluster() string { return v.ask(Self, selfSDS, "").(string) }

// HTTPProxyPort is the port on which a sidecar is an HTTP proxy, from its own metadata,
// else from the mesh configuration; 0 for none. It does not record.
func (v *View) HTTPProxyPort() int {
	if own := v.class.HTTPProxyPort; own != "" {
		port, _ := strconv.Atoi(own)
		return port
	}
	return int(v.push.mesh.GetProxyHttpPort())
}

// IsHTTPProxy says whether a sidecar is an HTTP proxy on some port.
func (v *View) IsHTTPProxy() bool { return v.ask(Self, selfHTTPProxy, "").(bool) }

// IsHTTPProxyAt says whether a sidecar is an HTTP proxy on the given port.
func (v *View) IsHTTPProxyAt(port int) bool {
	return v.ask(Self, selfHTTPProxy, strconv.Itoa(port)).(bool)
}

// Egress returns the proxy's egress listeners; always at least one.
func (v *View) Egress() []EgressListener {
	return sidecar.Scope{Sidecar: v.ask(Self, selfSidecar, "").(*sidecar.Sidecar)}.Egress()
}

// RestrictsEgress says whether its Sidecar says what it imports. If not, it sees all.
func (v *View) RestrictsEgress() bool {
	return sidecar.Scope{Sidecar: v.ask(Self, selfSidecar, "").(*sidecar.Sidecar)}.Restricted()
}

// Ingress returns the ingress listeners of its Sidecar.
func (v *View) Ingress() []*networking.IstioIngressListener {
	return sidecar.Scope{Sidecar: v.ask(Self, selfSidecar, "").(*sidecar.Sidecar)}.Ingress()
}

// AllowAny says whether the proxy lets traffic to unknown hosts pass. Its Sidecar's
// policy decides, else the mesh's.
func (v *View) AllowAny() bool {
	if s := v.ask(Self, selfSidecar, "").(*sidecar.Sidecar); s != nil && s.Spec.GetOutboundTrafficPolicy() != nil {
		return s.Spec.GetOutboundTrafficPolicy().GetMode() == networking.OutboundTrafficPolicy_ALLOW_ANY
	}
	return v.Mesh(OutboundTrafficPolicy).AllowAny()
}

// AllowAnyDynamicDNS says whether the proxy resolves unknown hosts per request and
// forwards to them. The mesh decides, unless the Sidecar has a policy: then it is false.
func (v *View) AllowAnyDynamicDNS() bool {
	if s := v.ask(Self, selfSidecar, "").(*sidecar.Sidecar); s != nil && s.Spec.GetOutboundTrafficPolicy() != nil {
		return false
	}
	return v.Mesh(OutboundTrafficPolicy).AllowAnyDynamicDNS()
}

// EgressProxy returns where the Sidecar sends traffic to unknown hosts, nil if it goes to
// its original destination.
func (v *View) EgressProxy() *sidecar.EgressProxy {
	if s := v.ask(Self, selfSidecar, "").(*sidecar.Sidecar); s != nil {
		return s.EgressProxy
	}
	return nil
}

// InNamespace says whether the proxy is in a namespace.
func (v *View) InNamespace(namespace string) bool {
	return v.ask(Self, selfNamespace, namespace).(bool)
}

// HasLabels says whether a selector matches the proxy's labels. It works only for
// selectors of source labels in VirtualServices: a class knows no others.
func (v *View) HasLabels(selector labels.Instance) bool {
	return v.ask(Self, selfLabels, selector.String()).(bool)
}

// Locality is the proxy's locality, region/zone/subzone; empty if no configuration reads
// it.
func (v *View) Locality() string { return v.ask(Self, selfTrait, destination.LocalityTrait).(string) }

// Region is the proxy's region; empty if no configuration reads it.
func (v *View) Region() string { return v.ask(Self, selfTrait, destination.RegionTrait).(string) }

// Label is the value of a label of the proxy that failoverPriority names. Topology labels
// that are not set follow from the proxy's locality.
func (v *View) Label(key string) string {
	return v.ask(Self, selfTrait, destination.LabelTrait+key).(string)
}

// Node is the node of Kubernetes that the proxy is on; empty if it is on none, or no service asks.
func (v *View) Node() string { return v.ask(Self, selfTrait, destination.NodeTrait).(string) }

// Service returns the service of a host that the proxy sees through any of its egress
// listeners, nil if it sees none or the host is an alias.
func (v *View) Service(h host.Name) *ServiceRow {
	s, _ := v.ofHost(h, viaAny).(*ServiceRow)
	return s
}

// Sees says whether the proxy sees a service of a host, through any egress listener. It
// does not record.
func (v *View) Sees(row *HostRow) bool {
	return v.service(row.Hostname, viaAny) != nil
}

// SeesRoutes says whether the proxy sees a VirtualService of a row, through any of its
// egress listeners. It does not record.
func (v *View) SeesRoutes(row *RouteRow) bool { return v.firstRoute(row, viaAny) != nil }

// ServiceAt is like Service, through one egress listener.
func (v *View) ServiceAt(listener EgressListener, h host.Name) *ServiceRow {
	s, _ := v.ofHost(h, v.listenerArgs(listener.Index)).(*ServiceRow)
	return s
}

// Endpoints returns the endpoints of a service; nil for none.
func (v *View) Endpoints(s *ServiceRow) *EndpointRow {
	return v.ask(Endpoints, rows.Key(s.Hostname, s.Namespace), "").(*EndpointRow)
}

// EndpointsOf returns the endpoints of a service, whether the proxy resolves them or not. The
// caller must not modify the result.
func (v *View) EndpointsOf(s *ServiceRow) []*discovery.Endpoint {
	if s.Service().Resolution.IsDNS() {
		return s.DNSEndpoints
	}
	return v.Endpoints(s).All()
}

// VirtualServices returns the visible VirtualServices that name exactly this host on a
// gateway, in precedence.
func (v *View) VirtualServices(gateway string, h host.Name) []*routing.VirtualService {
	return v.ask(Routes, routing.RouteKey(gateway, h), "").(routing.Visible).List()
}

// VirtualServiceAt returns the VirtualService that applies to the host of a service on an
// egress listener of a sidecar. It is the first visible and imported one of the most
// specific name that has any; nil for none.
func (v *View) VirtualServiceAt(listener EgressListener, h host.Name) *routing.VirtualService {
	return v.ask(Routes, routing.RouteKey(MeshGateway, h), strconv.Itoa(listener.Index)).(*routing.VirtualService)
}

// VirtualServiceNamed is like VirtualServiceAt for exactly one name or pattern.
func (v *View) VirtualServiceNamed(listener EgressListener, name host.Name) *routing.VirtualService {
	return v.ask(Routes, routing.RouteKey(MeshGateway, name), viaExactly+strconv.Itoa(listener.Index)).(*routing.VirtualService)
}

// Rule returns the merged DestinationRule that applies when the proxy calls a service;
// nil if there is none. Rules of the proxy's namespace come first, then those of the
// service's, then those of the root namespace. The first namespace that has a match
// decides, by its most specific host. (Istio: destinationRule.)
func (v *View) Rule(s *ServiceRow) *destination.Rule {
	return v.ask(Rules, string(s.Hostname), s.Namespace).(*destination.Rule)
}

// ServerRule returns the rule of a service for the workload that serves it. Rules that
// select client proxies do not count.
func (v *View) ServerRule(s *ServiceRow) *destination.Rule {
	return v.ask(Rules, string(s.Hostname), s.Namespace+forServer).(*destination.Rule)
}

// Hash returns the consistent hash by which the proxy balances requests to a port of a
// service or subset; nil for none.
func (v *View) Hash(s *ServiceRow, subset string, port int) *networking.LoadBalancerSettings_ConsistentHashLB {
	return v.rulePart(destination.HashPart, s, subset, port).Hash(subset, port)
}

// IdleTimeout is the time after which the proxy closes an idle TCP connection to a port
// of a service or subset. It is nil if nothing is set. The mesh decides where no rule has a
// connection pool.
func (v *View) IdleTimeout(s *ServiceRow, subset string, port int) *durationpb.Duration {
	if own := v.rulePart(destination.IdleTimeoutPart, s, subset, port).IdleTimeout(subset, port); own != nil {
		return own
	}
	baseline := v.Mesh(DefaultTrafficPolicy).GetDefaultTrafficPolicy().GetConnectionPool().GetTcp().GetIdleTimeout()
	if baseline == nil || v.rulePart(destination.PoolPart, s, subset, port) != nil {
		return nil
	}
	return baseline
}

// Tunnel says how the proxy tunnels TCP connections to a port of a service or subset
// through the endpoints to another destination. It is nil for no tunnel.
func (v *View) Tunnel(s *ServiceRow, subset string, port int) *networking.TrafficPolicy_TunnelSettings {
	return v.rulePart(destination.TunnelPart, s, subset, port).Tunnel(subset)
}
