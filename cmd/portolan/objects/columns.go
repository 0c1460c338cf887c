package objects

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	wasm "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	security "istio.io/api/security/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/discovery/registration"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/storage/phase"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
)

// column is a column in the table of a kind. In a wide table its cells show lists in full.
type column struct {
	header string
	wide   bool // only in wide tables
	cell   func(spec any, wide bool) string
	// state, used instead of cell, shows something that is not in the spec.
	state func(*unstructured.Unstructured) string
}

// text returns the cell of an object, whose spec is decoded already.
func (c column) text(object *unstructured.Unstructured, spec any, wide bool) string {
	if c.state != nil {
		return c.state(object)
	}
	return c.cell(spec, wide)
}

// show returns a column for every table, detail one for wide tables.
func show[S any](header string, cell func(S, bool) string) column {
	return column{header: header, cell: func(spec any, wide bool) string { return cell(spec.(S), wide) }}
}

func detail[S any](header string, cell func(S) string) column {
	return column{header: header, wide: true, cell: func(spec any, _ bool) string { return cell(spec.(S)) }}
}

// columnsOf returns the columns of a kind, few enough to fit a terminal.
func columnsOf(kind config.GroupVersionKind) []column {
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
		return []column{
			show("TYPE", func(s spec, _ bool) string { return s.Type }),
			show("ENTRIES", func(s spec, wide bool) string {
				if s.Sealed == nil {
					return ""
				}
				return cli.FormatList(cli.MapSlice(s.Sealed.Entries, func(e secret.Entry) string { return e.Name }), wide)
			}),
		}
	case schema.JoinToken:
		type spec = *access.JoinToken
		return []column{
			show("SERVICE-ACCOUNT", func(s spec, _ bool) string { return cli.TokenIdentity(s) }),
			show("USED", func(s spec, _ bool) string { return cli.FormatUses(s) }),
			show("EXPIRES", func(s spec, _ bool) string { return s.Expires.Format(time.RFC3339) }),
			detail("FROM", func(s spec) string { return cli.FormatList(s.Sources, true) }),
		}
	case schema.TokenIssuer:
		type spec = *access.TokenIssuer
		return []column{
			show("ISSUER", func(s spec, _ bool) string { return s.Issuer }),
			show("AUDIENCES", func(s spec, wide bool) string { return cli.FormatList(s.Audiences, wide) }),
			detail("WORKLOADS", func(s spec) string { return strconv.Itoa(len(s.Workloads)) }),
			detail("USERS", func(s spec) string { return strconv.FormatBool(s.Users != nil) }),
		}
	case schema.RevokedIdentity:
		type spec = *access.RevokedIdentity
		return []column{
			show("SERVICE-ACCOUNT", func(s spec, _ bool) string { return s.ServiceAccount }),
			show("BEFORE", func(s spec, _ bool) string {
				if s.Before == nil {
					return "all"
				}
				return s.Before.UTC().Format(time.RFC3339)
			}),
			detail("REASON", func(s spec) string { return s.Reason }),
		}
	case schema.PeerPhase:
		type spec = *phase.Peers
		return []column{
			show("SETTLED", func(s spec, wide bool) string {
				return cli.FormatList(cli.MapSlice(s.Settled, func(p phase.Policy) string { return p.Name }), wide)
			}),
			show("CLIENTS-CHANGE", func(s spec, _ bool) string { return strconv.FormatBool(s.Toward != "") }),
		}
	case schema.HostGrant:
		type spec = *claim.HostGrant
		return []column{
			show("FROM", func(s spec, wide bool) string {
				return cli.FormatList(cli.MapSlice(s.From, func(f claim.From) string { return strings.ToLower(f.Kind) + "/" + f.Namespace }), wide)
			}),
			show("HOSTS", func(s spec, wide bool) string {
				return cli.FormatList(slices.Concat(cli.MapSlice(s.To, func(to claim.To) []string { return to.Hosts })...), wide)
			}),
		}
	case schema.KeySet:
		return keySetColumns()
	case schema.Event:
		return eventColumns()
	case schema.User, schema.Role, schema.RoleBinding:
		return accessColumns(kind)
	case schema.ProxyConfig, schema.Telemetry, schema.WasmPlugin:
		return extensionColumns(kind)
	}
	return nil
}

