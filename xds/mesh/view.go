package mesh

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Read is one thing that a generator asked a View: the row that it depends on
// and, where several questions are asked of one row, which. The same Read has
// the same answer as long as the row and the class stay the same.
type Read struct {
	Row RowKey
	// Via tells questions of one row apart: an egress listener, a namespace.
	Via string
}

// Recorded is a question with its answer.
type Recorded struct {
	Read   Read
	Answer any
}

// View is a context as one class of proxies sees it, visibility applied. All
// that is asked of it is recorded, absent rows too. A View is used by one
// goroutine.
type View struct {
	context *PushContext
	class   Class
	scope   SidecarScope
	// workload is the proxy whose own resources are made, nil in the view of a class.
	workload *discovery.Proxy
	reads    *reads // nil where nothing is to be recorded
}

// NewView returns the view of a class, which does not record.
func NewView(p *PushContext, c Class) *View {
	return &View{context: p, class: c, scope: SidecarScope{Namespace: c.Namespace, Sidecar: p.sidecar(c.Sidecar)}}
}

// SameScope says whether two views are of one class that sees by the same rules:
// by one Sidecar, through the same gateways and with one mesh configuration. What
// follows from a change of these is not told row by row.
func (v *View) SameScope(o *View) bool {
	return v.class == o.class && v.scope == o.scope && v.context.mesh == o.context.mesh &&
		slices.Equal(v.gateways(), o.gateways())
}

// gateways are those of the class as they are now.
func (v *View) gateways() []*Gateway {
	if v.class.Gateways == "" || v.class.Shape.Type != discovery.Router {
		return nil
	}
	var out []*Gateway
	for path := range strings.SplitSeq(v.class.Gateways, separator) {
		out = append(out, v.context.gateways.Value(path))
	}
	return out
}

// Of returns the view of one proxy of the class, which knows what is the
// workload's own beside what the class sees. It does not record.
func (v *View) Of(proxy *discovery.Proxy) *View {
	out := *v
	out.workload, out.reads = proxy, nil
	return &out
}

// Recording returns a view of the same context and class that records from now
// on.
func (v *View) Recording() *View {
	out := *v
	out.reads = &reads{}
	return &out
}

// Reads are what was asked and answered so far, each question once.
func (v *View) Reads() []Recorded { return slices.Clip(v.reads.list) }

// reads is what was asked. Most resources ask so little that a list is searched
// faster than a map.
type reads struct {
	list  []Recorded
	index map[Read]int // nil while the list is short
}

const shortReads = 16

// find returns the place of a question, -1 where it was not asked.
func (r *reads) find(q Read) int {
	if r.index != nil {
		if i, ok := r.index[q]; ok {
			return i
		}
		return -1
	}
	return slices.IndexFunc(r.list, func(o Recorded) bool { return o.Read == q })
}

func (r *reads) add(q Read, answer any) {
	r.list = append(r.list, Recorded{q, answer})
	switch {
	case r.index != nil:
		r.index[q] = len(r.list) - 1
	case len(r.list) > shortReads:
		r.index = make(map[Read]int, 2*shortReads)
		for i, o := range r.list {
			r.index[o.Read] = i
		}
	}
}

