package workload

import (
	"fmt"
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// unservedPorts says which ports in a policy no workload takes connections at. A sidecar that
// captures traffic takes them at every port, and a gRPC server at those that it asks for. Without a
// selected workload nothing is known.
func (j *judge) unservedPorts(object *config.Config, spec *security.PeerAuthentication) {
	if len(spec.GetPortLevelMtls()) == 0 {
		return
	}
	served, some := map[uint32]bool{}, false
	for node, p := range j.Known(verdict.SidecarsRow, object.Namespace).All() {
		if !j.Selects(spec.GetSelector().GetMatchLabels(), pmap.Map[*status.Proxy]{}.Set(node, p)) {
			continue
		}
		if discovery.ProxyType(p.Type) != discovery.Sidecar || p.Interception != string(discovery.InterceptionNone) {
			return
		}
		some = true
		for _, address := range p.Addresses {
			for row := range j.Mesh().Instances(address).Values() { // Selects has recorded it
				for _, e := range row.Endpoints {
					served[uint32(e.Port)] = true
				}
			}
		}
	}
	if !some {
		return
	}
	for o := range j.Objects(schema.Sidecar, object.Namespace) {
		for _, in := range o.Spec.(*networking.Sidecar).GetIngress() {
			served[in.GetPort().GetNumber()] = true
		}
	}
	for _, port := range slices.Sorted(maps.Keys(spec.GetPortLevelMtls())) {
		if !served[port] {
			j.Add(verdict.Verdict{
				Code: verdict.PeersPortUnused, Field: fmt.Sprintf("spec.portLevelMtls[%d]", port),
				Message: "is a port of no workload that the policy selects: no endpoint and no ingress listener has it, and their sidecars capture no traffic",
				Remedy:  "name the port at which the workload is called (targetPort), not that of the service",
			})
		}
	}
}
