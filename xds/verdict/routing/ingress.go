package routing

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache/kube/ingress"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// Ingress judges an Ingress. What is derived from it has no verdicts of its own.
func Ingress(j *verdict.Judge, object *config.Config) { (&judge{j}).ingress(object) }

func (j *judge) ingress(object *config.Config) {
	j.ReadClass(object)
	why, serves := j.Mesh().ServesIngress(object)
	if !serves && object.Source != "" {
		return // a cluster may have other controllers
	}
	if !serves {
		j.Add(verdict.Verdict{
			Code: verdict.IngressUnserved, Field: "spec.ingressClassName",
			Message: fmt.Sprintf("makes the Ingress one that no gateway serves: %s", why),
			Remedy:  "name an IngressClass with spec.controller " + schema.IngressController,
		})
		return
	}
	g := j.Mesh().Gateway(ingress.GatewayKey(object, j.root()).Path())
	if g == nil || g.Derived == nil {
		return // somebody wrote a Gateway of that name
	}
	if !j.Selects(g.Spec.GetSelector(), j.Known(verdict.RoutersRow, "")) {
		j.Add(verdict.Verdict{
			Code: verdict.GatewayUnused, Field: "spec",
			Message: fmt.Sprintf("is served by gateway proxies with the labels %s, and there is none: nobody listens on its ports", labels.Instance(g.Spec.GetSelector())),
			Remedy:  "start a gateway with these labels, or mend ingressSelector of the mesh configuration",
		})
	}
	j.ServedAt(j.ingressAddresses(object, g))
	losers := j.lostServers(g.Config, g)
	for i, s := range g.Servers {
		k, isTLS := ingress.TLSOf(object, i)
		if lost := losers[s]; lost != nil {
			j.Add(ingressConflict(object, k, isTLS, lost))
			continue
		}
		if isTLS {
			j.uncertified(g.Config, verdict.At("spec.tls", k)+".secretName", s)
			j.warnUncovered(g.Config, verdict.At("spec.tls", k), s)
		}
	}
	spec := object.Spec.(*networkingv1.IngressSpec)
	if spec.DefaultBackend != nil {
		j.ingressBackend(object, spec.DefaultBackend.Service, "spec.defaultBackend.service")
	}
	for i, rule := range spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for k, path := range rule.HTTP.Paths {
			j.ingressBackend(object, path.Backend.Service, fmt.Sprintf("spec.rules[%d].http.paths[%d].backend.service", i, k))
		}
	}
	for _, h := range ingress.Hosts(object) {
		for _, vs := range j.View(j.root()).VirtualServices(g.Name(), host.Name(h)) {
			if vs.Derived != nil {
				j.ingressShadowed(object, vs)
			}
		}
	}
}

// ingressAddresses returns where an Ingress is served: at the addresses and host names that lead to the
// ingressService of the mesh from outside its cluster, else at the addresses of the connected gateways,
// of each the first that it states. (Istio: runningAddresses, which knows the addresses of nodes instead of gateways.)
func (j *judge) ingressAddresses(object *config.Config, g *routing.Gateway) (out []string) {
	if service := j.Mesh().MeshConfig().GetIngressService(); service != "" {
		for row := range j.Services(host.Name(service + "." + j.root() + ".svc." + object.Domain)) {
			for _, s := range row.Services {
				for _, outside := range s.Attributes.ClusterExternalAddresses {
					out = append(out, outside...)
				}
			}
		}
	}
	if len(out) > 0 {
		return out
	}
	for p := range j.Known(verdict.RoutersRow, "").Values() {
		proxy := verdict.ProxyOf(p)
		if p.Replica == "" || len(proxy.IPAddresses) == 0 {
			continue
		}
		for _, address := range proxy.IPAddresses {
			j.ReadMesh(mesh.InstancesKey(address))
		}
		if j.Mesh().Selects(g.Spec.GetSelector(), proxy) {
			out = append(out, proxy.IPAddresses[0])
		}
	}
	return out
}

