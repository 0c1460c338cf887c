package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
)

// maxCrossings bounds how many hosts of one object an error names.
const maxCrossings = 5

// speaks says whether objects of a kind speak for hosts.
func (k *Keeper) speaks(kind config.GroupVersionKind) bool {
	s := k.o.Schemas.Kind(kind)
	return s != nil && claim.Speaks(s.Plural)
}

// checkHosts sets, for each operation, why the caller may not speak for the hosts of its
// object, unless another reason is there already. It notes in the objects of the others to
// which hosts of other namespaces the caller has the right.
func (k *Keeper) checkHosts(who Identity, ops []storage.Op, p *policy, out []error) {
	crossings, unknown := make([][]claim.Crossing, len(ops)), error(nil)
	if k.o.Crossings != nil {
		crossings, unknown = k.o.Crossings(ops)
	}
	for i, op := range ops {
		switch {
		case out[i] != nil || !k.speaks(op.Target().Kind):
			continue
		case unknown != nil:
			out[i] = unknown
			continue
		}
		if out[i] = k.checkRuleHosts(who, op, p); out[i] == nil {
			out[i] = k.checkCrossings(who, op, p, crossings[i])
		}
		if out[i] == nil && op.Config != nil {
			ops[i].Config = claim.WithRights(op.Config, k.rightsTo(who, op, p, crossings[i]))
		}
	}
}

// checkRuleHosts returns why the hosts of the rules that permit an operation keep the caller
// from it. It judges the stored object like the new one: whoever may not speak for a host may
// not take it from an object, either.
func (k *Keeper) checkRuleHosts(who Identity, op storage.Op, p *policy) error {
	if who.User == access.LocalUser {
		return nil
	}
	var claims []claim.Claim
	if op.Config != nil {
		object := *op.Config
		object.Domain = k.o.Domain
		claims = claim.Of(&object)
	}
	claims = append(claims, claim.Of(k.o.Snapshot().Stored(op.Target()))...)
	for _, want := range k.actionsOf(op) {
		var hosts []string
		var outside *claim.Claim
		for _, g := range p.grantsOf(who) {
			if !g.permits(want) {
				continue
			}
			at := slices.IndexFunc(claims, func(c claim.Claim) bool { return !g.speaksFor(c.Host) })
			if at < 0 {
				outside, hosts = nil, nil
				break
			}
			if hosts = append(hosts, g.Hosts...); outside == nil {
				outside = &claims[at]
			}
		}
		if outside != nil {
			return fmt.Errorf("%s: %s is none of the hosts for which user %q may %s: %s (portolan auth whoami)", outside.Field, outside.Host, who.User, want, strings.Join(hosts, ", "))
		}
	}
	return nil
}

// actionsOf returns what a caller must be allowed to do for an operation.
func (k *Keeper) actionsOf(op storage.Op) []action {
	verbs := []string{op.Verb.String()}
	if op.Verb == storage.Put || op.Verb == storage.Restore {
		verbs = []string{access.Create, access.Update}
	}
	key := op.Target()
	out := make([]action, len(verbs))
	for i, verb := range verbs {
		out[i] = action{verb: verb, kind: k.o.Schemas.Kind(key.Kind).Plural, namespace: key.Namespace, name: key.Name}
	}
	return out
}

// speaksFor says whether the hosts of a rule, if it has any, cover a host.
func (g Grant) speaksFor(h host.Name) bool { return len(g.Hosts) == 0 || claim.Covers(g.Hosts, h) }

// checkCrossings returns why the caller may not speak for hosts of other namespaces.
func (k *Keeper) checkCrossings(who Identity, op storage.Op, p *policy, crossings []claim.Crossing) error {
	var faults []string
	left := 0
	for _, c := range crossings {
		switch {
		case k.hasRight(who, op, p, claim.Right{Namespace: c.Owner.Namespace, Host: c.Owner.Host}):
		case len(faults) == maxCrossings:
			left++
		default:
			faults = append(faults, fmt.Sprintf("%s: %s is a host of namespace %s (%s)", c.Field, c.Owner.Host, c.Owner.Namespace, c.Owner))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	if left > 0 {
		faults = append(faults, fmt.Sprintf("and %d more", left))
	}
	kind := op.Target().Kind.Kind
	return fmt.Errorf("%s; this mesh asks who speaks for a host of another namespace (--require-host-consent): have a HostGrant in that namespace name %s, namespace %s and the host, or have user %q given a role with a rule for %s there or with the host in its hosts",
		strings.Join(faults, "; "), kind, op.Target().Namespace, who.User, k.Plural(kind))
}

// rightsTo returns the rights by which the caller may do what crosses: to the whole pattern, if
// an object names one and the caller has that right, else to each host.
func (k *Keeper) rightsTo(who Identity, op storage.Op, p *policy, crossings []claim.Crossing) []claim.Right {
	var out []claim.Right
	for _, c := range crossings {
		right := claim.Right{Namespace: c.Owner.Namespace, Host: c.Host}
		if !k.hasRight(who, op, p, right) {
			right.Host = c.Owner.Host
		}
		out = append(out, right)
	}
	return out
}

// hasRight says whether the caller has the right to a host of another namespace: rules that
// name the host, or rules for the kind in the namespace that owns it.
func (k *Keeper) hasRight(who Identity, op storage.Op, p *policy, to claim.Right) bool {
	grants := p.grantsOf(who)
	for _, want := range k.actionsOf(op) {
		there := want
		there.namespace, there.name = to.Namespace, ""
		if !slices.ContainsFunc(grants, func(g Grant) bool {
			named := len(g.Hosts) > 0 && g.permits(want)
			return (named || g.permits(there)) && g.speaksFor(to.Host)
		}) {
			return false
		}
	}
	return true
}
