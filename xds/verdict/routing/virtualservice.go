package routing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache/kube/ingress"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// VirtualService judges a VirtualService.
func VirtualService(j *verdict.Judge, object *config.Config) { (&judge{j}).virtualService(object) }

// virtualService judges the gateways, hosts and routes of a VirtualService.
func (j *judge) virtualService(object *config.Config) {
	vs := j.Mesh().VirtualService(object.Key().Path())
	if vs == nil {
		return
	}
	written := object.Spec.(*networking.VirtualService)
	for i, name := range vs.Gateways {
		if name == mesh.MeshGateway {
			j.sidecarHosts(vs, written)
		} else {
			j.gatewayHosts(vs, written, i, name)
		}
	}
	if vs.IsDelegate() {
		j.delegate(vs, written)
		return
	}
	for i, http := range vs.Written.GetHttp() {
		j.delegates(vs, http, i)
		j.httpRoute(vs, http, written.GetHttp()[i], verdict.At("spec.http", i))
	}
	j.behindDelegates(vs)
	j.behindOthers(vs)
	j.matches(vs, written)
	j.streams(vs, written)
	j.gatewayRoutes(vs)
	j.misdirected(vs)
	j.grpcClients(vs, vs.Written.GetHttp())
}

// httpRoute judges the destinations of a route of a VirtualService or of its delegate. path is
// that of the route.
func (j *judge) httpRoute(vs *routing.VirtualService, http, written *networking.HTTPRoute, path string) {
	weights := 0
	for k, d := range http.GetRoute() {
		weights += int(d.GetWeight())
		field := verdict.At(path+".route", k) + ".destination"
		j.destination(vs, d.GetDestination(), written.GetRoute()[k].GetDestination().GetHost(), field, fails)
		j.unresolved(vs, http, d.GetDestination(), field)
	}
	j.mirrors(vs, http, written, path)
	if len(http.GetRoute()) > 1 && weights == 0 {
		j.Add(verdict.Verdict{
			Code: verdict.NeverRouted, Field: path + ".route", Message: "has no destination with a weight",
			Remedy: "give one a weight above 0",
		})
	}
}

// sidecarHosts judges the hosts of a VirtualService for sidecars.
func (j *judge) sidecarHosts(vs *routing.VirtualService, written *networking.VirtualService) {
	namespace := proxyNamespace(vs, mesh.MeshGateway)
	for i, h := range vs.Hosts {
		if all := j.View(namespace).VirtualServices(mesh.MeshGateway, h); len(all) > 0 && all[0] != vs && slices.Contains(all, vs) {
			j.Add(verdict.Verdict{
				Code: verdict.HostShadowed, Field: verdict.At("spec.hosts", i), Other: all[0].Key(),
				Message: fmt.Sprintf("%q is a host of %s too, which comes first: sidecars use that one alone for the host", h, all[0].Key()),
				Remedy:  "put the routes of both into one VirtualService",
			})
		}
		if of, alias := j.AliasOf(h, namespace); alias {
			j.HostAliased(verdict.At("spec.hosts", i), written.GetHosts()[i], h, of)
			continue
		}
		some := false
		for range j.Services(h) {
			some = true
			break
		}
		if !some {
			j.Add(verdict.Verdict{
				Code: verdict.HostWithoutService, Field: verdict.At("spec.hosts", i),
				Message: fmt.Sprintf("%s is of no service: no sidecar has a route for it", verdict.Named(written.GetHosts()[i], h)),
				Remedy:  "add a ServiceEntry with the host, or mend the name",
			})
		}
	}
}

