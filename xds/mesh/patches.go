package mesh

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy/patch"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// patchKind is what patches are looked up by: the kind of a Place, which is that of a resource.
type patchKind = networking.EnvoyFilter_ApplyTo

// patchMarks has, by kind of resource, the mark that a Shape has if there are patches of it.
var patchMarks = map[patchKind]class.Patched{
	networking.EnvoyFilter_CLUSTER:             class.PatchedClusters,
	networking.EnvoyFilter_LISTENER:            class.PatchedListeners,
	networking.EnvoyFilter_ROUTE_CONFIGURATION: class.PatchedRoutes,
	networking.EnvoyFilter_VIRTUAL_HOST:        class.PatchedVirtualHosts,
	networking.EnvoyFilter_EXTENSION_CONFIG:    class.PatchedExtensions,
}

// patchedTypes has the marks of the patches that concern the resources of a type that are shared. A route configuration has virtual hosts of its own.
var patchedTypes = map[string]class.Patched{
	resource.ClusterType:     class.PatchedClusters,
	resource.ListenerType:    class.PatchedListeners,
	resource.RouteType:       class.PatchedRoutes | class.PatchedVirtualHosts,
	resource.VirtualHostType: class.PatchedVirtualHosts,
	resource.ExtensionType:   class.PatchedExtensions,
}

// kindOf returns the kind of resource that a patch changes or adds.
func kindOf(p *patch.Patch) patchKind {
	switch p.ApplyTo {
	case networking.EnvoyFilter_LISTENER_FILTER, networking.EnvoyFilter_FILTER_CHAIN, networking.EnvoyFilter_NETWORK_FILTER,
		networking.EnvoyFilter_HTTP_FILTER:
		return networking.EnvoyFilter_LISTENER
	case networking.EnvoyFilter_HTTP_ROUTE:
		return networking.EnvoyFilter_VIRTUAL_HOST
	}
	return p.ApplyTo
}

// patchTable holds the patches of EnvoyFilters by kind of resource and namespace, in the order in
// which they apply.
type patchTable struct{ tableOf[*patchRow] }

var patchRows = patchTable{tableOf[*patchRow]{Patches}}

// patchRow has the patches of one kind and namespace. It is never modified.
type patchRow struct{ list []filterPatch }

type filterPatch struct {
	of *envoyFilter
	*patch.Patch
}

func (r *patchRow) all() []filterPatch {
	if r == nil {
		return nil
	}
	return r.list
}

func patchKey(kind patchKind, namespace string) string {
	return kind.String() + "/" + namespace
}

func (t patchTable) follow(from, to *PushContext) {
	type key struct {
		kind      patchKind
		namespace string
	}
	added := map[key][]filterPatch{}
	gone := map[*envoyFilter]bool{}
	touch := func(f *envoyFilter, is bool) {
		if f == nil {
			return
		}
		gone[f] = !is
		for _, p := range f.Patches {
			at := key{kindOf(p), f.Config.Namespace}
			list := added[at]
			if is {
				list = append(list, filterPatch{f, p})
			}
			added[at] = list // also without a patch: the row changes
		}
	}
	for c := range envoyFilterRows.diff(from, to) {
		touch(c.Old, false)
		touch(c.New, true)
	}
	for at, more := range added {
		name := patchKey(at.kind, at.namespace)
		list := slices.DeleteFunc(slices.Clone(t.rowsOf(to).Value(name).all()), func(p filterPatch) bool { return gone[p.of] })
		list = append(list, more...)
		slices.SortStableFunc(list, func(a, b filterPatch) int { return a.of.Compare(b.of.Filter, "") })
		t.put(to, name, &patchRow{list}, len(list) > 0)
	}
}

// answer returns the patches that may change or add the resource at a place, as a patch.Selection.
func (t patchTable) answer(v *View, key, args string) any {
	at, err := patch.ParsePlace(args)
	if err != nil {
		panic(err) // args are those of Patches
	}
	var list []*patch.Patch
	for _, p := range t.rowsOf(v.push).Value(key).all() {
		if v.has(p.of, p.Patch) {
			list = append(list, p.Patch)
		}
	}
	return patch.Select(at, list)
}

