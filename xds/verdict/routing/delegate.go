package routing

import (
	"fmt"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// delegates judges the VirtualService that a route delegates to, if any.
func (j *judge) delegates(vs *routing.VirtualService, http *networking.HTTPRoute, index int) {
	key, delegates := routing.DelegateOf(vs.Config, http)
	if !delegates {
		return
	}
	field, there := verdict.At("spec.http", index)+".delegate", j.Object(key)
	d := j.Mesh().VirtualService(key.Path())
	switch {
	case there == nil:
		j.Add(verdict.Verdict{
			Code: verdict.DelegateUnknown, Field: field, Message: fmt.Sprintf("%s is not there: the route is left out", key),
			Remedy: "add the VirtualService, without hosts, or mend the name and the namespace",
		})
	case !d.IsDelegate():
		j.Add(verdict.Verdict{
			Code: verdict.NoDelegate, Field: field, Other: key, Message: fmt.Sprintf("%s has hosts of its own, and so is no delegate: the route is left out", key),
			Remedy: "move the routes into a VirtualService without hosts, and delegate to that one from both",
		})
	case !d.Admits(vs.Config.Namespace):
		j.Add(verdict.Verdict{
			Code: verdict.DelegateNotVisible, Field: field, Other: key, Message: fmt.Sprintf("%s is not exported to namespace %s: the route is left out", key, vs.Config.Namespace),
			Remedy: "add the namespace to its exportTo",
		})
	}
}

// behindDelegates warns of the first route that gets no requests, because a delegate's route
// before it takes all.
func (j *judge) behindDelegates(vs *routing.VirtualService) {
	first, behind := unreachable(vs)
	next := slices.IndexFunc(behind, func(o routing.Origin) bool { return o.Root != first.Root })
	if next < 0 || !first.Of.IsDelegate() {
		return
	}
	key := first.Of.Config.Key()
	j.Add(verdict.Verdict{
		Code: verdict.RouteUnreachable, Field: verdict.At("spec.http", behind[next].Root), Other: key,
		Message: fmt.Sprintf("and what follows are never used: %s of %s takes every request", verdict.At("spec.http", first.Block), key),
		Remedy:  "move the route that takes every request to the end",
	})
}

// unreachable returns the first route of a VirtualService that takes every request, and the
// routes after it; none if there is no such route.
func unreachable(vs *routing.VirtualService) (first routing.Origin, behind []routing.Origin) {
	all := vs.Spec.GetHttp()
	i := slices.IndexFunc(all, schema.MatchesAll)
	if i < 0 {
		return first, nil
	}
	for k := i + 1; k < len(all); k++ {
		behind = append(behind, vs.Origin(k))
	}
	return vs.Origin(i), behind
}

// delegate judges a VirtualService without hosts as part of each VirtualService that delegates
// to it.
func (j *judge) delegate(d *routing.VirtualService, written *networking.VirtualService) {
	path := d.Config.Key().Path()
	j.Read(verdict.DelegatorsRow, path)
	some, told := false, map[string]bool{} // told is by field: only the first root concerned is reported
	tell := func(v verdict.Verdict) {
		if !told[v.Field] {
			told[v.Field] = true
			j.Add(v)
		}
	}
	for root := range j.Mesh().Delegators(path) {
		some = true
		j.Object(root.Config.Key())
		for _, path := range root.DelegatePaths() {
			j.Read(verdict.ObjectRow, path)
		}
		if !slices.Contains(root.Delegates, d) {
			continue // the delegate does not admit this root
		}
		for i := range root.Spec.GetHttp() {
			if o := root.Origin(i); o.Of == d {
				j.httpRoute(root, d.Written.GetHttp()[o.Block], written.GetHttp()[o.Block], verdict.At("spec.http", o.Block))
			}
		}
		for _, c := range root.Conflicts {
			if c.Of == d {
				tell(conflict(root, c))
			}
		}
		j.behindOwn(root, d)
		warnOtherGateways(root, d, tell)
		j.grpcClients(root, d.Written.GetHttp())
	}
	if !some {
		j.Add(verdict.Verdict{
			Code: verdict.DelegateUnused, Field: "spec.hosts", Message: "is missing, which makes this a delegate, and no VirtualService delegates to it: it has no effect",
			Remedy: "name it as the delegate of a route of a VirtualService that has hosts",
		})
	}
}

// conflict returns the verdict on a delegate's route that a root leaves out.
func conflict(root *routing.VirtualService, c routing.Conflict) verdict.Verdict {
	key := root.Config.Key()
	return verdict.Verdict{
		Code: verdict.DelegateConflict, Field: verdict.At(verdict.At("spec.http", c.Block)+".match", c.Match) + "." + c.Field, Other: key,
		Message: fmt.Sprintf("goes with no match of %s of %s: the route is left out there", verdict.At("spec.http", c.Root), key),
		Remedy:  "have it match what the route that delegates to it matches, or less: an exact value or a longer prefix, and no regex beside another match",
	}
}

// behindOwn warns of a delegate's route that gets no requests, because an earlier one of the
// same delegate takes all.
func (j *judge) behindOwn(root, d *routing.VirtualService) {
	first, behind := unreachable(root)
	if len(behind) == 0 || first.Of != d || behind[0].Root != first.Root {
		return
	}
	j.Add(verdict.Verdict{
		Code: verdict.RouteUnreachable, Field: verdict.At("spec.http", behind[0].Block),
		Message: fmt.Sprintf("and what follows are never used: %s takes every request", verdict.At("spec.http", first.Block)),
		Remedy:  "move the route that takes every request to the end",
	})
}

// warnOtherGateways warns of a delegate's matches that name only gateways that a root does not
// have.
func warnOtherGateways(root, d *routing.VirtualService, tell func(verdict.Verdict)) {
	for i := range root.Spec.GetHttp() {
		o := root.Origin(i)
		if o.Of != d {
			continue
		}
		for k, m := range d.Written.GetHttp()[o.Block].GetMatch() {
			has := func(name string) bool { return slices.Contains(root.Gateways, name) }
			if len(m.GetGateways()) == 0 || slices.ContainsFunc(m.GetGateways(), has) {
				continue
			}
			key := root.Config.Key()
			tell(verdict.Verdict{
				Code: verdict.DelegateElsewhere, Field: verdict.At(verdict.At("spec.http", o.Block)+".match", k) + ".gateways", Other: key,
				Message: fmt.Sprintf("names no gateway of %s, which delegates to it: the match has no effect there", key),
				Remedy:  "add the gateway to that VirtualService, or leave it out here",
			})
		}
	}
}
