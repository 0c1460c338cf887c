package workload

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// dynamicOfClients warns that gRPC clients cannot call an entry with resolution DYNAMIC_DNS, if
// it has a port for gRPC and known clients see it.
func (j *judge) dynamicOfClients(namespace string, spec *networking.ServiceEntry) {
	if spec.GetResolution() != networking.ServiceEntry_DYNAMIC_DNS {
		return
	}
	for _, h := range spec.GetHosts() {
		s := j.ServiceOf(host.Name(strings.ToLower(h)), namespace)
		if s == nil || s.Namespace != namespace || !verdict.IsDynamic(s) || !verdict.SpeaksGRPC(s) {
			continue
		}
		for p := range j.Known(verdict.ClientsRow, "").Values() {
			if s.Service().Attributes.ExportTo.VisibleTo(p.Namespace) {
				j.Add(verdict.NotTaken("spec.resolution", p.Namespace))
				return
			}
		}
	}
}

// sidecarOfClients warns of fields that gRPC clients ignore, if the Sidecar is for known
// clients in its namespace.
func (j *judge) sidecarOfClients(object *config.Config, spec *networking.Sidecar) {
	fields := verdict.SidecarNotForGRPC(spec)
	if len(fields) == 0 {
		return
	}
	for p := range j.Known(verdict.ClientsRow, "").Values() {
		if p.Namespace != object.Namespace || !j.Selects(spec.GetWorkloadSelector().GetLabels(), pmap.Map[*status.Proxy]{}.Set(p.Node, p)) {
			continue
		}
		for _, field := range fields {
			j.Add(verdict.NotTaken(field, p.Namespace))
		}
		return
	}
}