// patched says which types of resources of proxies in a namespace EnvoyFilters may patch. gRPC
// clients have none: they take parts of Envoy's messages only. (Istio: pilot/pkg/networking/grpcgen.)
func (p *PushContext) patched(kind discovery.ProxyType, namespace string) class.Patched {
	rows := patchRows.rowsOf(p)
	if rows.Len() == 0 || kind == discovery.Proxyless {
		return 0
	}
	var out class.Patched
	root := p.mesh.GetRootNamespace()
	for kind, mark := range patchMarks {
		if rows.Value(patchKey(kind, root)) != nil {
			out |= mark
		}
		if namespace != root && rows.Value(patchKey(kind, namespace)) != nil {
			out |= mark.Own()
		}
	}
	return out
}

// patchedChanged says whether patched differs for a proxy from an earlier context.
func (p *PushContext) patchedChanged(from *PushContext, proxy *discovery.Proxy) bool {
	return patchRows.rowsOf(from) != patchRows.rowsOf(p) &&
		from.patched(proxy.Type, proxy.Namespace) != p.patched(proxy.Type, proxy.Namespace)
}

// PatchedFor returns a shape as the resources of a type depend on it: patches of other types do not
// concern them.
func PatchedFor(s Shape, typeURL string) Shape {
	s.Patched = s.Patched.Only(patchedTypes[typeURL])
	return s
}

// Patches returns the patches of a kind of resource that may change or add the resource at a place, in
// the order in which they apply: see patch.Select. The kind is that of the place, or of something within
// it. It costs nothing, and is not recorded, if no EnvoyFilter of the proxy's namespaces has patches of
// the kind.
func (v *View) Patches(kind networking.EnvoyFilter_ApplyTo, at patch.Place) []*patch.Patch {
	root, own := true, true
	if mark, marked := patchMarks[kind]; marked {
		root, own = v.class.Shape.Patched&mark != 0, v.class.Shape.Patched&mark.Own() != 0
	}
	own = own && v.class.Namespace != v.RootNamespace()
	if !root && !own {
		return nil
	}
	if own {
		v.InNamespace(v.class.Namespace) // recorded, since it decides which patches count
	}
	args := at.String()
	var out []*patch.Patch
	if root {
		out = v.ask(Patches, patchKey(kind, v.RootNamespace()), args).(patch.Selection).Patches()
	}
	if own {
		if more := v.ask(Patches, patchKey(kind, v.class.Namespace), args).(patch.Selection).Patches(); len(out) == 0 {
			out = more
		} else {
			out = append(slices.Clip(out), more...)
			slices.SortStableFunc(out, func(a, b *patch.Patch) int { return a.Filter.Compare(b.Filter, v.RootNamespace()) })
		}
	}
	return out
}

// MayPatch says whether EnvoyFilters of the proxy's namespaces patch resources of a kind. It does not
// record.
func (v *View) MayPatch(kind networking.EnvoyFilter_ApplyTo) bool {
	mark := patchMarks[kind]
	return v.class.Shape.Patched.Only(mark) != 0
}

// AddedPatches returns the patches of a kind that add resources or change, for the proxies of the
// view's namespaces, which resources are added, as of before a delta and after it, in no order.
func (v *View) AddedPatches(kind patchKind, d Delta) []*patch.Patch {
	if patchRows.rowsOf(d.from) == patchRows.rowsOf(d.to) {
		return nil
	}
	var out []*patch.Patch
	for _, namespace := range patchNamespaces(v.RootNamespace(), v.class.Namespace) {
		key := patchKey(kind, namespace)
		before, after := patchRows.rowsOf(d.from).Value(key), patchRows.rowsOf(d.to).Value(key)
		if before == after {
			continue
		}
		for _, p := range slices.Concat(before.all(), after.all()) {
			if p.Adds() {
				out = append(out, p.Patch)
			}
		}
	}
	return out
}
