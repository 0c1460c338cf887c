package routing

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/cache/kube/ingress"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// MeshGateway is the gateway name that stands for all sidecars.
const MeshGateway = "mesh"

// VirtualService is a VirtualService with all names resolved. It is never
// modified.
type VirtualService struct {
	Config *config.Config
	// Written is a copy of the object's spec with complete host names, and with gateways
	// as "namespace/name" or "mesh", also in matches.
	Written *networking.VirtualService
	// Spec is Written, but delegates' routes replace the routes that delegate to them.
	// Origin says where each http route was written.
	Spec     *networking.VirtualService
	Hosts    []host.Name // lower case; a delegate has none
	Gateways []string    // a delegate has none
	// Refused are hosts of other namespaces. It names them, and has no effect for them.
	Refused  []host.Name
	ExportTo discovery.Visibility

	// Delegates are those whose routes it has, or would have without Conflicts.
	Delegates []*VirtualService
	Conflicts []Conflict
	origins   []Origin // parallel to Spec.Http; nil where Spec is Written

	// Derived is set if it is derived from Ingresses, and not one that users wrote. Then prefixes of
	// paths match whole segments.
	Derived *ingress.Derived
}

// Keys returns the keys of the objects that users wrote: the VirtualService, or the Ingresses that it
// is derived from, the oldest first.
func (vs *VirtualService) Keys() []config.Key {
	if vs.Derived != nil {
		return vs.Derived.From
	}
	return []config.Key{vs.Config.Key()}
}

// Key returns the first of the Keys.
func (vs *VirtualService) Key() config.Key { return vs.Keys()[0] }

// New resolves the names of a VirtualService. It has no routes of delegates yet, see
// Merge. defaultExport applies to an object without exportTo.
func New(c *config.Config, defaultExport []string) *VirtualService {
	spec := proto.CloneOf(c.Spec.(*networking.VirtualService))
	resolve := func(h string) string { return string(host.Resolve(h, c.Namespace, c.Domain)) }
	vs := &VirtualService{
		Config: c, Written: spec, Spec: spec,
		ExportTo: discovery.ParseVisibility(spec.GetExportTo(), c.Namespace, defaultExport),
	}
	for i, h := range spec.Hosts {
		spec.Hosts[i] = strings.ToLower(resolve(h))
		vs.Hosts = append(vs.Hosts, host.Name(spec.Hosts[i]))
	}
	resolveGateways(spec.Gateways, c.Namespace)
	vs.Gateways = spec.Gateways
	if len(vs.Gateways) == 0 && !vs.IsDelegate() {
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

// Without returns the VirtualService with those hosts Refused whose fields are in refused.
func (vs *VirtualService) Without(refused map[string]bool) *VirtualService {
	if len(refused) == 0 {
		return vs
	}
	out := *vs
	for i, h := range vs.Hosts {
		if refused[fmt.Sprintf("spec.hosts[%d]", i)] {
			out.Refused = append(out.Refused, h)
		}
	}
	return &out
}

// InEffect returns its hosts without those that are Refused.
func (vs *VirtualService) InEffect() []host.Name {
	if len(vs.Refused) == 0 {
		return vs.Hosts
	}
	return slices.DeleteFunc(slices.Clone(vs.Hosts), func(h host.Name) bool { return slices.Contains(vs.Refused, h) })
}

// destinations iterates over the destinations of a route and of its mirrors.
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

// SourceSelectors returns the selectors of source labels in its matches, each once, as
// labels.Instance writes them.
func (vs *VirtualService) SourceSelectors() []string {
	if vs == nil || vs.IsDelegate() {
		return nil
	}
	var out []string
	add := func(selector labels.Instance) {
		if len(selector) > 0 {
			out = append(out, selector.String())
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

func resolveGateways(names []string, namespace string) {
	for i, name := range names {
		names[i] = GatewayName(name, namespace)
	}
}

// GatewayName returns the name of a gateway in a VirtualService as "namespace/name".
// "./name" and "name" are in the VirtualService's namespace, "name.namespace.svc..." is
// the old form, and "mesh" is kept. (Istio: resolveGatewayName.)
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
