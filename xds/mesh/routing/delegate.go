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

// Origin is where a route of a VirtualService was written.
type Origin struct {
	// Of is the VirtualService as it was written that has the route: itself, or a delegate.
	Of *VirtualService
	// Block says that the route is http[Block] of Of. Root is the block of the VirtualService
	// itself that is the route, or that delegates to Of.
	Block, Root int
	matches     []MatchOrigin // nil where the matches are those of the block
}

// Match is where a match of the route was written.
func (o Origin) Match(index int) MatchOrigin {
	if o.matches == nil {
		return MatchOrigin{Of: index, Root: -1}
	}
	return o.matches[index]
}

// MatchOrigin names the matches that one is made of: match[Of] of the block that has the
// route, and match[Root] of the one that delegates to it. Each is -1 for none.
type MatchOrigin struct{ Of, Root int }

// Conflict is a route of a delegate that a VirtualService goes without, since one of its
// matches goes with none of the route that delegates to it.
type Conflict struct {
	Of *VirtualService
	// Match and Field say which field of http[Block].match[Match] of the delegate excludes
	// the first match of the route http[Root] that delegates to it.
	Block, Root, Match int
	Field              string
}

// IsDelegate says whether a VirtualService has no hosts: it is there for others that
// delegate to it, and bound to no gateway.
func (vs *VirtualService) IsDelegate() bool { return vs != nil && len(vs.Hosts) == 0 }

// Admits says whether the VirtualService is a delegate that those of a namespace may
// delegate to.
func (vs *VirtualService) Admits(namespace string) bool {
	return vs.IsDelegate() && vs.ExportTo.VisibleTo(namespace)
}

// DelegateOf is the key of the VirtualService that a route of an object delegates to; false
// where it delegates to none.
func DelegateOf(object *config.Config, r *networking.HTTPRoute) (config.Key, bool) {
	d := r.GetDelegate()
	return config.Key{Kind: object.GroupVersionKind, Namespace: cmp.Or(d.GetNamespace(), object.Namespace), Name: d.GetName()}, d != nil
}

// DelegatePaths are the paths of the objects that it delegates to, as it was written, each
// once and in order.
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

// Origin is where the route Spec.Http[block] was written.
func (vs *VirtualService) Origin(block int) Origin {
	if vs.origins == nil {
		return Origin{Of: vs, Block: block, Root: block}
	}
	return vs.origins[block]
}

// Merge returns the VirtualService with the routes of its delegates in the place of those
// that delegate to them; delegate finds what an object is at a path, nil for nothing. A
// route is left out if there is no such delegate, or it is not exported to the namespace of
// the VirtualService. Delegates of delegates do not count. (Istio:
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

// mergeRoute is a route of a delegate with what the route that delegates to it says beside.
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

// mergeNames joins the names of two that become one.
func mergeNames(root, leaf string) string {
	if root == "" || leaf == "" {
		return root + leaf
	}
	return root + "-" + leaf
}

// mergeMatches makes one match of each match of a delegate's route and each one of the root
// that it goes with. A match that goes with none is a conflict.
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

// mergeMaps has the entries of both; where both have one, that of the leaf.
func mergeMaps[V any](root, leaf map[string]V) map[string]V {
	if len(root) == 0 {
		return leaf
	}
	out := maps.Clone(root)
	maps.Copy(out, leaf)
	return out
}

// excludes is the first field of a delegate's match that takes more than the root's match
// does, or something else; empty where the two go together. (Istio: hasConflict.)
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

// within says whether a match of a delegate takes nothing that the root's does not. One
// that is not set takes what the other does. Of regular expressions nobody knows.
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

// shallow copies a message, and shares what is in it.
func shallow[M proto.Message](m M) M {
	out := m.ProtoReflect().New()
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		out.Set(f, v)
		return true
	})
	return out.Interface().(M)
}
