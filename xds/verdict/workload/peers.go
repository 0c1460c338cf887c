package workload

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// PeerAuthentication judges a PeerAuthentication.
func PeerAuthentication(j *verdict.Judge, object *config.Config) {
	(&judge{j}).peerAuthentication(object, object.Spec.(*security.PeerAuthentication))
}

// peerAuthentication judges for whom a policy is, which other one counts in its place, and what
// it refuses.
func (j *judge) peerAuthentication(object *config.Config, spec *security.PeerAuthentication) {
	root := j.Mesh().MeshConfig().GetRootNamespace()
	selector := labels.Instance(spec.GetSelector().GetMatchLabels())
	switch {
	case len(selector) > 0 && object.Namespace == root:
		j.Add(verdict.Verdict{
			Code: verdict.PeersUnused, Field: "spec.selector",
			Message: fmt.Sprintf("has no effect in the root namespace, %s, where a policy is for the whole mesh: so the policy is for nobody", root),
			Remedy:  "apply it in the namespace of the workloads, or leave the selector out",
		})
		return
	case len(selector) > 0 && !j.selectsWorkload(object.Namespace, selector):
		j.Add(verdict.Verdict{
			Code: verdict.PeersUnused, Field: "spec.selector",
			Message: fmt.Sprintf("selects no workload of namespace %s: the policy has no effect until one has the labels %s", object.Namespace, selector),
			Remedy:  "mend the labels, or add the workload",
		})
	}
	for o := range j.Objects(schema.PeerAuthentication, object.Namespace) {
		other := labels.Instance(o.Spec.(*security.PeerAuthentication).GetSelector().GetMatchLabels())
		if config.Compare(o, object) >= 0 || (len(other) > 0) != (len(selector) > 0) || len(selector) > 0 && !j.overlap(object.Namespace, selector, other) {
			continue
		}
		whom := "the namespace"
		switch {
		case len(selector) > 0:
			whom = "workloads that both select"
		case object.Namespace == root:
			whom = "the mesh"
		}
		j.Add(verdict.Verdict{
			Code: verdict.PeersOverlap, Field: "spec", Other: o.Key(),
			Message: fmt.Sprintf("%s is older, and counts alone for %s", o.Key(), whom),
			Remedy:  "put both into one policy, or give them other labels",
		})
		break
	}
	j.unservedPorts(object, spec)
	j.refusedByMode(object)
	words := map[peer.Phase]string{peer.ServersChange: "servers take both what was asked for before and what it asks for", peer.ClientsChange: "servers take both, and clients begin to follow"}
	scope := j.View(object.Namespace).Peers(object.Namespace)
	own := scope.Own
	if object.Namespace == root {
		own = scope.Mesh
	}
	if says := words[own.Phase()]; says != "" {
		j.Add(verdict.Verdict{
			Code: verdict.PeersChange, Field: "spec",
			Message: "changes in phases: " + says,
			Remedy:  "wait for the next phase, which begins when the proxies have taken this one, or after a minute",
		})
	}
}

// cutOff are the endpoints that a policy opens to mutual TLS alone, and those of them to which
// clients send plaintext.
type cutOff struct {
	some       bool // whether there are any
	unlabelled verdict.Names
	unasked    verdict.Names // no rule has clients encrypt, and enableAutoMtls is off
	disabled   verdict.Names // rules by which clients do something else
}

func (j *judge) cutOffBy(object *config.Config) (out cutOff) {
	automatic := j.Mesh().MeshConfig().GetEnableAutoMtls().GetValue()
	looked := 0
	for s := range j.Services("*") {
		if looked++; looked > verdict.MaxLooked {
			break
		}
		scope := j.View(s.Namespace).Peers(s.Namespace)
		if !demands(scope, object) || s.Service().MeshExternal {
			continue
		}
		rules := j.Mesh().RulesOf(s.Hostname)
		for _, e := range j.Endpoints(s) {
			d := scope.Decide(e.Labels, e.Port)
			if d.By == nil || d.By.Config != object || d.Mode != peer.Strict {
				continue
			}
			out.some = true
			switch name := fmt.Sprintf("%s:%d of %s", e.Address, e.Port, s.Hostname); {
			case e.TLSMode != discovery.TLSModeIstio:
				out.unlabelled.Add(name)
			case !automatic && !sayTLS(rules, e):
				out.unasked.Add(name)
			}
		}
		for _, r := range rules {
			if tls := r.Policy.GetTls(); out.some && tls != nil && tls.GetMode() != networking.ClientTLSSettings_ISTIO_MUTUAL {
				out.disabled.Add(r.Configs[0].Key().String())
			}
		}
		j.Read(verdict.RulesRow, string(s.Hostname))
	}
	return out
}