func accessColumns(kind config.GroupVersionKind) []column {
	switch kind {
	case schema.User:
		type spec = *access.User
		return []column{
			show("GROUPS", func(s spec, wide bool) string { return cli.FormatList(s.Groups, wide) }),
			show("TOKENS", func(s spec, _ bool) string { return strconv.Itoa(len(s.Tokens)) }),
			show("DISABLED", func(s spec, _ bool) string { return strconv.FormatBool(s.Disabled) }),
		}
	case schema.Role:
		return []column{show("RULES", func(s *access.Role, wide bool) string {
			return cli.FormatList(cli.MapSlice(s.Rules, cli.RuleText), wide)
		})}
	}
	type spec = *access.RoleBinding
	return []column{
		show("ROLE", func(s spec, _ bool) string { return s.Role }),
		show("SUBJECTS", func(s spec, wide bool) string {
			return cli.FormatList(cli.MapSlice(s.Subjects, func(one access.Subject) string { return strings.ToLower(one.Kind) + ":" + one.Name }), wide)
		}),
	}
}

func virtualServiceColumns() []column {
	type spec = *networking.VirtualService
	return []column{
		show("HOSTS", func(s spec, wide bool) string { return cli.FormatList(s.GetHosts(), wide) }),
		show("GATEWAYS", func(s spec, wide bool) string {
			if len(s.GetGateways()) == 0 {
				return "mesh"
			}
			return cli.FormatList(s.GetGateways(), wide)
		}),
		detail("ROUTES", routeCounts),
		detail("EXPORT-TO", func(s spec) string { return cli.FormatList(s.GetExportTo(), true) }),
	}
}

func destinationRuleColumns() []column {
	type spec = *networking.DestinationRule
	return []column{
		show("HOST", func(s spec, _ bool) string { return s.GetHost() }),
		show("SUBSETS", func(s spec, wide bool) string {
			return cli.FormatList(cli.MapSlice(s.GetSubsets(), (*networking.Subset).GetName), wide)
		}),
		detail("LOAD-BALANCER", func(s spec) string {
			lb := s.GetTrafficPolicy().GetLoadBalancer()
			switch {
			case lb.GetConsistentHash() != nil:
				return "CONSISTENT_HASH"
			case lb.GetSimple() != networking.LoadBalancerSettings_UNSPECIFIED:
				return lb.GetSimple().String()
			}
			return ""
		}),
		detail("EXPORT-TO", func(s spec) string { return cli.FormatList(s.GetExportTo(), true) }),
	}
}

func gatewayColumns() []column {
	type spec = *networking.Gateway
	return []column{
		show("SELECTOR", func(s spec, wide bool) string { return cli.Pairs(s.GetSelector(), wide) }),
		show("PORTS", func(s spec, wide bool) string {
			return cli.FormatList(cli.MapSlice(s.GetServers(), func(s *networking.Server) string {
				return port(s.GetPort().GetNumber(), s.GetPort().GetProtocol())
			}), wide)
		}),
		detail("HOSTS", func(s spec) string {
			var hosts []string
			for _, server := range s.GetServers() {
				hosts = append(hosts, server.GetHosts()...)
			}
			return cli.FormatList(hosts, true)
		}),
	}
}

func serviceEntryColumns() []column {
	type spec = *networking.ServiceEntry
	return []column{
		show("HOSTS", func(s spec, wide bool) string { return cli.FormatList(s.GetHosts(), wide) }),
		show("PORTS", func(s spec, wide bool) string {
			return cli.FormatList(cli.MapSlice(s.GetPorts(), func(p *networking.ServicePort) string {
				return port(p.GetNumber(), p.GetProtocol())
			}), wide)
		}),
		show("RESOLUTION", func(s spec, _ bool) string { return s.GetResolution().String() }),
		show("ENDPOINTS", func(s spec, wide bool) string {
			if s.GetWorkloadSelector() != nil {
				return cli.Pairs(s.GetWorkloadSelector().GetLabels(), wide)
			}
			return cli.FormatList(cli.MapSlice(s.GetEndpoints(), (*networking.WorkloadEntry).GetAddress), wide)
		}),
		{header: "ADDRESSES", wide: true, state: addressesOf},
		detail("LOCATION", func(s spec) string { return s.GetLocation().String() }),
		detail("EXPORT-TO", func(s spec) string { return cli.FormatList(s.GetExportTo(), true) }),
	}
}

