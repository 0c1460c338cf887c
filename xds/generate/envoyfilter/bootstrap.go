package envoyfilter

import (
	"fmt"
	"iter"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy/patch"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Bootstrap makes the one resource of a workload that says what EnvoyFilters merge into the bootstrap of
// its proxy, for the agent of its machine. The server does not have that bootstrap, and the agent does
// not know all messages of Envoy: so the server merges the patches, and the agent merges what that makes.
// A workload without such patches has none.
type Bootstrap struct{}

var (
	_ generate.Generator   = Bootstrap{}
	_ generate.Gatewayless = Bootstrap{}
)

// TypeURL implements generate.Generator.
func (Bootstrap) TypeURL() string { return resource.BootstrapType }

// Gatewayless implements generate.Gatewayless.
func (Bootstrap) Gatewayless() {}

// Affected implements generate.Generator.
func (Bootstrap) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if d.Whole && len(bootstrapPatches(v)) > 0 {
			yield(resource.BootstrapName)
		}
	}
}

// Build implements generate.Generator.
func (Bootstrap) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	if name != resource.BootstrapName {
		return nil, nil, nil
	}
	out, results, err := BootstrapOf(bootstrapPatches(v))
	v.NotePatches(results)
	if out == nil || err != nil {
		return nil, nil, err
	}
	return out, nil, nil
}

// bootstrapPatches returns the patches of the workload that is built, none in the view of a class.
func bootstrapPatches(v *mesh.View) []*patch.Patch {
	if !v.OfWorkload() {
		return nil
	}
	return v.Patches(networking.EnvoyFilter_BOOTSTRAP, patch.Place{Kind: networking.EnvoyFilter_BOOTSTRAP})
}

// BootstrapOf returns what patches of BOOTSTRAP together merge into a bootstrap, for
// bootstrap.PatchedJSON, and what became of each. It is nil if they set nothing.
func BootstrapOf(patches []*patch.Patch) (*structpb.Struct, []patch.Result, error) {
	merged, results := patch.Bootstrap(&bootstrapv3.Bootstrap{}, patches)
	if proto.Size(merged) == 0 {
		return nil, results, nil
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(merged)
	out := &structpb.Struct{}
	if err == nil {
		err = protojson.Unmarshal(raw, out)
	}
	if err != nil {
		return nil, results, fmt.Errorf("render the patches of the bootstrap: %w", err)
	}
	return out, results, nil
}
