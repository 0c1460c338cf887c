package workload

import (
	"fmt"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// outside says that clients do not encrypt by themselves to endpoints that take mutual TLS, because
// the service is outside the mesh. That is the default of location.
func (j *judge) outside(object *config.Config, spec *networking.ServiceEntry) {
	if spec.GetLocation() != networking.ServiceEntry_MESH_EXTERNAL {
		return
	}
	var takers verdict.Names
	for _, name := range spec.GetHosts() {
		j.Read(verdict.RulesRow, name)
		s := j.View(object.Namespace).Service(host.Name(name))
		if s == nil || s.Namespace != object.Namespace {
			continue
		}
		for _, e := range j.Endpoints(s) {
			if e.TLSMode == discovery.TLSModeIstio && !sayTLS(j.Mesh().RulesOf(s.Hostname), e) {
				takers.Add(fmt.Sprintf("%s:%d", e.Address, e.Port))
			}
		}
	}
	if takers.Count() > 0 {
		j.Add(verdict.Verdict{
			Code: verdict.OutsideMesh, Field: "spec.location",
			Message: fmt.Sprintf("is MESH_EXTERNAL, its default, and %s said to take mutual TLS: %s. Clients send them plaintext", counted(takers.Count(), "endpoint"), takers.First()),
			Remedy:  "set location: MESH_INTERNAL, or have a DestinationRule ask for TLS",
		})
	}
}