// sayTLS says whether one of some rules has settings of TLS for an endpoint.
func sayTLS(rules []*destination.Rule, e *discovery.Endpoint) bool {
	return slices.ContainsFunc(rules, func(r *destination.Rule) bool { return r.PolicyFor("", e.ServicePort).GetTls() != nil })
}

// refusedByMode warns of endpoints to which clients send plaintext though the policy demands
// mutual TLS, and of proxies that could not speak it.
func (j *judge) refusedByMode(object *config.Config) {
	cutOff := j.cutOffBy(object)
	add := func(message, remedy string) {
		j.Add(verdict.Verdict{Code: verdict.PeersCutOff, Field: "spec.mtls.mode", Message: "demands mutual TLS, and " + message, Remedy: remedy})
	}
	if c := &cutOff.unlabelled; c.Count() > 0 {
		add(fmt.Sprintf("%s not labelled for it: %s. Clients send them plaintext, which is refused", counted(c.Count(), "endpoint"), c.First()),
			"give the workloads the label security.istio.io/tlsMode: istio, or a serviceAccount, or begin with mode PERMISSIVE")
	}
	if c := &cutOff.unasked; c.Count() > 0 {
		add(fmt.Sprintf("enableAutoMtls of the mesh configuration is false: no rule has clients encrypt to %s: %s. They send plaintext, which is refused", number(c.Count(), "endpoint"), c.First()),
			"leave enableAutoMtls out, or apply a DestinationRule with tls mode ISTIO_MUTUAL")
	}
	if c := &cutOff.disabled; c.Count() > 0 {
		add(fmt.Sprintf("clients do something else by %s: %s. What they send is refused", number(c.Count(), "DestinationRule"), c.First()),
			"leave tls out of the rules, or set its mode to ISTIO_MUTUAL")
	}
	if cutOff.some {
		j.uncertified()
	}
}

// demands says whether a policy is one of a scope that may demand mutual TLS.
func demands(scope peer.Scope, object *config.Config) bool {
	return slices.ContainsFunc(slices.Concat(scope.Mesh.All(), scope.Own.All()), func(p *peer.Policy) bool { return p.Config == object && p.Demands() })
}

// uncertified warns of known proxies without a certificate of the mesh.
func (j *judge) uncertified() {
	var proxies, programs verdict.Names
	for _, table := range []verdict.Row{verdict.PlacedRow, verdict.UnplacedRow} {
		for p := range j.Known(table, "").Values() {
			switch name := nameOf(p); {
			case p.Certified:
			case discovery.ProxyType(p.Type) == discovery.Proxyless:
				programs.Add(name)
			case discovery.ProxyType(p.Type) == discovery.Sidecar, discovery.ProxyType(p.Type) == discovery.Router:
				proxies.Add(name)
			}
		}
	}
	for what, c := range map[string]*verdict.Names{"proxy": &proxies, "gRPC client": &programs} {
		if c.Count() == 0 {
			continue
		}
		j.Add(verdict.Verdict{
			Code: verdict.PeersCutOff, Field: "spec.mtls.mode",
			Message: fmt.Sprintf("demands mutual TLS, and %s without a certificate of the mesh: %s. What they send is refused, and what comes to them where the policy is for them", counted(c.Count(), what), c.First()),
			Remedy:  "give them a certificate: portolan certificate request, and portolan bootstrap --cert FILE --key FILE --ca FILE",
		})
	}
}

// nameOf returns the name in the node id of a proxy.
func nameOf(p *status.Proxy) string {
	if parts := strings.Split(p.Node, "~"); len(parts) == 4 {
		return parts[2]
	}
	return p.Node
}