func workloadEntryColumns() []column {
	type spec = *networking.WorkloadEntry
	return []column{
		show("ADDRESS", func(s spec, _ bool) string { return s.GetAddress() }),
		show("LABELS", func(s spec, wide bool) string { return cli.Pairs(s.GetLabels(), wide) }),
		{header: "REGISTERED-BY", state: registrantOf},
		{header: "HEALTH", wide: true, state: healthOf},
		detail("PORTS", func(s spec) string { return cli.Pairs(s.GetPorts(), true) }),
		detail("SERVICE-ACCOUNT", spec.GetServiceAccount),
		detail("LOCALITY", spec.GetLocality),
		detail("NETWORK", spec.GetNetwork),
		detail("WEIGHT", func(s spec) string { return number(s.GetWeight()) }),
	}
}

// addressesOf returns the addresses of a ServiceEntry: its own, else those assigned to its
// hosts, with the host if there are several.
func addressesOf(object *unstructured.Unstructured) string {
	if own, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "addresses"); len(own) > 0 {
		return cli.FormatList(own, true)
	}
	hosts, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "hosts")
	given, _, _ := unstructured.NestedSlice(object.Object, "status", "addresses")
	var out []string
	for _, one := range given {
		a, _ := one.(map[string]any)
		text := fmt.Sprint(a["value"])
		if len(hosts) > 1 {
			text += fmt.Sprintf(" (%v)", a["host"])
		}
		out = append(out, text)
	}
	return cli.FormatList(out, true)
}

// registrantOf returns the name of the proxy that registered a WorkloadEntry; empty if none did.
func registrantOf(object *unstructured.Unstructured) string {
	return nameOfNode(object.GetAnnotations()[registration.NodeAnnotation])
}

// nameOfNode returns the name in a node id, or a text of another form as it is.
func nameOfNode(id string) string {
	if parts := strings.Split(id, "~"); len(parts) == 4 {
		id = parts[2]
	}
	return cli.Plain(id)
}

// healthOf returns the health of a WorkloadEntry: HEALTHY or UNHEALTHY as reported, UNKNOWN if
// it is checked but was not reported yet, else empty.
func healthOf(object *unstructured.Unstructured) string {
	for _, c := range conditionsOf(object) {
		if c.text("type") == "Healthy" {
			if c.text("status") == status.True {
				return admin.Healthy
			}
			return admin.Unhealthy
		}
	}
	if health.Checked(object.GetAnnotations()) {
		return "UNKNOWN"
	}
	return ""
}

func workloadGroupColumns() []column {
	type spec = *networking.WorkloadGroup
	return []column{
		show("SERVICE-ACCOUNT", func(s spec, _ bool) string { return s.GetTemplate().GetServiceAccount() }),
		show("LABELS", func(s spec, wide bool) string { return cli.Pairs(s.GetMetadata().GetLabels(), wide) }),
		detail("PORTS", func(s spec) string { return cli.Pairs(s.GetTemplate().GetPorts(), true) }),
		detail("LOCALITY", func(s spec) string { return s.GetTemplate().GetLocality() }),
		detail("NETWORK", func(s spec) string { return s.GetTemplate().GetNetwork() }),
	}
}

func sidecarColumns() []column {
	type spec = *networking.Sidecar
	return []column{
		show("SELECTOR", func(s spec, wide bool) string { return selector(s.GetWorkloadSelector().GetLabels(), wide) }),
		show("EGRESS", func(s spec, wide bool) string {
			var hosts []string
			for _, listener := range s.GetEgress() {
				hosts = append(hosts, listener.GetHosts()...)
			}
			return cli.FormatList(hosts, wide)
		}),
		detail("INGRESS", func(s spec) string {
			return cli.FormatList(cli.MapSlice(s.GetIngress(), func(l *networking.IstioIngressListener) string {
				return port(l.GetPort().GetNumber(), l.GetPort().GetProtocol())
			}), true)
		}),
	}
}

