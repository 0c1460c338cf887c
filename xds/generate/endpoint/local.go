package endpoint

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/workload"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Local makes the load assignment of Envoy's local cluster. It shows a proxy how many of
// its peers send from which zone. It has the healthy endpoints of the workload's first
// service in the workload's region, each address once. It belongs to the workload alone.
// Only proxies with SelfDiscovery have it.
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
	var localities []upstream.Endpoints
	for _, label := range slices.Sorted(maps.Keys(byLabel)) {
		localities = append(localities, local(label, byLabel[label]))
	}
	return upstream.LoadAssignment(name, localities), nil, nil
}

// localOf is the key for the encoding of a locality in local clusters.
type localOf struct{}

// assembleLocal makes the assignment of a service with many endpoints. All proxies of one
// service share the encoding of each locality.
func assembleLocal(v *mesh.View, name string, localities []*rows.Locality) (proto.Message, error) {
	var parts []upstream.EncodedLocality
	for _, l := range localities {
		if !v.InRegion(l.Label) {
			continue
		}
		made := l.Derived(localOf{}, func() any {
			var out encoded
			out.locality, out.err = upstream.EncodeLocality(local(l.Label, l.Endpoints))
			return out
		}).(encoded)
		if made.err != nil {
			return nil, made.err
		}
		parts = append(parts, made.locality)
	}
	return assembled(name, parts), nil
}

// local returns the endpoints of one locality in a local cluster. They have equal weights
// and get no traffic.
func local(label string, of []*discovery.Endpoint) upstream.Endpoints {
	out := upstream.Endpoints{Locality: label}
	seen := map[netip.Addr]bool{}
	for _, e := range of {
		ip, err := netip.ParseAddr(e.Address)
		if err != nil || seen[ip] || e.Health != discovery.Healthy {
			continue
		}
		seen[ip] = true
		out.Endpoints = append(out.Endpoints, upstream.Endpoint{Host: e.Address, Port: uint32(e.Port)})
	}
	return out
}
