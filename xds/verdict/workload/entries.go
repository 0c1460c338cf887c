package workload

import (
	"fmt"
	"net"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
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
	j.headlessEntry(object, spec)
}

// WorkloadEntry judges a WorkloadEntry.
func WorkloadEntry(j *verdict.Judge, object *config.Config) { (&judge{j}).workloadEntry(object) }

// workloadEntry judges the address of a WorkloadEntry, and whether its health is known.
func (j *judge) workloadEntry(object *config.Config) {
	spec := object.Spec.(*networking.WorkloadEntry)
	j.offline("spec.address", spec.GetAddress())
	j.sharedSockets("spec.address", spec.GetAddress())
	j.endpointTwice(object, spec.GetAddress())
	own := serviceentry.LabelsOf(&object.Meta, spec)
	j.sidecarAt(object, "spec", spec.GetAddress(), own, spec.GetServiceAccount())
	j.unpinned("spec", own, spec.GetServiceAccount(), nil)
	j.unreported(object, spec)
	j.unreadHealth(object)
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

// endpointTwice warns if another WorkloadEntry gives a service the same address and port. Clients
// know an endpoint by these alone.
func (j *judge) endpointTwice(object *config.Config, address string) {
	if address == "" {
		return
	}
	j.ReadMesh(mesh.InstancesKey(address))
	for key, row := range j.Mesh().Instances(address).All() {
		for _, e := range row.Endpoints {
			if workloadOf(e) != object.Key() {
				continue
			}
			for _, o := range row.Endpoints {
				other := workloadOf(o)
				if other == object.Key() || o.Port != e.Port || o.ServicePort != e.ServicePort || j.Object(other) == nil {
					continue // an endpoint of another kind of object has a name, too, and no WorkloadEntry
				}
				beside := ""
				if o.Network != e.Network {
					beside = fmt.Sprintf(", in network %q, and this one in %q", o.Network, e.Network)
				}
				hostname, _ := rows.SplitKey(key)
				j.Add(verdict.Verdict{
					Code: verdict.EndpointTwice, Field: "spec.address", Other: other,
					Message: fmt.Sprintf("%s is an endpoint of %s by %s too%s: clients have it once, with what one of the two says", net.JoinHostPort(address, strconv.Itoa(e.Port)), hostname, other, beside),
					Remedy:  "delete the one whose machine is gone; give machines that clients reach by one address other ports, or services of their own",
				})
				return
			}
		}
	}
}

// workloadOf returns the key of the WorkloadEntry that an endpoint comes from, if it comes from one.
func workloadOf(e *discovery.Endpoint) config.Key {
	return config.Key{Kind: schema.WorkloadEntry, Namespace: e.Namespace, Name: e.WorkloadName}
}
