package index

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// maxMachines bounds the proxies that the verdicts of one group name.
const maxMachines = 10

// registrations has what went wrong with registrations, by the path of the group. It is never
// modified.
type registrations map[string][]status.Registration

// followRegistrations derives registrations from the reports of the servers.
func followRegistrations(was registrations, from, to verdict.Facts) registrations {
	if from.Replicas == to.Replicas {
		return was
	}
	now := registrations{}
	for r := range to.Replicas.Values() {
		for _, one := range r.Registrations {
			now[one.Group] = append(now[one.Group], one)
		}
	}
	for path, all := range now {
		slices.SortFunc(all, compareRegistrations)
		now[path] = slices.Compact(all)
	}
	return now
}

func compareRegistrations(a, b status.Registration) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Reason, b.Reason))
}

// addVerdicts adds the verdicts about the registrations of a group.
func (r registrations) addVerdicts(j *verdict.Judge, object *config.Config) {
	all := r[object.Key().Path()]
	for _, one := range all[:min(len(all), maxMachines)] {
		v := verdict.Verdict{
			Code: verdict.RegistrationRefused, Message: fmt.Sprintf("the proxy %s is not registered: %s", one.Node, one.Reason),
			Remedy: "once that is mended, the proxy is registered without connecting anew, unless it needs another certificate",
		}
		if one.Registered {
			v = verdict.Verdict{
				Code: verdict.RegistrationPartly, Message: fmt.Sprintf("the proxy %s is registered %s", one.Node, one.Reason),
				Remedy: "a change of the group reaches the entry at once, one of the node when its proxy connects again",
			}
		}
		j.Add(v)
	}
}
