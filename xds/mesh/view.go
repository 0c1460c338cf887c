package mesh

import (
	"iter"
	"net/netip"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"

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

// View is a context as one class of proxies sees it, visibility applied. All
// that is asked of it is recorded, absent rows too. A View is used by one
// goroutine.
type View struct {
	context *PushContext
	class   *Class
	reads   map[Read]any // nil where nothing is to be recorded
}

// NewView returns a view that does not record.
func NewView(p *PushContext, c *Class) *View { return &View{context: p, class: c} }

// Recording returns a view of the same context and class that records from now
// on.
func (v *View) Recording() *View {
	return &View{context: v.context, class: v.class, reads: map[Read]any{}}
}

// Reads are what was asked and answered so far.
func (v *View) Reads() map[Read]any { return v.reads }

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
	case Ports:
		return v.context.hosts.ports.Value(r.Row.Key)
	case Addresses:
		return v.context.hosts.groups.addresses.Value(r.Row.Key)
	case Covered:
		return v.context.hosts.groups.covered.Value(r.Row.Key)
	case Claims:
		return v.context.hosts.claims.rows.Value(r.Row.Key)
	case Endpoints:
		return v.context.inputs.Endpoints.Value(r.Row.Key)
	case Routes:
		return v.visibleRoutes(v.context.routes.routes.Value(r.Row.Key), r.Via)
	case RouteHosts:
		return v.context.routes.routeHosts.Value(r.Row.Key)
	case Destinations:
		return v.imported(v.context.routes.destinations.Value(r.Row.Key), r.Via)
	case Rules:
		return v.visibleRules(v.context.rules.rules.Value(r.Row.Key), r.Via)
	}
	panic("mesh.View: unknown table " + strconv.Itoa(int(r.Row.Table)))
}

// ask answers and records.
func (v *View) ask(table Table, key, via string) any {
	r := Read{RowKey{table, key}, via}
	answer := v.Answer(r)
	if v.reads != nil {
		v.reads[r] = answer
	}
	return answer
}

// Shape is what is known of the proxy without being recorded.
func (v *View) Shape() Shape { return v.class.Shape }

// Mesh is the mesh configuration.
func (v *View) Mesh() *Config { return v.ask(MeshConfig, "", "").(*Config) }

// The questions about the class itself.
const (
	selfGateway   = "gateway"
	selfSidecar   = "sidecar"
	selfNamespace = "namespace"
	selfLabels    = "labels"
	selfIPs       = "ips"
)

func (v *View) self(key, via string) any {
	switch key {
	case selfGateway:
		return v.class.Gateway
	case selfSidecar:
		return v.class.Scope.Sidecar
	case selfNamespace:
		return v.class.Scope.Namespace == via
	case selfIPs:
		return joinComma(v.class.IPs)
	default:
		return labels.Instance(parseLabels(via)).SubsetOf(v.class.labels)
	}
}

// Gateway is the merged gateway of a router; nil for other proxies.
func (v *View) Gateway() *MergedGateway { return v.ask(Self, selfGateway, "").(*MergedGateway) }

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

// IPs are the addresses of the workload. What reads them is the workload's own.
func (v *View) IPs() []string { return splitComma(v.ask(Self, selfIPs, "").(string)) }

// InstanceIP is the first address of the workload of a family, empty for none.
// What reads it is the workload's own.
func (v *View) InstanceIP(v6 bool) string {
	for _, ip := range v.IPs() {
		if a, err := netip.ParseAddr(ip); err == nil && a.Unmap().Is4() != v6 {
			return ip
		}
	}
	return ""
}

// InNamespace says whether the proxy is of a namespace.
func (v *View) InNamespace(namespace string) bool {
	return v.ask(Self, selfNamespace, namespace).(bool)
}

// HasLabels says whether the proxy's labels are a superset of a selector.
func (v *View) HasLabels(selector labels.Instance) bool {
	return v.ask(Self, selfLabels, formatLabels(selector)).(bool)
}

// Service is the service of a host as the proxy sees it through any of its
// egress listeners; nil where it sees none.
func (v *View) Service(h host.Name) *ServiceRow {
	return v.ask(Hosts, string(h), v.anyListener(h)).(*ServiceRow)
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

// PortHosts are the hosts that have a port, in order, whether the proxy sees
// them or not: ask Service or ServiceAt of each.
func (v *View) PortHosts(port int) iter.Seq2[string, PortUse] {
	return v.ask(Ports, PortKey(port), "").(pmap.Map[PortUse]).All()
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

// VirtualServiceAt is the VirtualService of sidecars that applies to a host on an
// egress listener: the first visible and imported one of the most specific name.
func (v *View) VirtualServiceAt(listener EgressListener, h host.Name) *VirtualService {
	for name := range h.Covers() {
		if found := v.VirtualServiceNamed(listener, name); found != nil {
			return found
		}
	}
	return nil
}

// VirtualServiceNamed is like VirtualServiceAt for exactly one name or pattern.
func (v *View) VirtualServiceNamed(listener EgressListener, name host.Name) *VirtualService {
	list := v.ask(Routes, RouteKey(MeshGateway, name), strconv.Itoa(listener.Index)).(visibleRoutes).list()
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// Rule is the merged DestinationRule that applies when the proxy calls a
// service; nil where there is none. Rules of the proxy's namespace come first,
// then those of the service's, then those of the root namespace; the first
// namespace that has a match decides, by its most specific host. (Istio:
// destinationRule.)
func (v *View) Rule(s *ServiceRow) *Rule {
	var best visibleRules
	for name := range s.Hostname.Covers() {
		found := v.ask(Rules, string(name), s.Namespace).(visibleRules)
		if found.own != nil {
			return found.own
		}
		if best.service == nil {
			best.service = found.service
		}
		if best.root == nil {
			best.root = found.root
		}
	}
	if best.service != nil {
		return best.service
	}
	return best.root
}
