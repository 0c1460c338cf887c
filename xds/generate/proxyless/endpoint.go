package proxyless

import (
	"iter"
	"net/netip"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/generate/endpoint"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Endpoints makes load assignments.
type Endpoints struct{ endpoint.Generator }

var (
	_ generate.Generator = Endpoints{}
	_ generate.Emptier   = Endpoints{}
)

// Affected implements generate.Generator.
func (Endpoints) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] { return cluster.Names(v, d) }

// Build implements generate.Generator.
func (Endpoints) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	o, ok := cluster.Find(v, name)
	if !ok {
		return nil, nil, nil
	}
	if _, ok := o.Transport(v); !ok {
		return upstream.LoadAssignment(name, nil), nil, nil
	}
	if o.Type(v.Shape()) != upstream.EDS {
		return nil, nil, nil
	}
	var localities []upstream.Endpoints
	if row := v.Endpoints(o.Service); row != nil {
		localities = distinct(o.Selection(v).Arrange(o.LocalityPreference(v), row.Endpoints))
	}
	return upstream.LoadAssignment(name, localities), nil, nil
}

// distinct returns the endpoints that gRPC accepts: those at IP addresses, each once. It
// also merges equal localities, since gRPC refuses an assignment that repeats an address
// or a locality.
// https://github.com/grpc/grpc-go/issues/5710
// https://github.com/grpc/grpc-go/pull/5303
func distinct(in []upstream.Endpoints) []upstream.Endpoints {
	type place struct {
		region, zone, subZone string
		priority              uint32
	}
	var out []upstream.Endpoints
	at := map[place]int{}
	seen := map[netip.AddrPort]bool{}
	for _, l := range in {
		locality := upstream.Locality(l.Locality)
		key := place{locality.GetRegion(), locality.GetZone(), locality.GetSubZone(), l.Priority}
		i, known := at[key]
		if !known {
			i = len(out)
			at[key] = i
			out = append(out, upstream.Endpoints{Locality: l.Locality, Priority: l.Priority, Weight: l.Weight})
		}
		for _, e := range l.Endpoints {
			ip, err := netip.ParseAddr(e.Host)
			if address := netip.AddrPortFrom(ip, uint16(e.Port)); err == nil && !seen[address] {
				seen[address] = true
				out[i].Endpoints = append(out[i].Endpoints, e)
			}
		}
	}
	return out
}
