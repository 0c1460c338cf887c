package routing

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
)

// Origin says where a route of a VirtualService was written.
type Origin struct {
	// Of is the VirtualService whose Written has the route: the VirtualService itself, or
	// a delegate.
	Of *VirtualService
	// Block is the index of the route in the http list of Of. Root is the index in the
	// VirtualService's own list, of the route itself or of the one that delegates to Of.
	Block, Root int
	matches     []MatchOrigin // nil if the matches are those of the block
}

// Match returns where the route's match with this index was written.
func (o Origin) Match(index int) MatchOrigin {
	if o.matches == nil {
		return MatchOrigin{Of: index, Root: -1}
	}
	return o.matches[index]
}

// MatchOrigin names the matches that were merged into one: match[Of] of the block with
// the route, and match[Root] of the one that delegates to it. Each is -1 for none.
type MatchOrigin struct{ Of, Root int }

// Conflict is a route of a delegate that the VirtualService omits: one of its matches is
// compatible with no match of the route that delegates to it.
type Conflict struct {
	Of *VirtualService
	// Match and Field name the first conflict: field Field of http[Block].match[Match] of
	// the delegate excludes the first match of http[Root], which delegates to it.
	Block, Root, Match int
	Field              string
}

// IsDelegate says whether a VirtualService has no hosts. Others delegate to it, and it is
// bound to no gateway.
func (vs *VirtualService) IsDelegate() bool { return vs != nil && len(vs.Hosts) == 0 }

// Admits says whether the VirtualService is a delegate that VirtualServices of a
// namespace may use.
func (vs *VirtualService) Admits(namespace string) bool {
	return vs.IsDelegate() && vs.ExportTo.VisibleTo(namespace)
}

// DelegateOf returns the key of the VirtualService to which a route of an object
// delegates, false for none.
func DelegateOf(object *config.Config, r *networking.HTTPRoute) (config.Key, bool) {
	d := r.GetDelegate()
	return config.Key{Kind: object.GroupVersionKind, Namespace: cmp.Or(d.GetNamespace(), object.Namespace), Name: d.GetName()}, d != nil
}

