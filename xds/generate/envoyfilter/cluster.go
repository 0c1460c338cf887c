package envoyfilter

import (
	"iter"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy/patch"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Clusters patches clusters. It reads no Gateway: which EnvoyFilters target one is known of the class.
type Clusters struct{}

var (
	_ generate.Patch       = Clusters{}
	_ generate.Gatewayless = Clusters{}
)

// Gatewayless implements generate.Gatewayless.
func (Clusters) Gatewayless() {}

// Affected implements generate.Patch.
func (Clusters) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		addedNames(v, d, networking.EnvoyFilter_CLUSTER, patch.AddedClusters, yield)
	}
}

// Apply implements generate.Patch.
func (Clusters) Apply(v *mesh.View, name string, message proto.Message, needs []resource.Need) (proto.Message, []resource.Need, error) {
	if !v.MayPatch(networking.EnvoyFilter_CLUSTER) {
		return message, needs, nil
	}
	at := patch.Place{Kind: networking.EnvoyFilter_CLUSTER, Name: name, Context: contextOf(v)}
	if at.Context == networking.EnvoyFilter_SIDECAR_INBOUND {
		at.Hosts = hostsOn(v, name)
	}
	patches := v.Patches(at.Kind, at)
	if len(patches) == 0 {
		return message, needs, nil
	}
	if message == nil {
		out, err := add(v, patches, patch.AddedClusters)
		return out.message, out.needs, err
	}
	refuse(v, name, patches)
	before := message.(*clusterv3.Cluster)
	after, results := patch.Cluster(before, at, patches)
	v.NotePatches(results)
	out, err := patched(before, after, needs)
	return out.message, out.needs, err
}

// hostsOn returns the hosts of the services that a workload serves on the port of an inbound
// cluster, separated by blanks.
func hostsOn(v *mesh.View, cluster string) string {
	ref, ok := names.ParseCluster(cluster)
	if !ok {
		return ""
	}
	var out []string
	for _, s := range v.InboundServices() {
		for _, e := range s.Endpoints {
			if uint32(e.Port) == ref.Port {
				out = append(out, string(s.Service.Hostname))
				break
			}
		}
	}
	return strings.Join(out, " ")
}
