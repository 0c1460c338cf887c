package workload

import (
	"fmt"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// ServiceEntry judges a ServiceEntry.
func ServiceEntry(j *verdict.Judge, object *config.Config) { (&judge{j}).serviceEntry(object) }

// serviceEntry judges the endpoints of a ServiceEntry, and who can call it.
func (j *judge) serviceEntry(object *config.Config) {
	spec := object.Spec.(*networking.ServiceEntry)
	for i, e := range spec.GetEndpoints() {
		at := verdict.At("spec.endpoints", i)
		j.offline(at+".address", e.GetAddress())
		j.sharedSockets(at+".address", e.GetAddress())
		j.sidecarAt(object, at, e.GetAddress(), e.GetLabels(), e.GetServiceAccount())
		j.unpinned(at, e.GetLabels(), e.GetServiceAccount(), spec.GetSubjectAltNames())
	}
	j.outside(object, spec)
	j.waits(object, spec)
	j.dynamicOfClients(object.Namespace, spec)
	j.uncaptured(object, spec)
}

// WorkloadEntry judges a WorkloadEntry.
func WorkloadEntry(j *verdict.Judge, object *config.Config) { (&judge{j}).workloadEntry(object) }

// workloadEntry judges the address of a WorkloadEntry, and whether its health is known.
func (j *judge) workloadEntry(object *config.Config) {
	spec := object.Spec.(*networking.WorkloadEntry)
	j.offline("spec.address", spec.GetAddress())
	j.sharedSockets("spec.address", spec.GetAddress())
	own := serviceentry.LabelsOf(&object.Meta, spec)
	j.sidecarAt(object, "spec", spec.GetAddress(), own, spec.GetServiceAccount())
	j.unpinned("spec", own, spec.GetServiceAccount(), nil)
	j.unreported(object, spec)
}

// offline warns if the sidecars at the address of an endpoint are all disconnected. Gateways at
// the address are ignored: they do not run beside an endpoint.
func (j *judge) offline(field, address string) {
	gone := ""
	for p := range j.Known(verdict.AddressRow, address).Values() {
		if discovery.ProxyType(p.Type) != discovery.Sidecar {
			continue
		}
		if p.Replica != "" {
			return
		}
		gone = p.Node
	}
	if gone == "" {
		return
	}
	j.Add(verdict.Verdict{
		Code: verdict.ProxyOffline, Field: field,
		Message: fmt.Sprintf("%s has a proxy, %s, that is connected to no server", address, gone),
		Remedy:  "start the proxy, or remove the endpoint; a proxy that is gone for a day is forgotten",
	})
}
