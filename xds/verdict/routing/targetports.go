package routing

import (
	"fmt"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// targetPorts judges servers on the known gateways whose service leads clients to another port
// than the server's. Servers of several ports may then meet on one.
func (j *judge) targetPorts(object *config.Config, g *routing.Gateway, losers map[*routing.Server]*routing.Lost) {
	looked, told := 0, map[*routing.Server]bool{}
	for p := range j.Known(verdict.RoutersRow, "").Values() {
		if looked++; looked > verdict.MaxLooked {
			break
		}
		proxy := verdict.ProxyOf(p)
		for _, address := range proxy.IPAddresses {
			j.ReadMesh(mesh.InstancesKey(address))
		}
		for _, key := range j.Mesh().ServiceKeysAt(proxy) {
			j.ReadMesh(key)
		}
		ports := j.Mesh().TargetPorts(proxy)
		if len(ports) == 0 || !j.Mesh().Selects(labels.Instance(g.Spec.GetSelector()), proxy) {
			continue
		}
		for i, s := range g.Servers {
			if losers[s] != nil || told[s] {
				continue
			}
			if lost := j.portConflict(object, g, s, proxy, ports); lost != nil {
				told[s] = true
				j.Add(portsMeet(object, i, lost, p, ports))
			}
		}
	}
}

// portConflict returns why a server has no listener on a proxy because of servers of other ports,
// nil if it has one. It considers the Gateways that come before it and that the proxy runs.
func (j *judge) portConflict(object *config.Config, g *routing.Gateway, s *routing.Server, proxy *discovery.Proxy, ports routing.TargetPorts) *routing.Lost {
	others := ports.SameTarget(s.Port())
	if len(others) == 0 {
		return nil
	}
	all := []*routing.Gateway{g}
	for _, port := range append(others, s.Port()) {
		looked := 0
		for o := range j.GatewaysAt(uint32(port)) {
			if looked++; looked > verdict.MaxLooked {
				break
			}
			other := j.Mesh().Gateway(o.Key().Path())
			selector := labels.Instance(o.Spec.(*networking.Gateway).GetSelector())
			if config.Compare(o, object) < 0 && !slices.Contains(all, other) && j.Mesh().Selects(selector, proxy) {
				all = append(all, other)
			}
		}
	}
	for _, lost := range routing.MergeGateways(all, discovery.UnspecifiedIP, ports).Lost {
		if lost.Server == s && lost.To.Port() != s.Port() {
			return &lost
		}
	}
	return nil
}

// portsMeet returns the verdict that a server of a Gateway has no listener on a proxy.
func portsMeet(object *config.Config, i int, lost *routing.Lost, p *status.Proxy, ports routing.TargetPorts) verdict.Verdict {
	of, to := lost.To.Gateway, lost.To.Port()
	v := verdict.Verdict{
		Code: verdict.ServerConflict, Field: verdict.At("spec.servers", i) + ".port", Other: of.Key(),
		Remedy: "have the service lead one of the ports to another targetPort, or give both servers one port that they can share",
	}
	whose := "of " + of.Key().String()
	if of.Config == object {
		v.Other, whose = config.Key{}, "of an earlier server"
	}
	v.Message = fmt.Sprintf("%s and port %d %s are port %d of %s, as its service says, and the servers do not share it: this one has no listener there",
		placeOf(lost.Server), to, whose, ports.Of(to), p.Node)
	if lost.Name != "" {
		v.Field = verdict.At("spec.servers", i) + ".hosts"
		v.Message = fmt.Sprintf("%s and port %d %s are port %d of %s, as its service says, and both have the host %s: this server has no listener there",
			placeOf(lost.Server), to, whose, ports.Of(to), p.Node, lost.Name)
	}
	return v
}