// ingressConflict returns the verdict that a server of an Ingress has no listener: that of entry k of
// tls, or else that of HTTP.
func ingressConflict(object *config.Config, k int, isTLS bool, lost *routing.Lost) verdict.Verdict {
	v := verdict.Verdict{Code: verdict.ServerConflict, Field: "spec.rules", Other: lost.To.Gateway.Key(), Remedy: "use another port for that one"}
	at := placeOf(lost.Server)
	v.Message = fmt.Sprintf("%s is of %s too, which comes first and does not share it: no rule has a route there", at, v.Other)
	if isTLS {
		v.Field, v.Remedy = verdict.At("spec.tls", k)+".hosts", "take the host out of one of them: HTTPS has one certificate for a host"
		v.Message = fmt.Sprintf("%s at %s is a host of %s too, which comes first: this entry has no server, also for its other hosts", lost.Name, at, v.Other)
	}
	if v.Other == object.Key() {
		v.Other = config.Key{}
		v.Message = fmt.Sprintf("%s at %s is a host of an earlier entry too: this one has no server, also for its other hosts", lost.Name, at)
	}
	return v
}

// root is the namespace of the Gateways that are derived from Ingresses.
func (j *judge) root() string { return j.Mesh().MeshConfig().GetRootNamespace() }

// ingressBackend judges the service of a path.
func (j *judge) ingressBackend(object *config.Config, of *networkingv1.IngressServiceBackend, field string) {
	if of == nil {
		return
	}
	h := host.Name(ingress.ServiceHost(object, of.Name))
	s := j.ServiceOf(h, j.root())
	aliasOf, alias := j.AliasOf(h, j.root())
	switch {
	case alias:
		j.Add(verdict.Verdict{
			Code: verdict.HostUnknown, Field: field + ".name",
			Message: fmt.Sprintf("%q stands for %s, an alias of %s and no service: %s", of.Name, h, aliasOf, fails),
			Remedy:  "name the service that it stands for",
		})
	case s == nil && j.Mesh().Host(h) == nil:
		v := verdict.Verdict{
			Code: verdict.HostUnknown, Field: field + ".name",
			Message: fmt.Sprintf("%q stands for %s, which is of no service: %s", of.Name, h, fails),
			Remedy:  "add a ServiceEntry with the host, or mend the name",
		}
		if of.Port.Name != "" {
			v.Message = fmt.Sprintf("%q stands for %s, which is of no service that could say which port %q is: the path has no route", of.Name, h, of.Port.Name)
		}
		j.Add(v)
	case s == nil:
		j.Add(verdict.Verdict{
			Code: verdict.HostNotVisible, Field: field + ".name",
			Message: fmt.Sprintf("%q stands for %s, a service that is not exported to the gateways in namespace %s: %s", of.Name, h, j.root(), fails),
			Remedy:  "add the namespace to exportTo of the service",
		})
	case of.Port.Name == "":
		j.PortAndSubset(s, &networking.Destination{Port: &networking.PortSelector{Number: uint32(of.Port.Number)}}, j.root(), field, fails)
	default:
		if _, found := j.Mesh().NamedPort(string(h), of.Port.Name); !found {
			j.Add(verdict.Verdict{
				Code: verdict.PortUnknown, Field: field + ".port.name",
				Message: fmt.Sprintf("%q is the name of no port of %s: the path has no route", of.Port.Name, h),
				Remedy:  "name one of its ports, or give its number",
			})
		}
	}
}

// ingressShadowed warns of paths of an Ingress whose requests all take a route that comes first. The
// default backend is for what is left, so it may get nothing for a host, but not for all.
func (j *judge) ingressShadowed(object *config.Config, vs *routing.VirtualService) {
	http, own := vs.Spec.GetHttp(), object.Key()
	for i, place := range vs.Derived.Routes {
		if place.Ingress != own || place.Field == ingress.DefaultBackend && vs.Hosts[0] != "*" {
			continue
		}
		for k := range i {
			if !coversPath(http[k], http[i]) {
				continue
			}
			first := vs.Derived.Routes[k]
			v := verdict.Verdict{Code: verdict.RouteUnreachable, Field: place.Field, Message: fmt.Sprintf("gets no request for %s: %s takes them", vs.Hosts[0], first.Field)}
			if first.Ingress != own {
				v.Other = first.Ingress
				v.Message = fmt.Sprintf("gets no request for %s: %s of %s takes them", vs.Hosts[0], first.Field, first.Ingress)
			}
			v.Remedy = "take one of them out, or tell them apart by their paths"
			j.Add(v)
			break
		}
	}
}

// coversPath says whether a route takes every request of another one of the same host.
func coversPath(first, other *networking.HTTPRoute) bool {
	if schema.MatchesAll(first) {
		return true
	}
	return len(other.GetMatch()) > 0 && proto.Equal(first.GetMatch()[0].GetUri(), other.GetMatch()[0].GetUri())
}
