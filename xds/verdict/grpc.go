package verdict

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// NotForGRPC returns the fields of an HTTP route at a path that gRPC clients without a
// proxy do not take.
func NotForGRPC(http *networking.HTTPRoute, path string) []string {
	var out []string
	add := func(m proto.Message, path string, names ...string) {
		out = append(out, SetFields(m, path, names...)...)
	}
	add(http, path, "redirect", "directResponse", "rewrite", "headers", "mirror", "mirrors", "corsPolicy")
	add(http.GetRetries(), path+".retries", "perTryTimeout", "retryRemoteLocalities", "retryIgnorePreviousHosts")
	for i, d := range http.GetRoute() {
		add(d, fmt.Sprintf("%s.route[%d]", path, i), "headers")
	}
	return out
}

// RuleNotForGRPC returns the fields of a DestinationRule that gRPC clients without a proxy do
// not take.
func RuleNotForGRPC(spec *networking.DestinationRule) []string {
	var out []string
	add := func(m proto.Message, path string, names ...string) {
		out = append(out, SetFields(m, path, names...)...)
	}
	blocks := func(p trafficPolicy, path string) {
		add(p, path, "outlierDetection", "retryBudget", "proxyProtocol", "tunnel")
		if p.GetTls().GetMode() != networking.ClientTLSSettings_DISABLE {
			out = append(out, path+".tls")
		}
		add(p.GetConnectionPool(), path+".connectionPool", "tcp")
		add(p.GetConnectionPool().GetHttp(), path+".connectionPool.http", "http1MaxPendingRequests", "maxRequestsPerConnection", "maxRetries",
			"idleTimeout", "h2UpgradePolicy", "useClientProtocol", "maxConcurrentStreams", "http2KeepAlive")
		balancer := p.GetLoadBalancer()
		add(balancer, path+".loadBalancer", "warmup", "warmupDurationSecs", "zoneAwareLbSetting")
		add(balancer.GetConsistentHash(), path+".loadBalancer.consistentHash", "httpCookie", "httpQueryParameterName", "maglev")
		switch balancer.GetSimple() {
		case networking.LoadBalancerSettings_RANDOM, networking.LoadBalancerSettings_PASSTHROUGH:
			out = append(out, path+".loadBalancer.simple")
		}
	}
	for path, policy := range policiesOf(spec) {
		blocks(policy, path)
		for i, port := range policy.GetPortLevelSettings() {
			blocks(port, at(path+".portLevelSettings", i))
		}
	}
	return out
}

// trafficPolicy has what TrafficPolicy and PortTrafficPolicy share.
type trafficPolicy interface {
	proto.Message
	GetConnectionPool() *networking.ConnectionPoolSettings
	GetLoadBalancer() *networking.LoadBalancerSettings
	GetTls() *networking.ClientTLSSettings
}

// ruleOfClients tells of fields that gRPC clients do not take, if one of the services speaks
// gRPC and the rule is for clients that are known.
func (j *judge) ruleOfClients(object *config.Config, spec *networking.DestinationRule, services []*mesh.ServiceRow) {
	fields := RuleNotForGRPC(spec)
	if len(fields) == 0 || !slices.ContainsFunc(services, speaksGRPC) {
		return
	}
	rules := j.mesh().RulesNamed(destination.HostOf(object))
	at := slices.IndexFunc(rules, func(r *destination.Rule) bool { return slices.Contains(r.Configs, object) })
	if at < 0 {
		return
	}
	for p := range j.known(clientsRow, "").Values() {
		if !rules[at].ExportTo.VisibleTo(p.Namespace) ||
			rules[at].Selector != nil && !j.selects(rules[at].Selector.GetMatchLabels(), pmap.Map[*status.Proxy]{}.Set(p.Node, p)) {
			continue
		}
		for _, field := range fields {
			j.add(notForClients(field, p.Namespace))
		}
		return
	}
}

// SidecarNotForGRPC returns the fields of a Sidecar that gRPC clients without a proxy do
// not take. They listen nowhere.
func SidecarNotForGRPC(spec *networking.Sidecar) []string {
	out := SetFields(spec, "spec", "ingress", "inboundConnectionPool", "outboundTrafficPolicy")
	for i, l := range spec.GetEgress() {
		path := at("spec.egress", i)
		out = append(out, SetFields(l, path, "bind", "captureMode")...)
		if discovery.ParseProtocol(l.GetPort().GetProtocol()) == discovery.HTTPProxy {
			out = append(out, path+".port.protocol")
		}
	}
	return out
}

// sidecarOfClients tells of fields that gRPC clients do not take, if the Sidecar is for
// some that are known in its namespace.
func (j *judge) sidecarOfClients(object *config.Config, spec *networking.Sidecar) {
	fields := SidecarNotForGRPC(spec)
	if len(fields) == 0 {
		return
	}
	for p := range j.known(clientsRow, "").Values() {
		if p.Namespace != object.Namespace || !j.selects(spec.GetWorkloadSelector().GetLabels(), pmap.Map[*status.Proxy]{}.Set(p.Node, p)) {
			continue
		}
		for _, field := range fields {
			j.add(notForClients(field, p.Namespace))
		}
		return
	}
}

func notForClients(field, namespace string) Verdict {
	return Verdict{
		Code: NotForClients, Field: field,
		Message: fmt.Sprintf("gRPC clients without a proxy do not take it, and there are some in namespace %s", namespace),
		Remedy:  "see docs/operations/grpc.md for what they take",
	}
}

// SetFields returns the paths of the fields that a message has, in order, where the message
// stands at a path: of those that are named, or of all.
func SetFields(m proto.Message, path string, names ...string) []string {
	var out []string
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if len(names) == 0 || slices.Contains(names, f.JSONName()) {
			out = append(out, path+"."+f.JSONName())
		}
		return true
	})
	slices.Sort(out)
	return out
}

// grpcClients tells of the fields of routes that gRPC clients do not take. It does so if
// clients see the VirtualService and may call a service of one of its hosts.
func (j *judge) grpcClients(vs *routing.VirtualService, routes []*networking.HTTPRoute) {
	var fields []string
	for i, http := range routes {
		fields = append(fields, NotForGRPC(http, at("spec.http", i))...)
	}
	fields = append(fields, SetFields(vs.Spec, "spec", "tcp", "tls")...)
	if len(fields) == 0 || !slices.Contains(vs.Gateways, mesh.MeshGateway) || !j.callable(vs) {
		return
	}
	for p := range j.known(clientsRow, "").Values() {
		if !vs.ExportTo.VisibleTo(p.Namespace) {
			continue
		}
		for _, field := range fields {
			j.add(notForClients(field, p.Namespace))
		}
		return
	}
}

// callable says whether a host of a VirtualService is of a service that speaks gRPC.
func (j *judge) callable(vs *routing.VirtualService) bool {
	for _, h := range vs.Hosts {
		for s := range j.services(h) {
			if speaksGRPC(s) {
				return true
			}
		}
	}
	return false
}

func speaksGRPC(s *mesh.ServiceRow) bool {
	return slices.ContainsFunc(s.Ports(), func(p discovery.Port) bool { return p.Protocol == discovery.GRPC })
}
