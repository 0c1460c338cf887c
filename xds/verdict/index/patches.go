package index

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/security"
)

// patches has what servers say of the patches of an EnvoyFilter, by its path and in order. It is never
// modified.
type patches map[string][]patchOutcome

// patchOutcome is what servers say of a patch. It is comparable.
type patchOutcome struct {
	index int
	// failed says on which resources the patch failed, and why; empty if it matches nothing
	// anywhere, in the version of the EnvoyFilter.
	failed, version string
}

// failedPatch is a patch that failed for one reason, with the path of its EnvoyFilter.
type failedPatch struct {
	filter  string
	index   int
	message string
}

// failedOn has some of the resources that a patch failed on, and how many there are at least.
type failedOn struct {
	resources []string
	count     int
}

// followPatches derives patches from the reports of the servers. A patch matches nothing if all servers
// with proxies say so.
func followPatches(was patches, from, to verdict.Facts) patches {
	if from.Replicas == to.Replicas {
		return was
	}
	now, failed, idle, servers := patches{}, map[failedPatch]failedOn{}, map[status.IdlePatch]int{}, 0
	for r := range to.Replicas.Values() {
		if r.Proxies > 0 {
			servers++
			for _, p := range r.IdlePatches {
				idle[p]++
			}
		}
		for _, p := range r.FailedPatches {
			of := failedPatch{p.Filter, p.Index, p.Message}
			on := failed[of]
			on.resources, on.count = append(on.resources, p.Resources...), max(on.count, p.Count)
			failed[of] = on
		}
	}
	for p, n := range idle {
		if n == servers {
			now[p.Filter] = append(now[p.Filter], patchOutcome{index: p.Index, version: p.Version})
		}
	}
	for of, on := range failed {
		slices.Sort(on.resources)
		on.resources = slices.Compact(on.resources)
		now[of.filter] = append(now[of.filter], patchOutcome{index: of.index, failed: on.String() + ": " + of.message})
	}
	for _, all := range now {
		slices.SortFunc(all, func(a, b patchOutcome) int {
			return cmp.Or(cmp.Compare(a.index, b.index), strings.Compare(a.failed, b.failed), strings.Compare(a.version, b.version))
		})
	}
	return now
}

// String names the resources: "LDS a, LDS b and 3 others".
func (on failedOn) String() string {
	out := strings.Join(on.resources, ", ")
	switch more := on.count - len(on.resources); {
	case more == 1:
		out += " and 1 other"
	case more > 1:
		out += fmt.Sprintf(" and %d others", more)
	}
	return out
}

// addVerdicts adds the verdicts about the patches of an EnvoyFilter.
func (p patches) addVerdicts(j *verdict.Judge, object *config.Config) {
	for _, one := range p[object.Key().Path()] {
		field := verdict.At("spec.configPatches", one.index)
		switch {
		case one.failed != "":
			j.Add(verdict.Verdict{
				Code: verdict.PatchFailed, Field: field, Message: "cannot be applied to " + one.failed,
				Remedy: "mend the patch, or have it match other resources",
			})
		case one.version == object.ResourceVersion && security.SelectsConnected(j, object):
			j.Add(verdict.Verdict{
				Code: verdict.PatchIdle, Field: field, Message: "matches nothing in any connected proxy",
				Remedy: "compare match with the names that portolan proxy config shows",
			})
		}
	}
}

// stillPatched returns the present verdicts about the patches of an EnvoyFilter that is written anew as it
// is: what servers have built of it stays. Nobody has built another one yet.
func stillPatched(is *Index, written *config.Config) []verdict.Verdict {
	key := written.Key()
	was := is.world.Configs().Value(key.Path())
	if len(is.patches[key.Path()]) == 0 || was == nil || !config.SameSpec(was.Spec, written.Spec) {
		return nil
	}
	var out []verdict.Verdict
	for _, v := range is.Of(key) {
		if v.Code == verdict.PatchFailed || v.Code == verdict.PatchIdle {
			out = append(out, v)
		}
	}
	return out
}
