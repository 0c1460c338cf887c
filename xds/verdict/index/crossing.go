package index

import (
	"fmt"

	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// addCrossings adds a verdict for each host of other namespaces for which an object speaks
// without their consent, and whose writer had no right to it. A pattern gets one verdict, for
// the first such host.
func addCrossings(j *verdict.Judge, object *config.Config) {
	from := claim.From{Kind: object.Kind, Namespace: object.Namespace}
	for _, one := range claim.Of(object) {
		if one.Open {
			continue
		}
		j.Read(verdict.HostsRow, string(one.Host))
		looked := 0
		for c := range j.Mesh().Crossings(object, one) {
			j.Read(verdict.ObjectsRow, config.NamespacePath(schema.HostGrant, c.Owner.Namespace))
			if !claim.Entitled(object, one.Host, c.Owner) && !j.Mesh().Consents(c.Owner, from) {
				j.Add(crossing(object, c, j.Mesh().MeshConfig().HostConsent))
				break
			}
			if looked++; looked == verdict.MaxLooked {
				break
			}
		}
	}
}

// crossing returns the verdict on an object that speaks for a host of another namespace, in a
// mesh that asks for its consent or does not.
func crossing(object *config.Config, c claim.Crossing, asks bool) verdict.Verdict {
	v := verdict.Verdict{
		Code: verdict.HostOfOthers, Field: c.Field, Other: c.Owner.Object,
		Message: fmt.Sprintf("%s is a host of namespace %s (%s), which has not consented that a %s of namespace %s speaks for it", c.Owner.Host, c.Owner.Namespace, c.Owner, object.Kind, object.Namespace),
		Remedy:  fmt.Sprintf("have a HostGrant in namespace %s name it, or leave the host to that namespace", c.Owner.Namespace),
	}
	if asks {
		v.Code = verdict.HostRefused
		v.Message += ": it has no effect for the host"
		v.Remedy = fmt.Sprintf("have a HostGrant in namespace %s name it, or have somebody with the right to the host apply it", c.Owner.Namespace)
	}
	return v
}
