package endpoint

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Local makes the load assignment of the local cluster, by which a proxy knows how many
// of its like send from which zone: the healthy endpoints of the workload's first service
// that are in its region, each address once. It is the workload's own. Proxies that do
// not discover themselves have none.
type Local struct{}

var _ generate.Generator = Local{}

// TypeURL implements generate.Generator.
func (Local) TypeURL() string { return resource.EndpointType }

// Affected implements generate.Generator.
func (Local) Affected(v *mesh.View, _ mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if v.Shape().SelfDiscovery {
			yield(names.LocalCluster)
		}
	}
}

// Build implements generate.Generator.
func (Local) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	if !v.Shape().SelfDiscovery || name != names.LocalCluster {
		return nil, nil, nil
	}
	var row *mesh.EndpointRow
	if s := workload.FirstService(v); s != nil {
		row = v.Endpoints(s)
	}
	if row != nil && len(row.Localities()) > 0 {
		made, err := assembleLocal(v, name, row.Localities())
		return made, nil, err
	}
	byLabel := map[string][]*discovery.Endpoint{}
	for _, e := range row.All() {
		if v.InRegion(e.Locality.Label) {
			byLabel[e.Locality.Label] = append(byLabel[e.Locality.Label], e)
		}
	}
	var localities []envoy.Endpoints
	for _, label := range slices.Sorted(maps.Keys(byLabel)) {
		localities = append(localities, local(label, byLabel[label]))
	}
	return envoy.LoadAssignment(name, localities), nil, nil
}

// localOf is the key of what is derived of a locality for local clusters.
type localOf struct{}

// assembleLocal makes the assignment of many endpoints. Proxies of one service encode
// each locality once.
func assembleLocal(v *mesh.View, name string, localities []*rows.Locality) (proto.Message, error) {
	var parts []envoy.EncodedLocality
	for _, l := range localities {
		if !v.InRegion(l.Label) {
			continue
		}
		made := l.Derived(localOf{}, func() any {
			var out encoded
			out.locality, out.err = envoy.EncodeLocality(local(l.Label, l.Endpoints))
			return out
		}).(encoded)
		if made.err != nil {
			return nil, made.err
		}
		parts = append(parts, made.locality)
	}
	return assembled(name, parts), nil
}

// local are the endpoints of one locality in a local cluster. Nothing is sent to them, and
// they count alike.
func local(label string, of []*discovery.Endpoint) envoy.Endpoints {
	out := envoy.Endpoints{Locality: label}
	seen := map[netip.Addr]bool{}
	for _, e := range of {
		ip, err := netip.ParseAddr(e.Address)
		if err != nil || seen[ip] || e.Health != discovery.Healthy {
			continue
		}
		seen[ip] = true
		out.Endpoints = append(out.Endpoints, envoy.Endpoint{Host: e.Address, Port: uint32(e.Port)})
	}
	return out
}
