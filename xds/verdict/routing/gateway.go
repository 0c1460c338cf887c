package routing

import (
	"fmt"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/generate/transport"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// Gateway judges a Gateway.
func Gateway(j *verdict.Judge, object *config.Config) { (&judge{j}).gateway(object) }

// gateway judges whom a Gateway selects, and its servers together with those of other Gateways
// that the same proxy may run.
func (j *judge) gateway(object *config.Config) {
	spec := object.Spec.(*networking.Gateway)
	if routers := j.Known(verdict.RoutersRow, ""); !j.Selects(spec.GetSelector(), routers) {
		unused := verdict.Verdict{
			Code: verdict.GatewayUnused, Field: "spec.selector",
			Message: fmt.Sprintf("selects no gateway proxy: nobody listens on its ports until one has the labels %s", labels.Instance(spec.GetSelector())),
			Remedy:  "start a gateway with these labels, or mend the selector",
		}
		if routers.Len() == 0 {
			unused.Remedy = "start a gateway with these labels: no gateway is known yet"
		}
		for router := range routers.Values() {
			if router.Identity == "" && len(router.Labels) == 0 {
				unused.Remedy = fmt.Sprintf("start a gateway with these labels, or mend the selector. The gateway %s has no labels: if there are users, a gateway needs a certificate, or --xds-socket, for its labels to be believed", router.Node)
				break
			}
		}
		j.Add(unused)
	}
	g := j.Mesh().Gateway(object.Key().Path())
	losers := j.lostServers(object, g)
	for i, s := range g.Servers {
		switch lost := losers[s]; {
		case lost != nil:
			j.Add(serverConflict(object, i, lost))
		default:
			if s.RoutesTCP() || s.PassesTLS() {
				j.unrouted(object, i, s)
			}
			if s.Kind().TerminatesTLS() {
				j.uncertified(object, verdict.At("spec.servers", i)+".tls", s)
			}
		}
		j.warnUncovered(object, verdict.At("spec.servers", i), s)
	}
	j.targetPorts(object, g, losers)
}

// serverConflict returns the verdict that a server of a Gateway has no listener.
func serverConflict(object *config.Config, i int, lost *routing.Lost) verdict.Verdict {
	of, port := lost.To.Gateway, placeOf(lost.Server)
	v := verdict.Verdict{
		Code: verdict.ServerConflict, Field: verdict.At("spec.servers", i) + ".port", Other: of.Key(),
		Message: fmt.Sprintf("%s is of %s too, which is older and does not share it: this server has no listener", port, of.Key()),
		Remedy:  "use another port; only servers of HTTP share one, and those of TLS",
	}
	other := of.Key().String()
	if of.Config == object {
		v.Other, other = config.Key{}, "an earlier server"
		v.Message = fmt.Sprintf("%s is of an earlier server too, which does not share it: this one has no listener", port)
	}
	if lost.Name != "" {
		v.Field = verdict.At("spec.servers", i) + ".hosts"
		v.Message = fmt.Sprintf("%s at %s is a host of %s too, with tls.mode %s: this server has no listener, also for its other hosts",
			lost.Name, port, other, lost.To.Mode())
		v.Remedy = "take the host out of one of them, or give one another port or bind"
	}
	return v
}

// placeOf returns where a server listens, as text for users.
func placeOf(s *routing.Server) string {
	if names.IsUnix(s.Spec.GetBind()) {
		return s.Spec.GetBind()
	}
	return fmt.Sprintf("port %d", s.Port())
}

// uncertified warns if the proxies of a Gateway lack a secret that a server needs to terminate
// TLS. Proxies have the secrets of their own namespace; if no proxy is known, the Gateway's is
// assumed. It assumes that proxies have a certificate of the mesh. field is that of the settings, or
// the one that names the secret.
func (j *judge) uncertified(object *config.Config, field string, s *routing.Server) {
	o := transport.ServerOptions{}
	for _, namespace := range j.gatewayNamespaces(object) {
		view := j.ViewOf(mesh.Class{Namespace: namespace, Certified: true})
		for _, lack := range transport.ServerLacks(view, s.Spec.GetTls(), o) {
			at := field
			if s.Gateway.Derived == nil {
				at += "." + lack.Field
			}
			v := verdict.Verdict{
				Code: verdict.CertificateMissing, Field: at,
				Message: fmt.Sprintf("%s, %s: nobody answers for the hosts of this server there", lack, namespace),
				Remedy:  "name a secret of that namespace",
			}
			if lack.Secret != "" {
				v.Remedy = fmt.Sprintf("store it, as with portolan secret tls %s -n %s --cert FILE --key FILE, and --ca FILE to verify clients: the server opens by itself%s", lack.Secret, namespace, j.OrReadIt(object, namespace))
				why, never := j.UnreadSecrets(namespace)
				if never {
					v.Message = verdict.UnknownSecret(lack.Secret, namespace, "Gateways that have it keep it, others do not answer for the hosts of this server")
				}
				if why != "" {
					v.Remedy = fmt.Sprintf("have the secrets of that namespace read (%s), or %s", why, v.Remedy)
				}
			}
			j.Add(v)
		}
	}
}

// unrouted warns if no tcp or tls route is for a server that passes connections on.
func (j *judge) unrouted(object *config.Config, i int, s *routing.Server) {
	kind, effect := "tcp", "no proxy listens there"
	if s.PassesTLS() {
		for range j.View(object.Namespace).GatewayNames(s) {
			return
		}
		kind = "tls"
	} else if vs, _ := j.View(object.Namespace).GatewayTCPRoute(s); vs != nil {
		return
	}
	if s.Kind().IsTLS() {
		effect = "proxies close it"
	}
	j.Add(verdict.Verdict{
		Code: verdict.ServerUnrouted, Field: verdict.At("spec.servers", i),
		Message: fmt.Sprintf("passes on what comes to %s, and no %s route is for it: %s", placeOf(s), kind, effect),
		Remedy:  fmt.Sprintf("add a VirtualService that names the Gateway and a host of the server, with a %s route, or mend the gateways, hosts and ports of one", kind),
	})
}

// lostServers returns the servers that get no listener because of Gateways that come before
// this one. It assumes that one proxy runs all of them.
func (j *judge) lostServers(object *config.Config, g *routing.Gateway) map[*routing.Server]*routing.Lost {
	out, seen := map[*routing.Server]*routing.Lost{}, map[uint32]bool{}
	for _, s := range g.Servers {
		port := s.Spec.GetPort().GetNumber()
		if seen[port] {
			continue
		}
		seen[port] = true
		for _, lost := range routing.MergeGateways(append(j.earlierGateways(object, port), g), discovery.UnspecifiedIP, nil).Lost {
			if s := lost.Server; s.Gateway == g && s.Spec.GetPort().GetNumber() == port {
				out[s] = &lost
			}
		}
	}
	return out
}

// earlierGateways returns the Gateways with a server at a port that come before object, and
// that one proxy may run together with it.
func (j *judge) earlierGateways(object *config.Config, port uint32) (out []*routing.Gateway) {
	looked := 0
	for o := range j.GatewaysAt(port) {
		if looked++; looked > verdict.MaxLooked {
			break
		}
		if config.Compare(o, object) < 0 && runTogether(object, o) {
			out = append(out, j.Mesh().Gateway(o.Key().Path()))
		}
	}
	return out
}
