package table

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	wasm "istio.io/api/extensions/v1alpha1"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	security "istio.io/api/security/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/portolan-mesh/portolan/cmd/portolan/text"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/storage/phase"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// specColumns returns the columns of a kind about its own content, few enough to fit a terminal.
func specColumns(kind config.GroupVersionKind) []Column {
	switch kind {
	case schema.VirtualService:
		return virtualServiceColumns()
	case schema.DestinationRule:
		return destinationRuleColumns()
	case schema.Gateway:
		return gatewayColumns()
	case schema.ServiceEntry:
		return serviceEntryColumns()
	case schema.WorkloadEntry:
		return workloadEntryColumns()
	case schema.WorkloadGroup:
		return workloadGroupColumns()
	case schema.Sidecar:
		return sidecarColumns()
	case schema.EnvoyFilter:
		return envoyFilterColumns()
	case schema.AuthorizationPolicy, schema.PeerAuthentication, schema.RequestAuthentication:
		return policyColumns(kind)
	case schema.Secret:
		type spec = *secret.Spec
		return []Column{
			show("Type", func(s spec, _ bool) string { return s.Type }),
			show("Entries", func(s spec, wide bool) string {
				if s.Sealed == nil {
					return ""
				}
				return text.ListOf(s.Sealed.Entries, func(e secret.Entry) string { return e.Name }, wide)
			}),
		}
	case schema.MeshConfig:
		return []Column{show("Sets", func(m *mesh.MeshConfig, wide bool) string {
			var names []string
			m.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
				names = append(names, field.JSONName())
				return true
			})
			slices.Sort(names)
			return text.List(names, wide)
		})}
	case schema.JoinToken:
		type spec = *access.JoinToken
		return []Column{
			show("Service-Account", func(s spec, _ bool) string { return text.TokenIdentity(s) }),
			show("Used", func(s spec, _ bool) string { return text.Uses(s) }),
			show("Expires", func(s spec, _ bool) string { return s.Expires.Format(time.RFC3339) }),
			detail("From", func(s spec) string { return text.List(s.Sources, true) }),
		}
	case schema.TokenIssuer:
		type spec = *access.TokenIssuer
		return []Column{
			show("Issuer", func(s spec, _ bool) string { return s.Issuer }),
			show("Audiences", func(s spec, wide bool) string { return text.List(s.Audiences, wide) }),
			detail("Workloads", func(s spec) string { return strconv.Itoa(len(s.Workloads)) }),
			detail("Users", func(s spec) string { return strconv.FormatBool(s.Users != nil) }),
		}
	case schema.RevokedIdentity:
		type spec = *access.RevokedIdentity
		return []Column{
			show("Service-Account", func(s spec, _ bool) string { return s.ServiceAccount }),
			show("Before", func(s spec, _ bool) string {
				if s.Before == nil {
					return "all"
				}
				return s.Before.UTC().Format(time.RFC3339)
			}),
			detail("Reason", func(s spec) string { return s.Reason }),
		}
	case schema.PeerPhase:
		type spec = *phase.Peers
		return []Column{
			show("Settled", func(s spec, wide bool) string {
				return text.ListOf(s.Settled, func(p phase.Policy) string { return p.Name }, wide)
			}),
			show("Clients-Change", func(s spec, _ bool) string { return strconv.FormatBool(s.Toward != "") }),
		}
	case schema.HostGrant:
		type spec = *claim.HostGrant
		return []Column{
			show("From", func(s spec, wide bool) string {
				return text.ListOf(s.From, func(f claim.From) string { return strings.ToLower(f.Kind) + "/" + f.Namespace }, wide)
			}),
			show("Hosts", func(s spec, wide bool) string {
				return text.List(hostsGranted(s), wide)
			}),
		}
	case schema.KeySet:
		return keySetColumns()
	case schema.User, schema.Role, schema.RoleBinding:
		return accessColumns(kind)
	case schema.Ingress, schema.IngressClass:
		return ingressColumns(kind)
	case schema.ProxyConfig, schema.Telemetry, schema.WasmPlugin:
		return extensionColumns(kind)
	}
	return sideColumns(kind)
}

func accessColumns(kind config.GroupVersionKind) []Column {
	switch kind {
	case schema.User:
		type spec = *access.User
		return []Column{
			show("Groups", func(s spec, wide bool) string { return text.List(s.Groups, wide) }),
			show("Tokens", func(s spec, _ bool) string { return strconv.Itoa(len(s.Tokens)) }),
			show("Disabled", func(s spec, _ bool) string { return strconv.FormatBool(s.Disabled) }),
		}
	case schema.Role:
		return []Column{show("Rules", func(s *access.Role, wide bool) string {
			return text.ListOf(s.Rules, text.Rule, wide)
		})}
	}
	type spec = *access.RoleBinding
	return []Column{
		show("Role", func(s spec, _ bool) string { return s.Role }),
		show("Subjects", func(s spec, wide bool) string {
			return text.ListOf(s.Subjects, func(one access.Subject) string { return strings.ToLower(one.Kind) + ":" + one.Name }, wide)
		}),
	}
}

