package index

import (
	"fmt"
	"iter"
	"maps"
	"net"
	"slices"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	selecting "github.com/portolan-mesh/portolan/xds/mesh/policy"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// taking says how an endpoint is called and takes connections.
type taking struct {
	encrypted bool // no client with a certificate sends plaintext
	closed    bool // it refuses plaintext
}

// loosened are the endpoints that a change opens to plaintext.
type loosened struct {
	from, to verdict.Facts
	seen     map[string]bool // by service: those that were looked at
	sent     verdict.Names   // clients begin to send them plaintext
	taken    verdict.Names   // they begin to take it
	// nameless are the AuthorizationPolicies for them that name identities, which clients then do not prove.
	nameless verdict.Names
}

// addLoosened adds to the advice of operations what they open to plaintext. It is no verdict on an
// object: who looks at the mesh later sees a mode, and not what it was before. Each endpoint is named
// once, by the first operation of the kind that opens it.
func addLoosened(out [][]finding.Advice, from, to verdict.Facts, ops []storage.Op) {
	delta, seen := mesh.Diff(from.Mesh, to.Mesh), map[string]bool{}
	for _, cause := range []struct {
		kinds    []config.GroupVersionKind
		services iter.Seq[*mesh.ServiceRow]
	}{
		{[]config.GroupVersionKind{schema.PeerAuthentication}, underPolicies(to, ops)},
		{[]config.GroupVersionKind{schema.MeshConfig}, underAutomatic(from, to)},
		{[]config.GroupVersionKind{schema.DestinationRule}, underRules(to, delta)},
		{[]config.GroupVersionKind{schema.ServiceEntry, schema.WorkloadEntry}, withEndpoints(to, delta)},
	} {
		i := slices.IndexFunc(ops, func(op storage.Op) bool { return slices.Contains(cause.kinds, op.Target().Kind) })
		if i < 0 {
			continue
		}
		l := loosened{from: from, to: to, seen: seen}
		for s := range cause.services {
			l.look(s)
		}
		out[i] = append(out[i], l.advice()...)
	}
}

// underPolicies iterates over the services of the namespaces whose PeerAuthentications operations
// change.
func underPolicies(facts verdict.Facts, ops []storage.Op) iter.Seq[*mesh.ServiceRow] {
	concerned := map[string]bool{}
	for _, op := range ops {
		if key := op.Target(); key.Kind == schema.PeerAuthentication {
			concerned[key.Namespace] = true
		}
	}
	all := concerned[facts.Mesh.MeshConfig().GetRootNamespace()]
	return func(yield func(*mesh.ServiceRow) bool) {
		for row := range facts.Mesh.HostRows() {
			for _, s := range row.Services {
				if (all || concerned[s.Namespace]) && !yield(s) {
					return
				}
			}
		}
	}
}

// underAutomatic iterates over all services if clients no longer encrypt by themselves.
func underAutomatic(from, to verdict.Facts) iter.Seq[*mesh.ServiceRow] {
	return func(yield func(*mesh.ServiceRow) bool) {
		if !from.Mesh.MeshConfig().GetEnableAutoMtls().GetValue() || to.Mesh.MeshConfig().GetEnableAutoMtls().GetValue() {
			return
		}
		for row := range to.Mesh.HostRows() {
			for _, s := range row.Services {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// underRules iterates over the services whose DestinationRules differ.
func underRules(facts verdict.Facts, delta mesh.Delta) iter.Seq[*mesh.ServiceRow] {
	return func(yield func(*mesh.ServiceRow) bool) {
		for c := range delta.Rules() {
			for row := range facts.Mesh.HostsMatching(host.Name(c.Key)) {
				for _, s := range row.Services {
					if !yield(s) {
						return
					}
				}
			}
		}
	}
}

// withEndpoints iterates over the services whose endpoints differ.
func withEndpoints(facts verdict.Facts, delta mesh.Delta) iter.Seq[*mesh.ServiceRow] {
	return func(yield func(*mesh.ServiceRow) bool) {
		for c := range delta.Endpoints() {
			hostname, namespace := rows.SplitKey(c.Key)
			if s := serviceAt(facts, hostname, namespace); s != nil && !yield(s) {
				return
			}
		}
	}
}

func serviceAt(facts verdict.Facts, hostname host.Name, namespace string) *mesh.ServiceRow {
	row := facts.Mesh.Host(hostname)
	if row == nil {
		return nil
	}
	for _, s := range row.Services {
		if s.Namespace == namespace {
			return s
		}
	}
	return nil
}

// look compares the endpoints of a service, once.
func (l *loosened) look(s *mesh.ServiceRow) {
	key := rows.Key(s.Hostname, s.Namespace)
	was := serviceAt(l.from, s.Hostname, s.Namespace)
	if l.seen[key] || was == nil {
		return
	}
	l.seen[key] = true
	before, after := takings(l.from, was), takings(l.to, s)
	for _, e := range l.to.Mesh.EndpointsOf(s).ByShard() {
		if place := placeOf(s, e); before[place].encrypted && !after[place].encrypted {
			l.addNameless(s.Namespace, e)
		}
	}
	for _, place := range slices.Sorted(maps.Keys(after)) {
		is, known := before[place]
		if !known {
			continue
		}
		if is.encrypted && !after[place].encrypted {
			l.sent.Add(place)
		}
		if is.closed && !after[place].closed {
			l.taken.Add(place)
		}
	}
}

// addNameless adds the policies that are enforced for the workload of an endpoint and name identities.
func (l *loosened) addNameless(namespace string, e *discovery.Endpoint) {
	root := l.to.Mesh.MeshConfig().GetRootNamespace()
	for _, of := range slices.Compact([]string{root, namespace}) {
		for object := range l.to.Mesh.Inputs().Configs.List(schema.AuthorizationPolicy, of) {
			asks := len(policy.IdentityFields(object.Spec.(*security.AuthorizationPolicy))) > 0
			if asks && !policy.DryRun(object) && selecting.NewPolicy(object).Selects(selecting.Workload{Namespace: namespace, Labels: e.Labels}, root) {
				l.nameless.Add(object.Key().String())
			}
		}
	}
}

// placeOf names an endpoint of a service.
func placeOf(s *mesh.ServiceRow, e *discovery.Endpoint) string {
	return fmt.Sprintf("%s of %s", net.JoinHostPort(e.Address, strconv.Itoa(e.Port)), s.Hostname)
}

// takings returns how the endpoints of a service are called and take connections, when all follow
// the policies.
func takings(facts verdict.Facts, s *mesh.ServiceRow) map[string]taking {
	service, out := s.Service(), map[string]taking{}
	automatic := facts.Mesh.MeshConfig().GetEnableAutoMtls().GetValue() && !service.MeshExternal && service.Resolution != discovery.DynamicDNS
	rules, scope := facts.Mesh.RulesOf(s.Hostname), facts.Mesh.PeersOf(s.Namespace)
	for _, e := range facts.Mesh.EndpointsOf(s).ByShard() {
		mode := scope.Decide(e.Labels, e.Port).Mode
		place := placeOf(s, e)
		takes := e.TLSMode == discovery.TLSModeIstio
		out[place] = taking{encrypted: encrypts(rules, e, automatic && takes && mode != peer.Disable), closed: takes && mode == peer.Strict}
	}
	return out
}

// encrypts says whether all clients that follow rules encrypt what they send to an endpoint.
// automatic says it of those that follow none.
func encrypts(rules []*destination.Rule, e *discovery.Endpoint, automatic bool) bool {
	for _, r := range rules {
		subsets := []string{""}
		for _, s := range r.Subsets {
			if labels.Instance(s.GetLabels()).SubsetOf(e.Labels) {
				subsets = append(subsets, s.GetName())
			}
		}
		for _, subset := range subsets {
			switch tls := r.PolicyFor(subset, e.ServicePort).GetTls(); {
			case tls == nil:
			case tls.GetMode() == networking.ClientTLSSettings_DISABLE:
				return false
			case r.Selector == nil:
				automatic = true
			}
		}
	}
	return automatic
}

// advice returns warnings of what was found, none for nothing.
func (l *loosened) advice() (out []finding.Advice) {
	for _, found := range []struct {
		message string
		places  *verdict.Names
		remedy  string
	}{
		{"clients send plaintext where they encrypted", &l.sent, "keep what asks for mutual TLS, unless you mean it"},
		{"plaintext is taken where it was refused", &l.taken, "keep what asks for mutual TLS, unless you mean it"},
		{"policies name identities, which clients then do not prove there: principals do not match, notPrincipals do", &l.nameless, "change these policies first, or keep what asks for mutual TLS"},
	} {
		if found.places.Count() == 0 {
			continue
		}
		v := verdict.Verdict{
			Code: verdict.PlaintextBegins, Message: found.message + ": " + found.places.String(),
			Remedy: found.remedy,
		}
		out = append(out, finding.Advice{Text: v.String(), Severity: v.Code.Severity().String()})
	}
	return out
}