func envoyFilterColumns() []column {
	type spec = *networking.EnvoyFilter
	return []column{
		show("SELECTOR", func(s spec, wide bool) string { return selector(s.GetWorkloadSelector().GetLabels(), wide) }),
		show("PATCHES", func(s spec, _ bool) string { return strconv.Itoa(len(s.GetConfigPatches())) }),
		detail("PRIORITY", func(s spec) string { return strconv.Itoa(int(s.GetPriority())) }),
	}
}

func policyColumns(kind config.GroupVersionKind) []column {
	switch kind {
	case schema.AuthorizationPolicy:
		type spec = *security.AuthorizationPolicy
		return []column{
			{header: "ACTION", state: policyAction},
			show("SELECTOR", policySelector[spec]),
			show("RULES", func(s spec, _ bool) string { return strconv.Itoa(len(s.GetRules())) }),
		}
	case schema.PeerAuthentication:
		type spec = *security.PeerAuthentication
		return []column{
			show("MODE", func(s spec, _ bool) string { return s.GetMtls().GetMode().String() }),
			show("SELECTOR", func(s spec, wide bool) string { return selector(s.GetSelector().GetMatchLabels(), wide) }),
		}
	}
	type spec = *security.RequestAuthentication
	return []column{
		show("ISSUERS", func(s spec, wide bool) string {
			return cli.FormatList(cli.MapSlice(s.GetJwtRules(), (*security.JWTRule).GetIssuer), wide)
		}),
		show("SELECTOR", policySelector[spec]),
	}
}

// policyAction is the action of an AuthorizationPolicy, and whether it is only watched.
func policyAction(object *unstructured.Unstructured) string {
	action, _, _ := unstructured.NestedString(object.Object, "spec", "action")
	action = cmp.Or(action, security.AuthorizationPolicy_ALLOW.String())
	if isDryRun(object) {
		action += " (dry run)"
	}
	return action
}

// isDryRun reports whether an object is an AuthorizationPolicy that is watched and not enforced.
func isDryRun(object *unstructured.Unstructured) bool {
	return object.GetKind() == schema.AuthorizationPolicy.Kind && policy.DryRun(&config.Config{Meta: config.Meta{Annotations: object.GetAnnotations()}})
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
	return cli.FormatList(cli.MapSlice(targets, func(t *typev1beta1.PolicyTargetReference) string {
		return strings.ToLower(t.GetKind()) + "/" + t.GetName()
	}), wide)
}

func keySetColumns() []column {
	type spec = *keyset.Fetched
	return []column{
		show("SOURCE", func(s spec, _ bool) string { return s.String() }),
		show("SINCE", func(s spec, _ bool) string {
			if s.Since == nil {
				return "none"
			}
			return s.Since.UTC().Format(time.RFC3339)
		}),
		show("FAILS", func(s spec, _ bool) string { return strconv.FormatBool(s.Error != "") }),
	}
}

func extensionColumns(kind config.GroupVersionKind) []column {
	switch kind {
	case schema.ProxyConfig:
		type spec = *networkingv1beta1.ProxyConfig
		return []column{
			show("SELECTOR", func(s spec, wide bool) string { return selector(s.GetSelector().GetMatchLabels(), wide) }),
			detail("IMAGE", func(s spec) string { return s.GetImage().GetImageType() }),
		}
	case schema.Telemetry:
		type spec = *telemetry.Telemetry
		return []column{
			show("SELECTOR", func(s spec, wide bool) string { return selector(s.GetSelector().GetMatchLabels(), wide) }),
			show("SETS", func(s spec, _ bool) string {
				sets := map[string]int{"tracing": len(s.GetTracing()), "metrics": len(s.GetMetrics()), "accessLogging": len(s.GetAccessLogging())}
				maps.DeleteFunc(sets, func(_ string, n int) bool { return n == 0 })
				return strings.Join(slices.Sorted(maps.Keys(sets)), ",")
			}),
		}
	}
	type spec = *wasm.WasmPlugin
	return []column{
		show("SELECTOR", func(s spec, wide bool) string { return selector(s.GetSelector().GetMatchLabels(), wide) }),
		show("URL", func(s spec, _ bool) string { return s.GetUrl() }),
		detail("PHASE", func(s spec) string { return s.GetPhase().String() }),
	}
}