// gatewayHosts judges the reference to a Gateway, and warns of hosts that it does not serve.
func (j *judge) gatewayHosts(vs *routing.VirtualService, written *networking.VirtualService, index int, name string) {
	key := gatewayKey(name)
	if of, ok := j.ingressBehind(key); ok {
		j.Add(verdict.Verdict{
			Code: verdict.GatewayUnknown, Field: verdict.At("spec.gateways", index), Other: of,
			Message: fmt.Sprintf("%q is no Gateway, but the name that gateways have for what they serve of %s: no proxy has these routes for it", written.GetGateways()[index], of),
			Remedy:  "add the paths to the Ingress, or write a Gateway with the hosts and name that one",
		})
		return
	}
	if j.Object(key) == nil {
		j.Add(verdict.Verdict{
			Code: verdict.GatewayUnknown, Field: verdict.At("spec.gateways", index),
			Message: fmt.Sprintf("%q stands for %s, which is not there: no proxy has these routes for it", written.GetGateways()[index], key),
			Remedy:  "add the Gateway, or mend the name (namespace/name)",
		})
		return
	}
	servers := j.Mesh().Gateway(key.Path()).Servers
	var outside hosts
	for i, h := range vs.Hosts {
		if !slices.ContainsFunc(servers, func(s *routing.Server) bool { return s.Serves(vs, h) }) {
			outside.add(i, h)
		}
	}
	if len(outside.at) == 0 {
		return
	}
	j.Add(verdict.Verdict{
		Code: verdict.HostOutsideGateway, Field: outside.field(), Other: key,
		Message: fmt.Sprintf("%s that %s serves for namespace %s: the gateway has no route for %s", outside.say("is no host", "are no hosts"), key, vs.Config.Namespace, outside.them()),
		Remedy:  fmt.Sprintf("add %s to the hosts of a server of the Gateway: %s", outside.them(), hostsOf(servers)),
	})
}

// hosts are hosts of a VirtualService of which one thing is to be said.
type hosts struct {
	at    []int // in spec.hosts
	names verdict.Names
}

func (h *hosts) add(at int, name host.Name) {
	h.at = append(h.at, at)
	h.names.Add(strconv.Quote(string(name)))
}

// field returns the field of the only host, or the one of all.
func (h *hosts) field() string {
	if len(h.at) == 1 {
		return verdict.At("spec.hosts", h.at[0])
	}
	return "spec.hosts"
}

// say names the hosts, with what is said of one or of several.
func (h *hosts) say(one, several string) string {
	if len(h.at) == 1 {
		return h.names.String() + " " + one
	}
	return h.names.String() + " " + several
}

// them stands for the hosts in a sentence that has named them.
func (h *hosts) them() string {
	if len(h.at) == 1 {
		return "it"
	}
	return "them"
}

// ingressBehind returns the Ingress from which the Gateway of a key is derived; false if users wrote
// it, or it is not there.
func (j *judge) ingressBehind(key config.Key) (config.Key, bool) {
	of, ok := ingress.OfGateway(key, j.root())
	return of, ok && j.Object(key) == nil && j.Object(of) != nil
}

// gatewayKey returns the key of a Gateway that VirtualServices call namespace/name.
func gatewayKey(name string) config.Key {
	namespace, short, _ := strings.Cut(name, "/")
	return config.Key{Kind: schema.Gateway, Namespace: namespace, Name: short}
}

// behindOthers warns of the hosts whose requests never take a route at a Gateway. A Gateway
// joins the routes of all VirtualServices of a host, the oldest first, and an older one has a
// route that takes every request.
func (j *judge) behindOthers(vs *routing.VirtualService) {
	if len(vs.Spec.GetHttp()) == 0 {
		return
	}
	for i, h := range vs.Hosts {
		if slices.Contains(vs.Refused, h) {
			continue
		}
		for _, gateway := range vs.Gateways {
			other, r := j.takesAllBefore(vs, gateway, h)
			if other == nil {
				continue
			}
			j.Add(verdict.Verdict{
				Code: verdict.RouteUnreachable, Field: verdict.At("spec.hosts", i), Other: other.Key(),
				Message: fmt.Sprintf("%q has routes of %s too, which come first on %s, and %s takes every request", h, other.Key(), gateway, verdict.At("spec.http", r)),
				Remedy:  "put the routes of both into one VirtualService, the one that takes every request last",
			})
			break // one report covers the other gateways
		}
	}
}

// takesAllBefore returns a VirtualService that precedes vs for a host on a Gateway, and the
// index of its route that takes every request; nil for none. Of the mesh gateway, sidecarHosts
// reports who comes first.
func (j *judge) takesAllBefore(vs *routing.VirtualService, gateway string, h host.Name) (*routing.VirtualService, int) {
	if gateway == mesh.MeshGateway {
		return nil, 0
	}
	if _, ok := j.ingressBehind(gatewayKey(gateway)); ok {
		return nil, 0
	}
	all := j.View(proxyNamespace(vs, gateway)).VirtualServices(gateway, h)
	for _, other := range all[:max(0, slices.Index(all, vs))] {
		if first := slices.IndexFunc(other.Spec.GetHttp(), schema.MatchesAll); first >= 0 {
			return other, other.Origin(first).Root
		}
	}
	return nil, 0
}

