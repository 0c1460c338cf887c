package destination

import (
	"fmt"
	"iter"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// emptySubsets warns of subsets that select no endpoint of the services.
func (j *judge) emptySubsets(subsets []*networking.Subset, services []*mesh.ServiceRow) {
	var selectors []labels.Instance
	for _, subset := range subsets {
		selectors = append(selectors, subset.GetLabels())
	}
	endpoints := func(yield func(labels.Instance) bool) {
		for _, s := range services {
			for _, e := range j.Endpoints(s) {
				if !yield(e.Labels) {
					return
				}
			}
		}
	}
	for _, i := range unselecting(selectors, endpoints) {
		j.Add(verdict.Verdict{
			Code: verdict.SubsetEmpty, Field: verdict.At("spec.subsets", i),
			Message: fmt.Sprintf("%q selects no endpoint of the service, since none has the labels %s: requests to it are answered with 503", subsets[i].GetName(), selectors[i]),
			Remedy:  "mend the labels, or give them to endpoints",
		})
	}
}

type label struct{ name, value string }

// unselecting returns the places of the selectors that select no endpoint, in order. Without
// endpoints there is nothing to select, and it returns none. It takes one pass, and looks at no
// further endpoint once all selectors have one. Each selector waits under its rarest label, so a
// label that all of them have costs nothing.
func unselecting(selectors []labels.Instance, endpoints iter.Seq[labels.Instance]) []int {
	uses := map[label]int{}
	for _, selector := range selectors {
		for name, value := range selector {
			uses[label{name, value}]++
		}
	}
	waiting, left := map[string]map[string][]int{}, 0 // by the name and the value of a label
	for i, selector := range selectors {
		if len(selector) == 0 {
			continue // it selects all
		}
		var rarest label
		fewest := len(selectors) + 1
		for name, value := range selector {
			if at := (label{name, value}); uses[at] < fewest {
				rarest, fewest = at, uses[at]
			}
		}
		if waiting[rarest.name] == nil {
			waiting[rarest.name] = map[string][]int{}
		}
		waiting[rarest.name][rarest.value] = append(waiting[rarest.name][rarest.value], i)
		left++
	}
	if left == 0 {
		return nil
	}
	some := false
	for of := range endpoints {
		some = true
		for name, byValue := range waiting {
			value, has := of[name]
			if !has || len(byValue[value]) == 0 {
				continue
			}
			before := len(byValue[value])
			byValue[value] = slices.DeleteFunc(byValue[value], func(i int) bool { return selectors[i].SubsetOf(of) })
			if left -= before - len(byValue[value]); left == 0 {
				return nil
			}
		}
	}
	if !some {
		return nil
	}
	var out []int
	for _, byValue := range waiting {
		for _, rest := range byValue {
			out = append(out, rest...)
		}
	}
	slices.Sort(out)
	return out
}
