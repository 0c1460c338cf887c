package routing

import (
	"fmt"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// misdirected warns of hosts of which no Gateway of a VirtualService gets a request, because
// clients over TLS go to a server with a more specific host.
func (j *judge) misdirected(vs *routing.VirtualService) {
	var owners []*routing.Server // in the order of the hosts
	byOwner := map[*routing.Server]*hosts{}
	for i, h := range vs.Hosts {
		var owner *routing.Server
		served := false
		for _, name := range vs.Gateways {
			served = served || name == mesh.MeshGateway
			key := gatewayKey(name)
			if name == mesh.MeshGateway || j.Object(key) == nil {
				continue
			}
			g := j.Mesh().Gateway(key.Path())
			for _, s := range g.Servers {
				if !s.Serves(vs, h) {
					continue
				}
				by := j.ownerOf(g, s, h)
				served = served || by == nil
				owner = by
			}
		}
		if served || owner == nil {
			continue
		}
		if byOwner[owner] == nil {
			owners, byOwner[owner] = append(owners, owner), &hosts{}
		}
		byOwner[owner].add(i, h)
	}
	for _, owner := range owners {
		lost := byOwner[owner]
		j.Add(verdict.Verdict{
			Code: verdict.HostOutsideGateway, Field: lost.field(), Other: owner.Gateway.Key(),
			Message: fmt.Sprintf("requests for %s go to a server of %s on %s, whose hosts name %s more exactly: these routes get none", &lost.names, owner.Gateway.Key(), placeOf(owner), lost.them()),
			Remedy:  "name that Gateway in gateways too, or give the routes to a host of their own",
		})
	}
}

// ownerOf returns the TLS server to which clients that ask for a name go instead of s, nil if
// they go to s. Only servers that one proxy runs together count.
func (j *judge) ownerOf(of *routing.Gateway, s *routing.Server, h host.Name) *routing.Server {
	narrower := slices.Collect(s.Narrower(h))
	if s.Kind() != routing.HTTPS || len(narrower) == 0 {
		return nil
	}
	looked := 0
	for o := range j.GatewaysAt(uint32(s.Port())) {
		if looked++; looked > verdict.MaxLooked {
			break
		}
		if !runTogether(of.Config, o) {
			continue
		}
		for _, other := range j.Mesh().Gateway(o.Key().Path()).Servers {
			if other.Kind().IsTLS() && other.Kind() != routing.AutoPassthrough && other.Port() == s.Port() && other.Spec.GetBind() == s.Spec.GetBind() &&
				slices.ContainsFunc(narrower, func(n string) bool { return slices.Contains(other.Names, n) }) {
				return other
			}
		}
	}
	return nil
}

// runTogether says whether one proxy may run two Gateways: one selects whom the other selects.
func runTogether(a, b *config.Config) bool {
	one := labels.Instance(a.Spec.(*networking.Gateway).GetSelector())
	other := labels.Instance(b.Spec.(*networking.Gateway).GetSelector())
	return one.SubsetOf(other) || other.SubsetOf(one)
}