func virtualServiceColumns() []Column {
	type spec = *networking.VirtualService
	return []Column{
		show("Hosts", func(s spec, wide bool) string { return text.List(s.GetHosts(), wide) }),
		show("Gateways", func(s spec, wide bool) string {
			if len(s.GetGateways()) == 0 {
				return "mesh"
			}
			return text.List(s.GetGateways(), wide)
		}),
		detail("Routes", routeCounts),
		detail("Export-To", func(s spec) string { return text.List(s.GetExportTo(), true) }),
	}
}

func destinationRuleColumns() []Column {
	type spec = *networking.DestinationRule
	return []Column{
		show("Host", func(s spec, _ bool) string { return s.GetHost() }),
		show("Subsets", func(s spec, wide bool) string {
			return text.ListOf(s.GetSubsets(), (*networking.Subset).GetName, wide)
		}),
		detail("Load-Balancer", func(s spec) string {
			lb := s.GetTrafficPolicy().GetLoadBalancer()
			switch {
			case lb.GetConsistentHash() != nil:
				return "CONSISTENT_HASH"
			case lb.GetSimple() != networking.LoadBalancerSettings_UNSPECIFIED:
				return lb.GetSimple().String()
			}
			return ""
		}),
		detail("Export-To", func(s spec) string { return text.List(s.GetExportTo(), true) }),
	}
}

func gatewayColumns() []Column {
	type spec = *networking.Gateway
	return []Column{
		show("Selector", func(s spec, wide bool) string { return text.Pairs(s.GetSelector(), wide) }),
		show("Ports", func(s spec, wide bool) string {
			return text.ListOf(s.GetServers(), func(s *networking.Server) string {
				return text.Port(s.GetPort().GetNumber(), s.GetPort().GetProtocol())
			}, wide)
		}),
		detail("Hosts", func(s spec) string {
			var hosts []string
			for _, server := range s.GetServers() {
				hosts = append(hosts, server.GetHosts()...)
			}
			return text.List(hosts, true)
		}),
	}
}

func serviceEntryColumns() []Column {
	type spec = *networking.ServiceEntry
	return []Column{
		show("Hosts", func(s spec, wide bool) string { return text.List(s.GetHosts(), wide) }),
		show("Ports", func(s spec, wide bool) string {
			return text.ListOf(s.GetPorts(), func(p *networking.ServicePort) string {
				return text.Port(p.GetNumber(), p.GetProtocol())
			}, wide)
		}),
		show("Resolution", func(s spec, _ bool) string { return s.GetResolution().String() }),
		show("Endpoints", func(s spec, wide bool) string {
			if s.GetWorkloadSelector() != nil {
				return text.Pairs(s.GetWorkloadSelector().GetLabels(), wide)
			}
			return text.ListOf(s.GetEndpoints(), (*networking.WorkloadEntry).GetAddress, wide)
		}),
		{Name: "Addresses", Wide: true, cell: addresses},
		detail("Location", func(s spec) string { return s.GetLocation().String() }),
		detail("Export-To", func(s spec) string { return text.List(s.GetExportTo(), true) }),
	}
}

func workloadEntryColumns() []Column {
	type spec = *networking.WorkloadEntry
	return []Column{
		show("Address", func(s spec, _ bool) string { return s.GetAddress() }),
		show("Labels", func(s spec, wide bool) string { return text.Pairs(s.GetLabels(), wide) }),
		{Name: "Registered-By", cell: registrant},
		{Name: "Health", Wide: true, cell: func(o *config.Config, _ bool) string { return Health(o) }},
		detail("Ports", func(s spec) string { return text.Pairs(s.GetPorts(), true) }),
		detail("Service-Account", spec.GetServiceAccount),
		detail("Locality", spec.GetLocality),
		detail("Network", spec.GetNetwork),
		detail("Weight", func(s spec) string { return text.Number(s.GetWeight()) }),
	}
}

func workloadGroupColumns() []Column {
	type spec = *networking.WorkloadGroup
	return []Column{
		show("Service-Account", func(s spec, _ bool) string { return s.GetTemplate().GetServiceAccount() }),
		show("Labels", func(s spec, wide bool) string { return text.Pairs(s.GetMetadata().GetLabels(), wide) }),
		detail("Ports", func(s spec) string { return text.Pairs(s.GetTemplate().GetPorts(), true) }),
		detail("Locality", func(s spec) string { return s.GetTemplate().GetLocality() }),
		detail("Network", func(s spec) string { return s.GetTemplate().GetNetwork() }),
	}
}