// Answer is what the view says to a recorded question now: comparable by ==
// with what was recorded.
func (v *View) Answer(r Read) any {
	switch r.Row.Table {
	case MeshConfig:
		return v.context.mesh
	case Self:
		return v.self(r.Row.Key, r.Via)
	case Hosts:
		return v.service(host.Name(r.Row.Key), r.Via)
	case Addresses:
		return v.context.hosts.groups.addresses.Value(r.Row.Key)
	case Covered:
		return v.context.hosts.groups.covered.Value(r.Row.Key)
	case Claims:
		return v.context.hosts.claims.rows.Value(r.Row.Key)
	case Endpoints:
		return v.context.inputs.Endpoints.Value(r.Row.Key)
	case Routes:
		return v.route(r.Row.Key, r.Via)
	case RouteHosts:
		return v.context.routes.routeHosts.Value(r.Row.Key)
	case Destinations:
		return v.imported(v.context.imports.rows.Value(r.Row.Key), r.Via)
	case Rules:
		return v.ruleVia(host.Name(r.Row.Key), r.Via)
	case Gateways:
		return v.context.gateways.Value(r.Row.Key).at(r.Via)
	case Instances:
		return v.context.Instances(r.Row.Key)
	case Services:
		return v.context.inputs.Services.Value(r.Row.Key)
	}
	panic("mesh.View: unknown table " + strconv.Itoa(int(r.Row.Table)))
}

// ask answers and records.
func (v *View) ask(table Table, key, via string) any {
	r := Read{RowKey{table, key}, via}
	if v.reads == nil {
		return v.Answer(r)
	}
	if i := v.reads.find(r); i >= 0 {
		return v.reads.list[i].Answer
	}
	answer := v.Answer(r)
	v.reads.add(r, answer)
	return answer
}

// Shape is what is known of the proxy without being recorded.
func (v *View) Shape() Shape { return v.class.Shape }

// Mesh is the mesh configuration.
func (v *View) Mesh() *Config { return v.ask(MeshConfig, "", "").(*Config) }

// The questions about the class itself.
const (
	selfGateways  = "gateways"
	selfSidecar   = "sidecar"
	selfNamespace = "namespace"
	selfLabels    = "labels"
	selfIPs       = "ips"
	selfServes    = "serves"
	selfDelta     = "routeDelta"
)

func (v *View) self(key, via string) any {
	switch key {
	case selfGateways:
		return v.class.Gateways
	case selfSidecar:
		return v.scope.Sidecar
	case selfNamespace:
		return v.class.Namespace == via
	case selfIPs:
		return v.ips()
	case selfServes:
		return v.identity()
	case selfDelta:
		return v.class.RouteDelta
	default:
		return v.class.has(via)
	}
}

// Gateway is the merged gateway of a router; nil for other proxies.
func (v *View) Gateway() *MergedGateway { return v.gateway("") }

// GatewayAt is Gateway of those alone that have a server at a port, with all their
// servers.
func (v *View) GatewayAt(port int) *MergedGateway { return v.gateway(strconv.Itoa(port)) }

func (v *View) gateway(via string) *MergedGateway {
	if v.class.Shape.Type != discovery.Router {
		return nil
	}
	var gateways []*Gateway
	for path := range strings.SplitSeq(v.ask(Self, selfGateways, "").(string), separator) {
		if g := v.ask(Gateways, path, via).(*Gateway); g != nil {
			gateways = append(gateways, g)
		}
	}
	return mergeGateways(gateways)
}

// RouteDelta says whether the proxy takes virtual hosts as resources of their own,
// else within their route configurations.
func (v *View) RouteDelta() bool { return v.ask(Self, selfDelta, "").(bool) }

// Egress are the egress listeners that the proxy has; always at least one.
func (v *View) Egress() []EgressListener {
	return SidecarScope{Sidecar: v.ask(Self, selfSidecar, "").(*Sidecar)}.Egress()
}

// Ingress are the ingress listeners that its Sidecar asks for.
func (v *View) Ingress() []*networking.IstioIngressListener {
	return SidecarScope{Sidecar: v.ask(Self, selfSidecar, "").(*Sidecar)}.Ingress()
}

// AllowAny says whether the proxy lets traffic to unknown hosts pass: its
// Sidecar's policy, else the mesh's.
func (v *View) AllowAny() bool {
	if s := v.ask(Self, selfSidecar, "").(*Sidecar); s != nil && s.Spec.GetOutboundTrafficPolicy() != nil {
		return s.Spec.GetOutboundTrafficPolicy().GetMode() == networking.OutboundTrafficPolicy_ALLOW_ANY
	}
	return v.Mesh().AllowAny()
}

