package security

import (
	"fmt"
	"slices"
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/envoyfilter"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	selecting "github.com/portolan-mesh/portolan/xds/mesh/policy"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// AuthorizationPolicy judges an AuthorizationPolicy.
func AuthorizationPolicy(j *verdict.Judge, object *config.Config) {
	p := &policyJudge{selection: selectionOf(j, object), spec: object.Spec.(*security.AuthorizationPolicy)}
	p.findPorts()
	p.unused()
	p.shut()
	p.shadowed()
	p.ports()
	p.paths()
	p.principals()
	p.servicePorts()
	p.hosts()
	p.addresses()
	p.provider()
	p.tokens()
	p.weakened()
}

// policyJudge judges one policy.
type policyJudge struct {
	selection
	spec *security.AuthorizationPolicy
	// plaintext, connections and greeting are ports of selected workloads: those where a caller may
	// prove nothing, those of TCP, and of these the ones where servers speak first.
	plaintext, connections, greeting verdict.Names
}

// beside returns the first of some other policies that is for a workload that this one is for, nil
// for none. It looks whom a policy selects only if the policy is one of those.
func (j *policyJudge) beside(some func(*config.Config, *security.AuthorizationPolicy) bool) *config.Config {
	for _, namespace := range j.namespaces() {
		for o := range j.Objects(schema.AuthorizationPolicy, namespace) {
			if o != j.object && some(o, o.Spec.(*security.AuthorizationPolicy)) && slices.ContainsFunc(j.selected, j.selectedBy(o)) {
				return o
			}
		}
	}
	return nil
}

// namespaces are those whose policies may be for the selected workloads, in order.
func (j *policyJudge) namespaces() []string {
	out := []string{j.root}
	for _, p := range j.selected {
		out = append(out, p.Namespace)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// selectedBy says of a selected proxy whether another policy is for it, too.
func (j *policyJudge) selectedBy(o *config.Config) func(chosen) bool {
	other := selecting.NewPolicy(o)
	return func(p chosen) bool { return other.Selects(p.workload, j.root) }
}

// shut tells of an ALLOW policy that no request can match, where no other allows any.
func (j *policyJudge) shut() {
	if j.spec.GetAction() != security.AuthorizationPolicy_ALLOW || len(j.spec.GetRules()) > 0 || len(j.selected) == 0 || policy.DryRun(j.object) {
		return
	}
	if j.beside(func(_ *config.Config, spec *security.AuthorizationPolicy) bool {
		return spec.GetAction() == security.AuthorizationPolicy_ALLOW && len(spec.GetRules()) > 0
	}) != nil {
		return
	}
	j.add(verdict.PolicyShutsOut, "spec.rules", "allow what may be called by further policies, or say rules: [{}] for everything",
		"is empty, and no other ALLOW policy is for these workloads: they refuse every request")
}

// shadowed tells of a policy of ALLOW all of whose requests a DENY policy refuses.
func (j *policyJudge) shadowed() {
	if j.spec.GetAction() != security.AuthorizationPolicy_ALLOW {
		return
	}
	o := j.beside(func(o *config.Config, spec *security.AuthorizationPolicy) bool {
		return spec.GetAction() == security.AuthorizationPolicy_DENY && !policy.DryRun(o) && slices.ContainsFunc(spec.GetRules(), matchesAll) && j.coversAll(o)
	})
	if o != nil {
		j.Add(verdict.Verdict{
			Code: verdict.PolicyShadowed, Field: "spec.rules", Other: o.Key(),
			Message: fmt.Sprintf("allow nothing: %s refuses every request before", o.Key()), Remedy: "narrow the policy of DENY, or delete it",
		})
	}
}

// weakened tells of patches that take away, or change, what the policy is made of.
func (j *policyJudge) weakened() {
	if policy.DryRun(j.object) || len(j.selected) == 0 {
		return
	}
	for _, namespace := range j.namespaces() {
		for o := range j.Objects(schema.EnvoyFilter, namespace) {
			found := envoyfilter.Weakens(o)
			if len(found) == 0 || !slices.ContainsFunc(j.selected, j.selectedBy(o)) {
				continue
			}
			j.Add(verdict.Verdict{
				Code: verdict.PolicyWeakened, Field: "spec", Other: o.Key(),
				Message: fmt.Sprintf("may not be enforced on all of its workloads: %s of %s %s", found[0].Field, o.Key(), found[0].Message),
				Remedy:  "delete the patch, unless it is meant to open something, and ask portolan authz check",
			})
		}
	}
}

// coversAll says whether another policy is for all selected workloads.
func (j *policyJudge) coversAll(o *config.Config) bool {
	is := j.selectedBy(o)
	return !slices.ContainsFunc(j.selected, func(p chosen) bool { return !is(p) })
}

func matchesAll(r *security.Rule) bool {
	return len(r.GetFrom()) == 0 && len(r.GetTo()) == 0 && len(r.GetWhen()) == 0
}

// findPorts looks at the ports of selected workloads. Those of gateways are for all.
func (j *policyJudge) findPorts() {
	for _, p := range j.selected {
		if p.Type == discovery.Router {
			continue
		}
		scope := j.View(p.Namespace).Peers(p.Namespace)
		for port, protocol := range j.portsOf(p) {
			at := fmt.Sprintf("%d of %s", port, p.ID)
			if p.Type == discovery.Sidecar && scope.Decide(p.workload.Labels, port).Mode != peer.Strict {
				j.plaintext.Add(at)
			}
			if protocol.IsServed() && !protocol.IsHTTP() {
				j.connections.Add(at)
			}
			if protocol == discovery.MySQL {
				j.greeting.Add(at)
			}
		}
	}
}

// ports tells of ports of selected workloads where a part of the policy cannot be judged: a caller
// that proves nothing, a connection without requests, a gRPC server.
func (j *policyJudge) ports() {
	if fields := policy.IdentityFields(j.spec); len(fields) > 0 && j.plaintext.Count() > 0 {
		j.add(verdict.PolicyPlaintext, fields[0], "demand mutual TLS by a PeerAuthentication of mode STRICT",
			"names identities, which a caller in plaintext does not prove, and ports take plaintext: %s. There it is nobody: principals do not match, notPrincipals do", &j.plaintext)
	}
	if j.greeting.Count() > 0 && !policy.DryRun(j.object) && j.spec.GetAction() != security.AuthorizationPolicy_AUDIT {
		j.add(verdict.PolicyAfterGreeting, "spec.rules", "rely on the server's own login there, or let only allowed callers reach the port",
			"judge a connection when the client's first bytes come, and servers speak before: %s. A caller that is refused gets the greeting", &j.greeting)
	}
	effect := "rules that name them are left out, since an ALLOW must not allow more"
	if j.spec.GetAction() != security.AuthorizationPolicy_ALLOW {
		effect = "rules match without regard to them, since a " + j.spec.GetAction().String() + " must not match less"
	}
	if fields := policy.NotForTCP(j.spec); len(fields) > 0 && j.connections.Count() > 0 {
		j.add(verdict.PolicyNoRequests, fields[0], "name the HTTP ports in to, or write another policy for these ports",
			"is of HTTP, and connections of TCP have no such thing: %s. There %s", &j.connections, effect)
	}
	switch fields, servers := policy.NotForGRPC(j.spec), j.servers(); {
	case servers.Count() == 0:
	case j.spec.GetAction() == security.AuthorizationPolicy_AUDIT:
		j.add(verdict.PolicyNotForGRPC, "spec.action", "leave gRPC servers out, or give them sidecars",
			"is nothing that a gRPC server does: %s. There the policy has no effect", servers)
	case len(fields) > 0:
		j.add(verdict.PolicyNotForGRPC, fields[0], "leave it out for gRPC servers, or give them sidecars",
			"is nothing that a gRPC server can judge: %s. There %s", servers, effect)
	}
}

// portsOf yields the ports of a workload, and the protocols that services give them.
func (j *policyJudge) portsOf(p chosen) func(yield func(int, discovery.Protocol) bool) {
	return func(yield func(int, discovery.Protocol) bool) {
		for at, port := range j.servedBy(p) {
			if !yield(at, port.Protocol) {
				return
			}
		}
	}
}

// servedBy yields the ports of a workload, and those of services that lead to them.
func (j *policyJudge) servedBy(p chosen) func(yield func(int, discovery.Port) bool) {
	return func(yield func(int, discovery.Port) bool) {
		for _, address := range p.IPAddresses {
			for key, row := range j.Mesh().Instances(address).All() {
				name, _ := rows.SplitKey(key)
				service := j.ServiceOf(name, p.Namespace)
				if service == nil {
					continue
				}
				for _, e := range row.Endpoints {
					for _, port := range service.Ports() {
						if port.Name == e.ServicePortName && !yield(e.Port, port) {
							return
						}
					}
				}
			}
		}
	}
}

// paths tells of paths and hosts that no request has, and of paths that a request can write in
// another way.
func (j *policyJudge) paths() {
	normalization := j.Mesh().MeshConfig().GetPathNormalization().GetNormalization()
	merges := normalization == meshv1alpha1.MeshConfig_ProxyPathNormalization_MERGE_SLASHES || normalization == meshv1alpha1.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES
	avoided := ""
	for i, rule := range j.spec.GetRules() {
		for k, to := range rule.GetTo() {
			at, o := fmt.Sprintf("spec.rules[%d].to[%d].operation.", i, k), to.GetOperation()
			j.neverMatch(at+"paths", o.GetPaths(), withoutSlash, "begins with no slash, and the path of every request does")
			j.neverMatch(at+"notPaths", o.GetNotPaths(), withoutSlash, "begins with no slash, and the path of every request does")
			j.neverMatch(at+"paths", o.GetPaths(), withQuery, "has a query, and paths are compared without theirs")
			j.neverMatch(at+"notPaths", o.GetNotPaths(), withQuery, "has a query, and paths are compared without theirs")
			j.neverMatch(at+"hosts", o.GetHosts(), usualPort, "has the usual port, which clients leave out")
			j.neverMatch(at+"notHosts", o.GetNotHosts(), usualPort, "has the usual port, which clients leave out")
			allows := j.spec.GetAction() == security.AuthorizationPolicy_ALLOW
			switch {
			case avoided != "" || merges:
			case !allows && slices.ContainsFunc(o.GetPaths(), func(v string) bool { return v != "*" && v != "/*" }):
				avoided = at + "paths"
			case allows && len(o.GetNotPaths()) > 0:
				avoided = at + "notPaths"
			}
		}
	}
	if avoided != "" {
		j.add(verdict.PathsUnmerged, avoided, "set pathNormalization of the mesh to MERGE_SLASHES, if the application takes both for one path",
			"does not match a path with a slash twice, such as //admin for /admin: the mesh does not merge slashes")
	}
}

func withoutSlash(v string) bool { return !strings.HasPrefix(v, "/") && !strings.HasPrefix(v, "*") }

func withQuery(v string) bool { return strings.Contains(v, "?") }

func usualPort(v string) bool { return strings.HasSuffix(v, ":80") || strings.HasSuffix(v, ":443") }

// neverMatch tells of values that no request has.
func (j *policyJudge) neverMatch(field string, values []string, never func(string) bool, why string) {
	for i, v := range values {
		if never(v) {
			j.add(verdict.RuleNeverMatches, verdict.At(field, i), "mend the value, or leave it out", "%q %s", v, why)
		}
	}
}

// asked returns the provider with a name, and for whom its service is not there: selected proxies, or
// the namespace if none is known.
func (j *policyJudge) asked(name string) (asked envoy.Authorizer, unseen *verdict.Names) {
	unseen = &verdict.Names{}
	look := func(v *mesh.View, who string) {
		var ok bool
		if asked, ok = policy.FindProvider(v, name); !ok {
			unseen.Add(who)
		}
	}
	for _, p := range j.selected {
		if p.Type != discovery.Proxyless {
			look(j.SeenBy(p.Proxy), p.ID)
		}
	}
	if len(j.selected) == 0 {
		look(j.View(j.object.Namespace), "namespace "+j.object.Namespace)
	}
	return asked, unseen
}

// provider tells of a provider that cannot be asked, so that all is refused, or is not asked.
func (j *policyJudge) provider() {
	if j.spec.GetAction() != security.AuthorizationPolicy_CUSTOM {
		return
	}
	const field = "spec.provider.name"
	name := j.spec.GetProvider().GetName()
	if servers := j.servers(); servers.Count() > 0 {
		j.add(verdict.ServerUnasking, "spec.action", "leave gRPC servers out, or give them sidecars",
			"is nothing that a gRPC server does: %s. There what the rules match is refused", servers)
	}
	asked, unseen := j.asked(name)
	switch {
	case j.Mesh().MeshConfig().Authorizer(name) == nil:
		j.add(verdict.ProviderMissing, field, "add it to extensionProviders of the mesh configuration, as envoyExtAuthzGrpc or envoyExtAuthzHttp",
			"%q is no external authorizer of the mesh: what the rules match is refused", name)
	case unseen.Count() > 0:
		j.add(verdict.ProviderMissing, field, "add a ServiceEntry with that host and port, or let these proxies see it by its exportTo and their Sidecar",
			"%q has the service %s and port %d, which is not seen by %s: what the rules match there is refused", name, asked.Service(), asked.Port(), unseen)
	}
	o := j.beside(func(_ *config.Config, spec *security.AuthorizationPolicy) bool {
		return spec.GetAction() == security.AuthorizationPolicy_CUSTOM && spec.GetProvider().GetName() != name
	})
	if o != nil {
		j.Add(verdict.Verdict{
			Code: verdict.ProvidersDiffer, Field: field, Other: o.Key(),
			Message: fmt.Sprintf("%s asks another provider, %s, for the same workload, which can ask one: what either matches is refused", o.Key(), o.Spec.(*security.AuthorizationPolicy).GetProvider().GetName()),
			Remedy:  "ask one provider for a workload",
		})
	}
	if o == nil && unseen.Count() == 0 && asked.HTTP != nil && j.connections.Count() > 0 {
		j.add(verdict.ProviderUnasked, field, "use a provider with envoyExtAuthzGrpc for such ports, or a policy of ALLOW",
			"%q answers over HTTP, and cannot be asked about connections of TCP, which pass: %s", name, &j.connections)
	}
}