// counted returns "1 thing is", "2 things are".
func counted(n int, thing string) string {
	if n == 1 {
		return number(n, thing) + " is"
	}
	return number(n, thing) + " are"
}

// number returns "1 thing", "2 things".
func number(n int, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(thing, "y"))
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// sidecarAt compares what an endpoint says of its sidecar with what is known of it.
func (j *judge) sidecarAt(object *config.Config, field string, address string, own labels.Instance, account string) {
	takes := own[labels.TLSMode] == labels.TLSModeIstio || own[labels.TLSMode] == "" && account != ""
	connected, known := j.sidecarsOf(address, takes)
	switch {
	case !takes && own[labels.TLSMode] == "" && connected != "":
		j.Add(verdict.Verdict{
			Code: verdict.SidecarUnlabelled, Field: field,
			Message: fmt.Sprintf("%s has a sidecar with a certificate of the mesh, %s, and no label says so: clients send plaintext", address, connected),
			Remedy:  "add the label security.istio.io/tlsMode: istio, or a serviceAccount; or tlsMode: disabled, to keep plaintext",
		})
	case takes && !known:
		j.Read(verdict.QuietRow, object.Key().Path())
		if verdict.QuietAt(object, j.Facts().Minute) {
			j.Add(verdict.Verdict{
				Code: verdict.SidecarMissing, Field: field,
				Message: fmt.Sprintf("%s is said to take mutual TLS, and for an hour no sidecar with a certificate of the mesh was known there: what clients with a certificate send is refused", address),
				Remedy:  "start the sidecar, or set the label security.istio.io/tlsMode: disabled",
			})
		}
	}
}

// sidecarsOf looks for proxies with a certificate of the mesh at an address. It returns the name of
// a connected sidecar. If the endpoint does not say that it takes mutual TLS, only one that captures
// traffic counts. known also counts sidecars that are not connected, and gRPC programs.
func (j *judge) sidecarsOf(address string, takes bool) (connected string, known bool) {
	for p := range j.Known(verdict.AddressRow, address).Values() {
		kind := discovery.ProxyType(p.Type)
		known = known || p.Certified && (kind == discovery.Sidecar || kind == discovery.Proxyless)
		if kind == discovery.Sidecar && p.Certified && p.Replica != "" && (p.Interception != string(discovery.InterceptionNone) || takes) {
			connected = nameOf(p)
		}
	}
	return connected, known
}

// unpinned says that clients take any identity of the mesh for an endpoint that names none.
func (j *judge) unpinned(field string, own labels.Instance, account string, subjects []string) {
	if own[labels.TLSMode] != labels.TLSModeIstio || account != "" || len(subjects) > 0 {
		return
	}
	j.Add(verdict.Verdict{
		Code: verdict.IdentityAny, Field: field,
		Message: "names no serviceAccount: over mutual TLS clients take any workload of the mesh for it",
		Remedy:  "set serviceAccount to that of the workload's certificate, or subjectAltNames of the ServiceEntry",
	})
}

// waits warns that a client in plaintext waits for a server that speaks first, where the proxy
// waits for the client to see whether it begins TLS.
func (j *judge) waits(object *config.Config, spec *networking.ServiceEntry) {
	if j.Mesh().MeshConfig().GetProtocolDetectionTimeout().AsDuration() > 0 {
		return
	}
	for i, p := range spec.GetPorts() {
		if discovery.ParseProtocol(p.GetProtocol()) != discovery.MySQL {
			continue
		}
		scope := j.View(object.Namespace).Peers(object.Namespace)
		for _, e := range spec.GetEndpoints() {
			if e.GetLabels()[labels.TLSMode] == labels.TLSModeIstio && scope.Decide(e.GetLabels(), int(max(p.GetTargetPort(), p.GetNumber()))).Mode == peer.Permissive {
				j.Add(verdict.Verdict{
					Code: verdict.ServerFirst, Field: verdict.At("spec.ports", i) + ".protocol",
					Message: "the server speaks first: a client in plaintext waits for it, and the sidecar for the client, since the port takes both (PERMISSIVE)",
					Remedy:  "set portLevelMtls of a PeerAuthentication to STRICT or DISABLE for the port, or protocolDetectionTimeout of the mesh",
				})
				return
			}
		}
	}
}
