package routing

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// grpcClients warns of fields of routes that proxyless gRPC clients ignore. It does so if known
// clients see the VirtualService and may call a service of one of its hosts.
func (j *judge) grpcClients(vs *routing.VirtualService, routes []*networking.HTTPRoute) {
	var fields []string
	for i, http := range routes {
		fields = append(fields, verdict.NotForGRPC(http, verdict.At("spec.http", i))...)
	}
	fields = append(fields, verdict.SetFields(vs.Spec, "spec", "tcp", "tls")...)
	if len(fields) == 0 || !slices.Contains(vs.Gateways, mesh.MeshGateway) || !j.speaksGRPC(vs) {
		return
	}
	for p := range j.Known(verdict.ClientsRow, "").Values() {
		if !vs.ExportTo.VisibleTo(p.Namespace) {
			continue
		}
		for _, field := range fields {
			j.Add(verdict.NotTaken(field, p.Namespace))
		}
		return
	}
}

// speaksGRPC reports whether a service of one of a VirtualService's hosts speaks gRPC.
func (j *judge) speaksGRPC(vs *routing.VirtualService) bool {
	for _, h := range vs.Hosts {
		for s := range j.Services(h) {
			if verdict.SpeaksGRPC(s) {
				return true
			}
		}
	}
	return false
}
