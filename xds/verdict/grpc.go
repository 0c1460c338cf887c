package verdict

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"

	"iter"

	"github.com/portolan-mesh/portolan/discovery"
)

// NotForGRPC returns the fields of the HTTP route at path that proxyless gRPC clients ignore.
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

// RuleNotForGRPC returns the fields of a DestinationRule that proxyless gRPC clients ignore.
func RuleNotForGRPC(spec *networking.DestinationRule) []string {
	var out []string
	add := func(m proto.Message, path string, names ...string) {
		out = append(out, SetFields(m, path, names...)...)
	}
	blocks := func(p trafficPolicy, path string) {
		add(p, path, "outlierDetection", "retryBudget", "proxyProtocol", "tunnel")
		switch p.GetTls().GetMode() {
		case networking.ClientTLSSettings_SIMPLE, networking.ClientTLSSettings_MUTUAL:
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
	for path, policy := range PoliciesOf(spec) {
		blocks(policy, path)
		for i, port := range policy.GetPortLevelSettings() {
			blocks(port, At(path+".portLevelSettings", i))
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

// SidecarNotForGRPC returns the fields of a Sidecar that proxyless gRPC clients ignore. Such
// clients have no listeners.
func SidecarNotForGRPC(spec *networking.Sidecar) []string {
	out := SetFields(spec, "spec", "ingress", "inboundConnectionPool", "outboundTrafficPolicy")
	for i, l := range spec.GetEgress() {
		path := At("spec.egress", i)
		out = append(out, SetFields(l, path, "bind", "captureMode")...)
		if discovery.ParseProtocol(l.GetPort().GetProtocol()) == discovery.HTTPProxy {
			out = append(out, path+".port.protocol")
		}
	}
	return out
}

// NotTaken returns the verdict on a field that the gRPC clients of a namespace ignore.
func NotTaken(field, namespace string) Verdict {
	return Verdict{
		Code: NotForClients, Field: field,
		Message: fmt.Sprintf("gRPC clients without a proxy do not take it, and there are some in namespace %s", namespace),
		Remedy:  "see docs/operations/grpc.md for what they take",
	}
}

// SetFields returns the paths of the fields that are set in the message at path, in order. With
// names, it returns only those.
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

// PoliciesOf iterates over the traffic policies of a rule and of its subsets, with their
// paths.
func PoliciesOf(spec *networking.DestinationRule) iter.Seq2[string, *networking.TrafficPolicy] {
	return func(yield func(string, *networking.TrafficPolicy) bool) {
		if p := spec.GetTrafficPolicy(); p != nil && !yield("spec.trafficPolicy", p) {
			return
		}
		for i, s := range spec.GetSubsets() {
			if p := s.GetTrafficPolicy(); p != nil && !yield(At("spec.subsets", i)+".trafficPolicy", p) {
				return
			}
		}
	}
}
