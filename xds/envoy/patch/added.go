package patch

import (
	"fmt"
	"slices"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// AddedClusters returns the clusters that patches add in a context, in order. Of several with a name
// the first is added. Callers have to see that no generated cluster has the name. A patch without a
// context adds nothing inbound. No message is shared with the patch.
func AddedClusters(in networking.EnvoyFilter_PatchContext, patches []*Patch) ([]*clusterv3.Cluster, []Result) {
	return added[*clusterv3.Cluster](patches, func(p *Patch) bool { return p.addsIn(networking.EnvoyFilter_CLUSTER, in) })
}

// AddedListeners is AddedClusters for listeners.
func AddedListeners(in networking.EnvoyFilter_PatchContext, patches []*Patch) ([]*listenerv3.Listener, []Result) {
	return added[*listenerv3.Listener](patches, func(p *Patch) bool { return p.addsIn(networking.EnvoyFilter_LISTENER, in) })
}

// named is a message of a resource.
type named interface {
	proto.Message
	GetName() string
}

// added returns the values of patches that add one.
func added[M named](patches []*Patch, adds func(*Patch) bool) ([]M, []Result) {
	var out []M
	var results []Result
	from := map[string]*Patch{}
	for _, p := range patches {
		if !adds(p) {
			continue
		}
		m := p.value.(M)
		switch first, taken := from[m.GetName()]; {
		case m.GetName() == "":
			results = append(results, Result{p, fmt.Errorf("adds a resource without a name")})
		case taken:
			results = append(results, Result{p, fmt.Errorf("adds %s, which %s adds already", m.GetName(), first)})
		default:
			from[m.GetName()] = p
			out = append(out, proto.CloneOf(m))
			results = append(results, Result{Patch: p})
		}
	}
	return out, results
}

// Extensions returns the configurations of filters that patches of EXTENSION_CONFIG make resources
// of their own (ECDS), in order and each name once: the first ADD of a name counts, and a later
// REPLACE of the name takes its place. Contexts do not matter.
func Extensions(patches []*Patch) ([]*corev3.TypedExtensionConfig, []Result) {
	of := func(p *Patch) bool { return p.Err == nil && p.ApplyTo == networking.EnvoyFilter_EXTENSION_CONFIG }
	out, results := added[*corev3.TypedExtensionConfig](patches, func(p *Patch) bool {
		return of(p) && p.Operation == networking.EnvoyFilter_Patch_ADD
	})
	for _, p := range patches {
		if !of(p) || p.Operation != networking.EnvoyFilter_Patch_REPLACE {
			continue
		}
		value := p.value.(*corev3.TypedExtensionConfig)
		if i := slices.IndexFunc(out, func(m *corev3.TypedExtensionConfig) bool { return m.GetName() == value.GetName() }); i >= 0 {
			out[i] = proto.CloneOf(value)
			results = append(results, Result{Patch: p})
		}
	}
	return out, results
}

// Bootstrap merges the patches of BOOTSTRAP into what a proxy starts with. MERGE is their one operation,
// so patches that are merged into nothing can be merged into the rest later.
func Bootstrap(m *bootstrapv3.Bootstrap, patches []*Patch) (*bootstrapv3.Bootstrap, []Result) {
	of := func(p *Patch) bool {
		return p.Err == nil && p.ApplyTo == networking.EnvoyFilter_BOOTSTRAP && p.Operation == networking.EnvoyFilter_Patch_MERGE
	}
	if !slices.ContainsFunc(patches, of) {
		return m, nil
	}
	return apply(m, patches, func(r *run, m *bootstrapv3.Bootstrap, patches []*Patch) *bootstrapv3.Bootstrap {
		for _, p := range patches {
			if of(p) {
				r.merge(m, p)
			}
		}
		return m
	})
}
