package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/xds/generate/cluster"
)

// preference says which localities of a cluster the proxy prefers, and why; empty if
// localities make no difference. It clears their weights if the proxy does not use them.
func (e *explainer) preference(name string, localities []Locality) string {
	o, ok := cluster.Find(e.view(), name)
	byWeight := ok && o.SpreadsByWeight(e.view())
	for i := range localities {
		if !byWeight {
			localities[i].Weight = 0
		}
	}
	if !ok || o.LocalityPreference(e.view()) == nil {
		return ""
	}
	who := "nobody says where the proxy runs"
	if at := e.push.PlaceOf(e.proxy).Locality; at != "" {
		who = "the proxy runs in " + at
	}
	if len(localities) == 0 {
		return who
	}
	if !slices.ContainsFunc(localities, func(l Locality) bool { return l.Locality != "" }) {
		return who + ", and no endpoint says where it does: all count alike"
	}
	return who + ": " + ordered(localities, byWeight)
}

// ordered says in which order a proxy uses localities. With byWeight it adds their shares.
func ordered(all []Locality, byWeight bool) string {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Locality) int { return int(a.Priority) - int(b.Priority) })
	var steps []string
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(l Locality) bool { return l.Priority != all[0].Priority })
		if n < 0 {
			n = len(all)
		}
		steps = append(steps, listLocalities(all[:n], byWeight))
		all = all[n:]
	}
	out := strings.Join(steps, ", then ")
	if len(steps) > 1 {
		out = "first " + out + ", as too few endpoints of the ones before are healthy"
	}
	return out
}

// listLocalities lists the localities of one priority.
func listLocalities(all []Locality, byWeight bool) string {
	var sum uint64
	for _, l := range all {
		sum += uint64(l.Weight)
	}
	names := make([]string, len(all))
	for i, l := range all {
		if names[i] = l.Locality; names[i] == "" {
			names[i] = "where nobody says"
		}
		if byWeight && len(all) > 1 && sum > 0 {
			names[i] += fmt.Sprintf(" (%.3g %%)", 100*float64(l.Weight)/float64(sum))
		}
	}
	return strings.Join(names, " and ")
}
