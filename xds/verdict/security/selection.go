package security

import (
	"fmt"

	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
	selecting "github.com/portolan-mesh/portolan/xds/mesh/policy"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// selection judges whom a policy about requests is for.
type selection struct {
	judge
	object *config.Config
	policy *selecting.Policy
	root   string
	// selected are known proxies that the policy is for, some of many.
	selected []chosen
}

// chosen is a proxy, with what policies select it by.
type chosen struct {
	*discovery.Proxy
	workload selecting.Workload
}

func selectionOf(j *verdict.Judge, object *config.Config) selection {
	return selectionIn(j, object, verdict.PlacedRow, verdict.UnplacedRow)
}

// selectionIn is selectionOf among the proxies of some rows.
func selectionIn(j *verdict.Judge, object *config.Config, rows ...verdict.Row) selection {
	s := selection{judge: judge{j}, object: object, policy: selecting.NewPolicy(object), root: j.Mesh().MeshConfig().GetRootNamespace()}
	of := object.Namespace
	if of == s.root {
		of = ""
	}
	for _, table := range rows {
		for known := range j.Known(table, of).Values() {
			p := verdict.ProxyOf(known)
			if p == nil || len(s.selected) == verdict.MaxLooked {
				continue
			}
			if w := s.workload(p); s.policy.Selects(w, s.root) {
				s.selected = append(s.selected, chosen{p, w})
			}
		}
	}
	return s
}

func (s *selection) add(code verdict.Code, field, remedy, format string, args ...any) {
	s.Add(verdict.Verdict{Code: code, Field: field, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (s *selection) workload(p *discovery.Proxy) selecting.Workload {
	for _, address := range p.IPAddresses {
		s.ReadMesh(mesh.InstancesKey(address))
	}
	own := s.Mesh().PlaceOf(p).Labels
	return selecting.Workload{Namespace: p.Namespace, Labels: own, Gateway: p.Type == discovery.Router, Attached: func(gateway config.Key) bool {
		g := s.Gateway(gateway)
		return g != nil && labels.Instance(g.Spec.GetSelector()).SubsetOf(own)
	}}
}

// unused tells that the policy selects nobody. A policy without a selector waits for workloads.
func (s *selection) unused() {
	missing := s.untargeted()
	switch {
	case len(s.selected) > 0 || missing:
	case len(s.policy.Targets()) > 0:
		s.add(verdict.PolicyUnused, "spec.targetRefs", "name a Gateway of networking.istio.io that selects gateways of this namespace, or select them by selector",
			"target no known gateway: it has no effect until the Gateway selects one of namespace %s, or one has the label %s with the name of a Gateway of another API", s.object.Namespace, selecting.GatewayLabel)
	case s.policy.Narrow():
		s.add(verdict.PolicyUnused, s.field(), "mend the labels, or start the proxy of the workload",
			"selects no known proxy: it has no effect until one has the labels")
	}
}

// field is the field of the policy that selects by labels.
func (s *selection) field() string {
	if s.object.Kind == schema.EnvoyFilter.Kind {
		return "spec.workloadSelector"
	}
	return "spec.selector"
}

// untargeted tells of targets that are Gateways which are not there, and says whether there are any.
func (s *selection) untargeted() (some bool) {
	for i, t := range s.policy.Targets() {
		key, ok := s.policy.TargetedGateway(t)
		if !ok || s.Gateway(key) != nil {
			continue
		}
		some = true
		field := verdict.At("spec.targetRefs", i)
		if spec, ok := s.object.Spec.(interface {
			GetTargetRef() *typev1beta1.PolicyTargetReference
		}); ok && spec.GetTargetRef() != nil {
			field = "spec.targetRef"
		}
		s.add(verdict.GatewayUnknown, field+".name", "apply the Gateway, or name one of this namespace",
			"namespace %s has no Gateway %s: the policy is for none of its gateways", s.object.Namespace, t.GetName())
	}
	return some
}

// servers are the gRPC programs among those whom the policy is for.
func (s *selection) servers() *verdict.Names {
	var out verdict.Names
	for _, p := range s.selected {
		if p.Type == discovery.Proxyless {
			out.Add(p.ID)
		}
	}
	return &out
}

// gatewaysAlone says whether the known Envoys that the policy is for are gateways, at least one.
func (s *selection) gatewaysAlone() bool {
	some := false
	for _, p := range s.selected {
		switch p.Type {
		case discovery.Sidecar:
			return false
		case discovery.Router:
			some = true
		}
	}
	return some
}