// hostsOf returns the first hosts of some servers as text for users.
func hostsOf(servers []*routing.Server) string {
	const most = 5
	var out []string
	for _, s := range servers {
		out = append(out, s.Spec.GetHosts()...)
	}
	if len(out) > most {
		out = append(out[:most], "...")
	}
	return "it serves " + strings.Join(out, ", ")
}

// The effects of a missing destination.
const (
	fails      = "requests that take the route are answered with 503"
	copiesLost = "the copies of requests are lost"
	closed     = "connections that take the route are closed"
)

// mirrors judges the destinations of mirrored requests.
func (j *judge) mirrors(vs *routing.VirtualService, http, written *networking.HTTPRoute, at string) {
	if len(http.GetRoute()) == 0 && http.GetDelegate() == nil {
		return
	}
	if d := http.GetMirror(); d != nil {
		j.destination(vs, d, written.GetMirror().GetHost(), at+".mirror", copiesLost)
	}
	for i, m := range http.GetMirrors() {
		field := fmt.Sprintf("%s.mirrors[%d].destination", at, i)
		j.destination(vs, m.GetDestination(), written.GetMirrors()[i].GetDestination().GetHost(), field, copiesLost)
	}
}

// destination judges the destination of a route, from the namespaces of all proxies that have
// the route. effect is what happens if it is missing.
func (j *judge) destination(vs *routing.VirtualService, d *networking.Destination, written, field, effect string) {
	h := host.Name(d.GetHost())
	for _, gateway := range vs.Gateways {
		namespace := proxyNamespace(vs, gateway)
		s := j.ServiceOf(h, namespace)
		of, alias := j.AliasOf(h, namespace)
		switch {
		case alias:
			j.Add(verdict.Verdict{
				Code: verdict.HostUnknown, Field: field + ".host",
				Message: fmt.Sprintf("%s is an alias of %s, and no service: %s", verdict.Named(written, h), of, effect),
				Remedy:  "name the service that it stands for",
			})
		case s == nil && j.Mesh().Host(h) == nil:
			j.Add(verdict.Verdict{
				Code: verdict.HostUnknown, Field: field + ".host",
				Message: fmt.Sprintf("%s is of no service: %s", verdict.Named(written, h), effect),
				Remedy:  j.remedyFor(h, namespace),
			})
		case s == nil:
			j.Add(verdict.Verdict{
				Code: verdict.HostNotVisible, Field: field + ".host",
				Message: fmt.Sprintf("%s is of a service that is not exported to namespace %s: %s", verdict.Named(written, h), namespace, effect),
				Remedy:  "add the namespace to exportTo of the service",
			})
		default:
			j.PortAndSubset(s, d, namespace, field, effect)
			continue
		}
		return // one report covers the other namespaces
	}
}

// remedyFor returns what to do about a destination without a service. If a wildcard service
// covers the host, it can be the destination.
func (j *judge) remedyFor(h host.Name, namespace string) string {
	for pattern := range h.Covers() {
		if pattern != h && j.ServiceOf(pattern, namespace) != nil {
			return fmt.Sprintf("%s covers it: name that as the host, or add a ServiceEntry for this one", pattern)
		}
	}
	return "add a ServiceEntry with the host, or mend the name"
}

// proxyNamespace returns the namespace of the proxies that have a VirtualService's routes because
// of one of its gateways. For a Gateway it is the Gateway's. For sidecars it is that of the
// VirtualService, or the first that it is exported to.
func proxyNamespace(vs *routing.VirtualService, gateway string) string {
	if gateway != mesh.MeshGateway {
		namespace, _, _ := strings.Cut(gateway, "/")
		return namespace
	}
	own := vs.Config.Namespace
	if vs.ExportTo.VisibleTo(own) {
		return own
	}
	return vs.ExportTo[0]
}
