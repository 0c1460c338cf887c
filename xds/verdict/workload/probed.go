package workload

import (
	"cmp"
	"fmt"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// unreported warns of an entry that names a probe and awaits a first report of its health.
func (j *judge) unreported(object *config.Config, spec *networking.WorkloadEntry) {
	_, probed := object.Annotations[health.ProbeAnnotation]
	_, withdrawn := health.Withdrawn(object.Annotations)
	if !probed || withdrawn || !health.Checked(object.Annotations) || j.HealthOf(object) != nil {
		return
	}
	account := cmp.Or(spec.GetServiceAccount(), schema.DefaultServiceAccount)
	why, remedy := "no proxy is known at "+spec.GetAddress(), fmt.Sprintf("join the machine by portolan machine invite -n %s --service-account %s, and start its agent", object.Namespace, account)
	connected := false
	for p := range j.Known(verdict.AddressRow, spec.GetAddress()).Values() {
		switch name := nameOf(p); {
		case p.Replica == "" && !connected:
			why, remedy = fmt.Sprintf("its proxy, %s, is connected to no server", name), "start the agent of the machine; portolan-agent doctor says what it lacks"
		case p.Replica == "":
		case p.Namespace != object.Namespace:
			connected, why = true, fmt.Sprintf("the proxy at its address, %s, is of namespace %s", name, p.Namespace)
			remedy = fmt.Sprintf("apply the entry in that namespace, or join the machine again by portolan machine invite -n %s --service-account %s", object.Namespace, account)
		case !isOf(p, object.Namespace, account):
			connected, why = true, fmt.Sprintf("its proxy, %s, has proved to be %s, and the entry is for the service account %s", name, cmp.Or(p.Identity, "nobody"), account)
			remedy = fmt.Sprintf("set spec.serviceAccount of the entry, or join the machine again by portolan machine invite -n %s --service-account %s", object.Namespace, account)
		default:
			j.addUnreported(fmt.Sprintf("its proxy, %s, is connected and has said nothing of it", name),
				"see portolan-agent status on the machine; a proxy that portolan-agent does not supply runs no probe, and spec.network must be the network of the machine")
			return
		}
	}
	j.addUnreported(why, remedy)
}

func (j *judge) addUnreported(why, remedy string) {
	j.Add(verdict.Verdict{
		Code: verdict.ProbeUnreported, Field: "metadata.annotations[" + health.ProbeAnnotation + "]",
		Message: "nobody has reported the health of the workload: " + why, Remedy: remedy,
	})
}

// unreadHealth warns of an entry whose source says of its health what nobody can read.
func (j *judge) unreadHealth(object *config.Config) {
	if odd := j.OddHealthOf(object); odd != "" {
		j.Add(verdict.Verdict{
			Code: verdict.HealthUnread, Field: "status.conditions",
			Message: fmt.Sprintf("the condition %s is %q, so its health is not known", health.ConditionType, odd), Remedy: health.OddRemedy,
		})
	}
}

// isOf says whether a proxy has proved a service account of a namespace.
func isOf(p *status.Proxy, namespace, account string) bool {
	who, err := identity.Parse(p.Identity)
	return err == nil && who.Namespace == namespace && who.ServiceAccount == account
}
