package security

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// ports tells of ports in matches that none of the proxies has, as far as all are known.
func (j *pluginJudge) ports() {
	proxies := slices.DeleteFunc(slices.Clone(j.selected), func(p chosen) bool { return p.Type == discovery.Proxyless })
	if len(proxies) == 0 || len(j.selected) == verdict.MaxLooked {
		return
	}
	for i, m := range j.spec.GetMatch() {
		for k, s := range m.GetPorts() {
			port := int(s.GetNumber())
			has := func(p chosen) bool {
				return m.GetMode() != typev1beta1.WorkloadMode_CLIENT && j.takesAt(p, port) || m.GetMode() != typev1beta1.WorkloadMode_SERVER && j.callsAt(p, port)
			}
			if slices.ContainsFunc(proxies, has) {
				continue
			}
			j.add(verdict.PluginUnmatched, verdict.At(verdict.At("spec.match", i)+".ports", k)+".number",
				"write the port of a service for what proxies send, that of the workload (targetPort) for what comes in, that of a Gateway's server for gateways",
				"is %d, which is a port of none of the proxies: the entry matches nothing", port)
		}
	}
}

// takesAt says whether a sidecar takes connections to its workload at a port.
func (j *pluginJudge) takesAt(p chosen, port int) bool {
	if p.Type != discovery.Sidecar {
		return false
	}
	if slices.ContainsFunc(j.SeenBy(p.Proxy).Ingress(), func(l *networking.IstioIngressListener) bool { return int(l.GetPort().GetNumber()) == port }) {
		return true
	}
	for _, address := range p.IPAddresses {
		for row := range j.Mesh().Instances(address).Values() { // workload has recorded it
			if slices.ContainsFunc(row.Endpoints, func(e *discovery.Endpoint) bool { return e.Port == port }) {
				return true
			}
		}
	}
	return false
}

// callsAt says whether a sidecar sees a service at a port, or a gateway has a server there.
func (j *pluginJudge) callsAt(p chosen, port int) bool {
	if p.Type == discovery.Router {
		for g := range j.GatewaysAt(uint32(port)) {
			if labels.Instance(g.Spec.(*networking.Gateway).GetSelector()).SubsetOf(p.workload.Labels) {
				return true
			}
		}
		return false
	}
	v := j.SeenBy(p.Proxy)
	if v.IsHTTPProxyAt(port) {
		return true
	}
	for _, l := range v.Egress() {
		if l.Port == port || v.PortUsed(l, service.PortHTTP, port) || v.PortUsed(l, service.PortTCP, port) {
			return true
		}
	}
	return false
}
