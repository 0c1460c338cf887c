package envoyfilter

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy/patch"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// contextOf returns the context of the resources that a view builds.
func contextOf(v *mesh.View) networking.EnvoyFilter_PatchContext {
	switch {
	case v.Shape().Type == discovery.Router:
		return networking.EnvoyFilter_GATEWAY
	case v.OfWorkload():
		return networking.EnvoyFilter_SIDECAR_INBOUND
	}
	return networking.EnvoyFilter_SIDECAR_OUTBOUND
}

// contextsOf returns the contexts in which patches add resources to a class.
func contextsOf(v *mesh.View) []networking.EnvoyFilter_PatchContext {
	if v.Shape().Type == discovery.Router {
		return []networking.EnvoyFilter_PatchContext{networking.EnvoyFilter_GATEWAY}
	}
	return []networking.EnvoyFilter_PatchContext{networking.EnvoyFilter_SIDECAR_OUTBOUND, networking.EnvoyFilter_SIDECAR_INBOUND}
}

// named is a message of a resource.
type named interface {
	proto.Message
	comparable
	GetName() string
}

// built is a message and its needs.
type built struct {
	message proto.Message
	needs   []resource.Need
}

// patched returns the message that patches made of another, with what it needs now: the same if
// they are equal, and nothing if they removed it.
func patched[M named](before, after M, needs []resource.Need) (built, error) {
	var none M
	switch after {
	case before:
		return built{before, needs}, nil
	case none:
		return built{}, nil
	}
	found, err := resource.NeedsOf(after)
	return built{after, found}, err
}

// adder makes what patches add in a context: patch.AddedClusters.
type adder[M named] func(networking.EnvoyFilter_PatchContext, []*patch.Patch) ([]M, []patch.Result)

// add returns the resource that some patches add to a class, nothing if none does.
func add[M named](v *mesh.View, patches []*patch.Patch, of adder[M]) (built, error) {
	for _, in := range contextsOf(v) {
		made, results := of(in, patches)
		v.NotePatches(results)
		if len(made) > 0 {
			return first(made)
		}
	}
	return built{}, nil
}

// first returns the first of what patches made for one name, with its needs; nothing if there is none.
func first[M named](made []M) (built, error) {
	if len(made) == 0 {
		return built{}, nil
	}
	needs, err := resource.NeedsOf(made[0])
	return built{made[0], needs}, err
}

// refuse notes of patches that add a resource that they cannot, since there is one of the name.
func refuse(v *mesh.View, name string, patches []*patch.Patch) {
	var results []patch.Result
	for _, p := range patches {
		if !p.Adds() && p.ApplyTo != networking.EnvoyFilter_EXTENSION_CONFIG {
			continue
		}
		results = append(results, patch.Result{Patch: p, Err: fmt.Errorf("adds %s, which there is already: choose another name", name)})
	}
	v.NotePatches(results)
}

// addedNames yields the names of what patches add in any context, or would.
func addedNames[M named](v *mesh.View, d mesh.Delta, kind networking.EnvoyFilter_ApplyTo, of adder[M], yield func(string) bool) {
	patches := v.AddedPatches(kind, d)
	if len(patches) == 0 {
		return
	}
	for _, in := range contextsOf(v) {
		made, _ := of(in, patches)
		for _, m := range made {
			if !yield(m.GetName()) {
				return
			}
		}
	}
}