func sidecarColumns() []Column {
	type spec = *networking.Sidecar
	return []Column{
		show("Selector", func(s spec, wide bool) string { return selector(s.GetWorkloadSelector().GetLabels(), wide) }),
		show("Egress", func(s spec, wide bool) string {
			var hosts []string
			for _, listener := range s.GetEgress() {
				hosts = append(hosts, listener.GetHosts()...)
			}
			return text.List(hosts, wide)
		}),
		detail("Ingress", func(s spec) string {
			return text.ListOf(s.GetIngress(), func(l *networking.IstioIngressListener) string {
				return text.Port(l.GetPort().GetNumber(), l.GetPort().GetProtocol())
			}, true)
		}),
	}
}

func envoyFilterColumns() []Column {
	type spec = *networking.EnvoyFilter
	return []Column{
		show("Selector", func(s spec, wide bool) string { return selector(s.GetWorkloadSelector().GetLabels(), wide) }),
		show("Patches", func(s spec, _ bool) string { return strconv.Itoa(len(s.GetConfigPatches())) }),
		detail("Priority", func(s spec) string { return strconv.Itoa(int(s.GetPriority())) }),
	}
}

func policyColumns(kind config.GroupVersionKind) []Column {
	switch kind {
	case schema.AuthorizationPolicy:
		type spec = *security.AuthorizationPolicy
		return []Column{
			{Name: "Action", cell: policyAction},
			show("Selector", policySelector[spec]),
			show("Rules", func(s spec, _ bool) string { return strconv.Itoa(len(s.GetRules())) }),
		}
	case schema.PeerAuthentication:
		type spec = *security.PeerAuthentication
		return []Column{
			show("Mode", func(s spec, _ bool) string { return s.GetMtls().GetMode().String() }),
			show("Selector", func(s spec, wide bool) string { return selector(s.GetSelector().GetMatchLabels(), wide) }),
		}
	}
	type spec = *security.RequestAuthentication
	return []Column{
		show("Issuers", func(s spec, wide bool) string {
			return text.ListOf(s.GetJwtRules(), (*security.JWTRule).GetIssuer, wide)
		}),
		show("Selector", policySelector[spec]),
	}
}

// policySelector shows whom a policy is for: workloads by labels, or its targets.
func policySelector[S interface {
	GetSelector() *typev1beta1.WorkloadSelector
	GetTargetRef() *typev1beta1.PolicyTargetReference
	GetTargetRefs() []*typev1beta1.PolicyTargetReference
}](s S, wide bool) string {
	targets := s.GetTargetRefs()
	if t := s.GetTargetRef(); t != nil {
		targets = append([]*typev1beta1.PolicyTargetReference{t}, targets...)
	}
	if len(targets) == 0 {
		return selector(s.GetSelector().GetMatchLabels(), wide)
	}
	return text.ListOf(targets, func(t *typev1beta1.PolicyTargetReference) string {
		return strings.ToLower(t.GetKind()) + "/" + t.GetName()
	}, wide)
}

func keySetColumns() []Column {
	type spec = *keyset.Fetched
	return []Column{
		show("From", func(s spec, _ bool) string { return s.String() }),
		show("Since", func(s spec, _ bool) string {
			if s.Since == nil {
				return "none"
			}
			return s.Since.UTC().Format(time.RFC3339)
		}),
		show("Fails", func(s spec, _ bool) string { return strconv.FormatBool(s.Error != "") }),
	}
}

func extensionColumns(kind config.GroupVersionKind) []Column {
	switch kind {
	case schema.ProxyConfig:
		type spec = *networkingv1beta1.ProxyConfig
		return []Column{
			show("Selector", func(s spec, wide bool) string { return selector(s.GetSelector().GetMatchLabels(), wide) }),
			detail("Image", func(s spec) string { return s.GetImage().GetImageType() }),
		}
	case schema.Telemetry:
		type spec = *telemetry.Telemetry
		return []Column{
			show("Selector", func(s spec, wide bool) string { return selector(s.GetSelector().GetMatchLabels(), wide) }),
			show("Sets", func(s spec, _ bool) string {
				sets := map[string]int{"tracing": len(s.GetTracing()), "metrics": len(s.GetMetrics()), "accessLogging": len(s.GetAccessLogging())}
				maps.DeleteFunc(sets, func(_ string, n int) bool { return n == 0 })
				return strings.Join(slices.Sorted(maps.Keys(sets)), ",")
			}),
		}
	}
	type spec = *wasm.WasmPlugin
	return []Column{
		show("Selector", func(s spec, wide bool) string { return selector(s.GetSelector().GetMatchLabels(), wide) }),
		show("Url", func(s spec, _ bool) string { return s.GetUrl() }),
		detail("Phase", func(s spec) string { return s.GetPhase().String() }),
	}
}
