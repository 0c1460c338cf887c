package index

import (
	"fmt"

	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// addCrossings adds a verdict for each host of other namespaces for which an object speaks
// without their consent. A pattern gets one verdict, for the first such host. A pattern of a
// Gateway gets none: it opens a port for the routes of others, and takes no host from anybody.
func addCrossings(j *verdict.Judge, object *config.Config) {
	for _, one := range claim.Of(object) {
		if object.Kind == schema.Gateway.Kind && one.Host.IsWildcard() {
			continue
		}
		j.Read(verdict.HostsRow, string(one.Host))
		looked := 0
		for c := range j.Mesh().Crossings(object, one) {
			j.Read(verdict.ObjectsRow, config.NamespacePath(schema.HostGrant, c.Owner.Namespace))
			if j.Mesh().Consents(c.Owner.Namespace, claim.From{Kind: object.Kind, Namespace: object.Namespace}, c.Owner.Host) == nil {
				j.Add(crossing(object, c))
				break
			}
			if looked++; looked == verdict.MaxLooked {
				break
			}
		}
	}
}

func crossing(object *config.Config, c claim.Crossing) verdict.Verdict {
	return verdict.Verdict{
		Code: verdict.HostOfOthers, Field: c.Field, Other: c.Owner.Object,
		Message: fmt.Sprintf("%s is a host of namespace %s (%s), which has not consented that a %s of namespace %s speaks for it", c.Owner.Host, c.Owner.Namespace, c.Owner, object.Kind, object.Namespace),
		Remedy:  fmt.Sprintf("have a HostGrant in namespace %s name it, or leave the host to that namespace", c.Owner.Namespace),
	}
}