// InNamespace says whether the proxy is of a namespace.
func (v *View) InNamespace(namespace string) bool {
	return v.ask(Self, selfNamespace, namespace).(bool)
}

// HasLabels says whether the proxy's labels are a superset of a selector, which
// has to be one of the source labels that a VirtualService has: other outcomes are
// not known to a class.
func (v *View) HasLabels(selector labels.Instance) bool {
	return v.ask(Self, selfLabels, formatLabels(selector)).(bool)
}

// Service is the service of a host as the proxy sees it through any of its
// egress listeners; nil where it sees none.
func (v *View) Service(h host.Name) *ServiceRow {
	return v.ask(Hosts, string(h), v.anyListener(h)).(*ServiceRow)
}

// Sees says whether the proxy sees a service of a host, without that being recorded.
func (v *View) Sees(row *HostRow) bool {
	return v.service(row.Hostname, viaAny) != nil
}

// ServiceAt is the service of a host as the proxy sees it through one egress
// listener.
func (v *View) ServiceAt(listener EgressListener, h host.Name) *ServiceRow {
	return v.ask(Hosts, string(h), v.viaListener(listener.Index, h)).(*ServiceRow)
}

// Endpoints are those of a service; nil where there are none.
func (v *View) Endpoints(s *ServiceRow) *EndpointRow {
	return v.ask(Endpoints, ServiceKey(s.Hostname, s.Namespace), "").(*EndpointRow)
}

// RouteHosts are the hosts that VirtualServices name on a gateway, in order: ask
// VirtualServices of each.
func (v *View) RouteHosts(gateway string) iter.Seq[host.Name] {
	hosts := v.ask(RouteHosts, gateway, "").(pmap.Map[bool])
	return func(yield func(host.Name) bool) {
		for h := range hosts.Keys() {
			if !yield(host.Name(h)) {
				return
			}
		}
	}
}

// VirtualServices are those which name exactly this host on a gateway and are
// visible to the proxy, in precedence.
func (v *View) VirtualServices(gateway string, h host.Name) []*VirtualService {
	return v.ask(Routes, RouteKey(gateway, h), "").(visibleRoutes).list()
}

// VirtualServiceAt is the VirtualService of sidecars that applies to the host of a
// service on an egress listener: the first visible and imported one of the most
// specific name.
func (v *View) VirtualServiceAt(listener EgressListener, h host.Name) *VirtualService {
	return v.ask(Routes, RouteKey(MeshGateway, h), strconv.Itoa(listener.Index)).(*VirtualService)
}

// VirtualServiceNamed is like VirtualServiceAt for exactly one name or pattern.
func (v *View) VirtualServiceNamed(listener EgressListener, name host.Name) *VirtualService {
	return v.ask(Routes, RouteKey(MeshGateway, name), viaExactly+strconv.Itoa(listener.Index)).(*VirtualService)
}

// Rule is the merged DestinationRule that applies when the proxy calls a
// service; nil where there is none. Rules of the proxy's namespace come first,
// then those of the service's, then those of the root namespace; the first
// namespace that has a match decides, by its most specific host. (Istio:
// destinationRule.)
func (v *View) Rule(s *ServiceRow) *Rule {
	return v.ask(Rules, string(s.Hostname), s.Namespace).(*Rule)
}

// Hash is the consistent hash by which the proxy balances what it sends to a port of
// a service, or of a subset of it; nil for none. What asks for no more of a rule
// follows none that says nothing of a hash.
func (v *View) Hash(s *ServiceRow, subset string, port int) *networking.LoadBalancerSettings_ConsistentHashLB {
	via := strings.Join([]string{s.Namespace, subset, strconv.Itoa(port)}, separator)
	return v.ask(Rules, string(s.Hostname), via).(*Rule).Hash(subset, port)
}