// DelegatePaths returns the paths of the objects to which Written delegates, each once
// and in order.
func (vs *VirtualService) DelegatePaths() []string {
	if vs == nil || vs.IsDelegate() {
		return nil
	}
	var out []string
	for _, r := range vs.Written.GetHttp() {
		if key, ok := DelegateOf(vs.Config, r); ok {
			out = append(out, key.Path())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Origin says where the route Spec.Http[block] was written.
func (vs *VirtualService) Origin(block int) Origin {
	if vs.origins == nil {
		return Origin{Of: vs, Block: block, Root: block}
	}
	return vs.origins[block]
}

// Merge returns the VirtualService with its delegates' routes in the place of the routes
// that delegate to them. delegate returns the object at a path, nil for none. A route
// without such a delegate, or whose delegate is not exported to the VirtualService's
// namespace, is omitted. Delegates of delegates are ignored. (Istio:
// mergeVirtualServicesIfNeeded.)
func (vs *VirtualService) Merge(delegate func(path string) *VirtualService) *VirtualService {
	out := *vs
	out.Spec = shallow(vs.Written)
	out.Spec.Http, out.origins = nil, []Origin{}
	for root, r := range vs.Written.GetHttp() {
		key, delegates := DelegateOf(vs.Config, r)
		if !delegates {
			out.Spec.Http = append(out.Spec.Http, r)
			out.origins = append(out.origins, Origin{Of: vs, Block: root, Root: root})
			continue
		}
		d := delegate(key.Path())
		if !d.Admits(vs.Config.Namespace) {
			continue
		}
		if !slices.Contains(out.Delegates, d) {
			out.Delegates = append(out.Delegates, d)
		}
		for block, leaf := range d.Written.GetHttp() {
			merged, matches, conflict := mergeMatches(r.GetMatch(), leaf.GetMatch())
			if conflict != nil {
				conflict.Of, conflict.Block, conflict.Root = d, block, root
				out.Conflicts = append(out.Conflicts, *conflict)
				continue
			}
			out.Spec.Http = append(out.Spec.Http, mergeRoute(r, leaf, merged))
			out.origins = append(out.origins, Origin{Of: d, Block: block, Root: root, matches: matches})
		}
	}
	return &out
}

// mergeRoute adds the settings of the delegating route to a delegate's route.
func mergeRoute(root, leaf *networking.HTTPRoute, matches []*networking.HTTPMatchRequest) *networking.HTTPRoute {
	out := shallow(leaf)
	out.Match = matches
	out.Name = mergeNames(root.GetName(), leaf.GetName())
	out.Rewrite = cmp.Or(leaf.GetRewrite(), root.GetRewrite())
	out.Timeout = cmp.Or(leaf.GetTimeout(), root.GetTimeout())
	out.Retries = cmp.Or(leaf.GetRetries(), root.GetRetries())
	out.Fault = cmp.Or(leaf.GetFault(), root.GetFault())
	out.Mirror = cmp.Or(leaf.GetMirror(), root.GetMirror())
	//lint:ignore SA1019 Istio takes the deprecated field still.
	out.MirrorPercent = cmp.Or(leaf.GetMirrorPercent(), root.GetMirrorPercent())
	out.MirrorPercentage = cmp.Or(leaf.GetMirrorPercentage(), root.GetMirrorPercentage())
	if len(leaf.GetMirrors()) == 0 {
		out.Mirrors = root.GetMirrors()
	}
	out.CorsPolicy = cmp.Or(leaf.GetCorsPolicy(), root.GetCorsPolicy())
	out.Headers = cmp.Or(leaf.GetHeaders(), root.GetHeaders())
	return out
}

// mergeNames joins the names of two routes or matches that are merged.
func mergeNames(root, leaf string) string {
	if root == "" || leaf == "" {
		return root + leaf
	}
	return root + "-" + leaf
}

// mergeMatches merges each match of a delegate's route with each compatible match of the
// root. A match that is compatible with none is a conflict.
func mergeMatches(root, leaf []*networking.HTTPMatchRequest) ([]*networking.HTTPMatchRequest, []MatchOrigin, *Conflict) {
	var out []*networking.HTTPMatchRequest
	from := []MatchOrigin{}
	switch {
	case len(root) == 0:
		for i := range leaf {
			from = append(from, MatchOrigin{Of: i, Root: -1})
		}
		return leaf, from, nil
	case len(leaf) == 0:
		for i := range root {
			from = append(from, MatchOrigin{Of: -1, Root: i})
		}
		return root, from, nil
	}
	for i, l := range leaf {
		before := len(out)
		for k, r := range root {
			if excludes(r, l) == "" {
				out = append(out, mergeMatch(r, l))
				from = append(from, MatchOrigin{Of: i, Root: k})
			}
		}
		if len(out) == before {
			return nil, nil, &Conflict{Match: i, Field: excludes(root[0], l)}
		}
	}
	return out, from, nil
}

func mergeMatch(root, leaf *networking.HTTPMatchRequest) *networking.HTTPMatchRequest {
	out := shallow(leaf)
	out.Name = mergeNames(root.GetName(), leaf.GetName())
	out.Uri = cmp.Or(leaf.GetUri(), root.GetUri())
	out.Scheme = cmp.Or(leaf.GetScheme(), root.GetScheme())
	out.Method = cmp.Or(leaf.GetMethod(), root.GetMethod())
	out.Authority = cmp.Or(leaf.GetAuthority(), root.GetAuthority())
	out.Headers = mergeMaps(root.GetHeaders(), leaf.GetHeaders())
	out.WithoutHeaders = mergeMaps(root.GetWithoutHeaders(), leaf.GetWithoutHeaders())
	out.QueryParams = mergeMaps(root.GetQueryParams(), leaf.GetQueryParams())
	out.SourceLabels = mergeMaps(root.GetSourceLabels(), leaf.GetSourceLabels())
	out.Port = cmp.Or(leaf.GetPort(), root.GetPort())
	out.SourceNamespace = cmp.Or(leaf.GetSourceNamespace(), root.GetSourceNamespace())
	if len(leaf.GetGateways()) == 0 {
		out.Gateways = root.GetGateways()
	}
	out.StatPrefix = cmp.Or(leaf.GetStatPrefix(), root.GetStatPrefix())
	return out
}

// mergeMaps returns the entries of both maps; the leaf's win.
func mergeMaps[V any](root, leaf map[string]V) map[string]V {
	if len(root) == 0 {
		return leaf
	}
	out := maps.Clone(root)
	maps.Copy(out, leaf)
	return out
}

// excludes returns the first field of a delegate's match that matches more than the
// root's match, or something else. It is empty if they are compatible. (Istio:
// hasConflict.)
func excludes(root, leaf *networking.HTTPMatchRequest) string {
	for _, m := range []struct {
		field      string
		root, leaf *networking.StringMatch
	}{
		{"uri", root.GetUri(), leaf.GetUri()}, {"scheme", root.GetScheme(), leaf.GetScheme()},
		{"method", root.GetMethod(), leaf.GetMethod()}, {"authority", root.GetAuthority(), leaf.GetAuthority()},
	} {
		if !within(m.leaf, m.root) {
			return m.field
		}
	}
	for _, m := range []struct {
		field      string
		root, leaf map[string]*networking.StringMatch
	}{
		{"headers", root.GetHeaders(), leaf.GetHeaders()}, {"withoutHeaders", root.GetWithoutHeaders(), leaf.GetWithoutHeaders()},
		{"queryParams", root.GetQueryParams(), leaf.GetQueryParams()},
	} {
		for _, name := range slices.Sorted(maps.Keys(m.leaf)) {
			if !within(m.leaf[name], m.root[name]) {
				return m.field + "[" + name + "]"
			}
		}
	}
	switch {
	case root.GetIgnoreUriCase() != leaf.GetIgnoreUriCase():
		return "ignoreUriCase"
	case root.GetPort() != 0 && leaf.GetPort() != 0 && root.GetPort() != leaf.GetPort():
		return "port"
	case root.GetSourceNamespace() != "" && root.GetSourceNamespace() != leaf.GetSourceNamespace():
		return "sourceNamespace"
	}
	for _, name := range slices.Sorted(maps.Keys(leaf.GetSourceLabels())) {
		if value, both := root.GetSourceLabels()[name]; both && value != leaf.GetSourceLabels()[name] {
			return "sourceLabels[" + name + "]"
		}
	}
	if len(root.GetGateways()) > 0 {
		other := func(name string) bool { return !slices.Contains(root.GetGateways(), name) }
		if len(leaf.GetGateways()) > len(root.GetGateways()) || slices.ContainsFunc(leaf.GetGateways(), other) {
			return "gateways"
		}
	}
	return ""
}

// within says whether a delegate's match matches nothing that the root's does not. One
// that is not set takes over the other. Regular expressions cannot be compared, so it is
// false for them.
func within(leaf, root *networking.StringMatch) bool {
	if root == nil || leaf == nil {
		return true
	}
	exact, prefix := leaf.GetExact(), leaf.GetPrefix()
	switch {
	case root.GetRegex() != "" || leaf.GetRegex() != "":
		return false
	case root.GetExact() != "":
		return prefix == "" && exact == root.GetExact()
	case root.GetPrefix() != "" && prefix+exact != "":
		return strings.HasPrefix(cmp.Or(prefix, exact), root.GetPrefix())
	}
	return false
}

// shallow copies a message but shares its fields' values.
func shallow[M proto.Message](m M) M {
	out := m.ProtoReflect().New()
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		out.Set(f, v)
		return true
	})
	return out.Interface().(M)
}
