package mesh

import (
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// MeshGateway is the gateway name that stands for all sidecars.
const MeshGateway = "mesh"

// VirtualService is a VirtualService with all names resolved. It is never
// modified.
type VirtualService struct {
	Config *config.Config
	// Spec is a copy with complete host names, and with gateways as "namespace/name" or
	// "mesh", in matches too.
	Spec     *networking.VirtualService
	Hosts    []host.Name // lower case
	Gateways []string
	ExportTo discovery.Visibility
}

// Destinations are the hosts that its routes may send traffic to, or copies of requests,
// sorted.
func (vs *VirtualService) Destinations() []host.Name {
	var out []host.Name
	for _, r := range vs.Spec.GetHttp() {
		for d := range destinations(r) {
			out = append(out, host.Name(d.GetHost()))
		}
	}
	for route := range vs.streamRoutes() {
		for _, d := range route {
			out = append(out, host.Name(d.GetDestination().GetHost()))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// destinations are those of a route and of its mirrors.
func destinations(r *networking.HTTPRoute) iter.Seq[*networking.Destination] {
	return func(yield func(*networking.Destination) bool) {
		for _, d := range r.GetRoute() {
			if d.GetDestination() != nil && !yield(d.GetDestination()) {
				return
			}
		}
		if r.GetMirror() != nil && !yield(r.GetMirror()) {
			return
		}
		for _, m := range r.GetMirrors() {
			if m.GetDestination() != nil && !yield(m.GetDestination()) {
				return
			}
		}
	}
}

// sourceSelectors are the selectors of source labels in its matches, each once.
func (vs *VirtualService) sourceSelectors() []string {
	if vs == nil {
		return nil
	}
	var out []string
	add := func(selector map[string]string) {
		if len(selector) > 0 {
			out = append(out, formatLabels(selector))
		}
	}
	for _, r := range vs.Spec.GetHttp() {
		for _, m := range r.GetMatch() {
			add(m.GetSourceLabels())
		}
	}
	for _, r := range vs.Spec.GetTcp() {
		for _, m := range r.GetMatch() {
			add(m.GetSourceLabels())
		}
	}
	for _, r := range vs.Spec.GetTls() {
		for _, m := range r.GetMatch() {
			add(m.GetSourceLabels())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func newVirtualService(c *config.Config, defaultExport []string) *VirtualService {
	spec := proto.CloneOf(c.Spec.(*networking.VirtualService))
	resolve := func(h string) string { return string(host.Resolve(h, c.Namespace, c.Domain)) }
	vs := &VirtualService{
		Config: c, Spec: spec,
		ExportTo: discovery.ParseVisibility(spec.GetExportTo(), c.Namespace, defaultExport),
	}
	for i, h := range spec.Hosts {
		spec.Hosts[i] = strings.ToLower(resolve(h))
		vs.Hosts = append(vs.Hosts, host.Name(spec.Hosts[i]))
	}
	resolveGateways(spec.Gateways, c.Namespace)
	vs.Gateways = spec.Gateways
	if len(vs.Gateways) == 0 {
		vs.Gateways = []string{MeshGateway}
	}
	for _, r := range spec.Http {
		for d := range destinations(r) {
			d.Host = strings.ToLower(resolve(d.Host))
		}
		for _, m := range r.Match {
			resolveGateways(m.Gateways, c.Namespace)
		}
	}
	vs.resolveStreams(resolve)
	return vs
}

func resolveGateways(names []string, namespace string) {
	for i, name := range names {
		names[i] = GatewayName(name, namespace)
	}
}

// GatewayName makes the name of a gateway in a VirtualService "namespace/name":
// "./name" and "name" are of the VirtualService's namespace, "name.namespace.svc..."
// is the old form, "mesh" is kept. (Istio: resolveGatewayName.)
func GatewayName(name, namespace string) string {
	if name == MeshGateway {
		return name
	}
	if ns, short, qualified := strings.Cut(name, "/"); qualified {
		if ns == "." {
			ns = namespace
		}
		return ns + "/" + short
	}
	short, rest, dotted := strings.Cut(name, ".")
	if dotted {
		namespace, _, _ = strings.Cut(rest, ".")
	}
	return namespace + "/" + short
}

// RouteRow is the VirtualServices that name a host on a gateway, in precedence:
// the oldest first.
type RouteRow struct {
	VirtualServices []*VirtualService
}

// virtualServiceTable has the VirtualServices by config path.
type virtualServiceTable struct{ tableOf[*VirtualService] }

var virtualServiceRows = virtualServiceTable{tableOf[*VirtualService]{virtualServices}}

func (t virtualServiceTable) follow(from, to *PushContext) {
	eachObject(from, to, virtualServicePath, func(c pmap.Change[*config.Config]) {
		var vs *VirtualService
		if c.HasNew {
			vs = newVirtualService(c.New, to.mesh.GetDefaultVirtualServiceExportTo())
		}
		t.put(to, c.Key, vs, c.HasNew)
	})
}

// routes has the VirtualServices with http routes by gateway and host.
type routes struct{ tableOf[*RouteRow] }

var (
	routeRows        = routes{tableOf[*RouteRow]{Routes}}
	routePatternRows = tableOf[bool]{routePatterns}
)

// RouteKey is the key of a host of a gateway in the table of routes.
func RouteKey(gateway string, h host.Name) string { return gateway + "|" + string(h) }

func splitRouteKey(key string) (gateway string, h host.Name) {
	g, name, _ := strings.Cut(key, "|")
	return g, host.Name(name)
}

func (t routes) follow(from, to *PushContext) {
	for c := range virtualServiceRows.diff(from, to) {
		keys := c.New.routeKeys()
		slices.Sort(keys)
		for _, key := range unionKeys(c.Old.routeKeys(), keys) {
			_, belongs := slices.BinarySearch(keys, key)
			row := t.of(to).Value(key).replace(c.Old, c.New, belongs)
			t.put(to, key, row, row != nil)
			if gateway, h := splitRouteKey(key); gateway == MeshGateway && h.IsWildcard() {
				routePatternRows.put(to, key, true, row != nil)
			}
		}
	}
}

// changed adds the hosts that a changed pattern covers.
func (t routes) changed(from, to *PushContext, keys []RowKey) []RowKey {
	for c := range t.diff(from, to) {
		keys = append(keys, RowKey{Routes, c.Key})
		if gateway, h := splitRouteKey(c.Key); gateway == MeshGateway && h.IsWildcard() {
			for row := range to.hostsMatching(h) {
				keys = append(keys, RowKey{Routes, RouteKey(MeshGateway, row.Hostname)})
			}
		}
	}
	return keys
}

func (t routes) answer(v *View, key, args string) any { return v.route(key, args) }

func (vs *VirtualService) routeKeys() []string {
	if vs == nil || len(vs.Spec.GetHttp()) == 0 {
		return nil
	}
	var out []string
	for _, g := range vs.Gateways {
		for _, h := range vs.Hosts {
			out = append(out, RouteKey(g, h))
		}
	}
	return out
}

func unionKeys(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// replace returns the row with curr, where it belongs, in the place of old.
func (r *RouteRow) replace(old, curr *VirtualService, belongs bool) *RouteRow {
	var list []*VirtualService
	if r != nil {
		list = slices.DeleteFunc(slices.Clone(r.VirtualServices), func(vs *VirtualService) bool { return vs == old })
	}
	if belongs {
		list = append(list, curr)
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b *VirtualService) int { return config.Compare(a.Config, b.Config) })
	return &RouteRow{VirtualServices: list}
}
