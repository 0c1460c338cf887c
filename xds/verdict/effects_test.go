package verdict_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// policySettings has a value of every served field of a trafficPolicy, by its path.
var policySettings = map[string]string{
	"loadBalancer.simple":                                "{loadBalancer: {simple: ROUND_ROBIN}}",
	"loadBalancer.consistentHash.httpHeaderName":         "{loadBalancer: {consistentHash: {httpHeaderName: x}}}",
	"loadBalancer.consistentHash.httpCookie":             "{loadBalancer: {consistentHash: {httpCookie: {name: c, ttl: 0s}}}}",
	"loadBalancer.consistentHash.httpQueryParameterName": "{loadBalancer: {consistentHash: {httpQueryParameterName: q}}}",
	"loadBalancer.consistentHash.useSourceIp":            "{loadBalancer: {consistentHash: {useSourceIp: true}}}",
	"loadBalancer.consistentHash.minimumRingSize":        "{loadBalancer: {consistentHash: {useSourceIp: true, minimumRingSize: 2048}}}",
	"loadBalancer.consistentHash.ringHash":               "{loadBalancer: {consistentHash: {useSourceIp: true, ringHash: {minimumRingSize: 2048}}}}",
	"loadBalancer.consistentHash.maglev":                 "{loadBalancer: {consistentHash: {useSourceIp: true, maglev: {tableSize: 1021}}}}",
	"loadBalancer.localityLbSetting":                     "{outlierDetection: {}, loadBalancer: {localityLbSetting: {failover: [{from: eu, to: us}]}}}",
	"loadBalancer.zoneAwareLbSetting":                    "{loadBalancer: {zoneAwareLbSetting: {}}}",
	"loadBalancer.warmup":                                "{loadBalancer: {simple: ROUND_ROBIN, warmup: {duration: 10s}}}",
	"loadBalancer.warmupDurationSecs":                    "{loadBalancer: {simple: ROUND_ROBIN, warmupDurationSecs: 10s}}",
	"connectionPool.tcp.maxConnections":                  "{connectionPool: {tcp: {maxConnections: 7}}}",
	"connectionPool.tcp.connectTimeout":                  "{connectionPool: {tcp: {connectTimeout: 3s}}}",
	"connectionPool.tcp.tcpKeepalive":                    "{connectionPool: {tcp: {tcpKeepalive: {time: 30s}}}}",
	"connectionPool.tcp.maxConnectionDuration":           "{connectionPool: {tcp: {maxConnectionDuration: 30s}}}",
	"connectionPool.tcp.idleTimeout":                     "{connectionPool: {tcp: {idleTimeout: 30s}}}",
	"connectionPool.http.http1MaxPendingRequests":        "{connectionPool: {http: {http1MaxPendingRequests: 7}}}",
	"connectionPool.http.http2MaxRequests":               "{connectionPool: {http: {http2MaxRequests: 7}}}",
	"connectionPool.http.maxRequestsPerConnection":       "{connectionPool: {http: {maxRequestsPerConnection: 7}}}",
	"connectionPool.http.maxRetries":                     "{connectionPool: {http: {maxRetries: 7}}}",
	"connectionPool.http.idleTimeout":                    "{connectionPool: {http: {idleTimeout: 30s}}}",
	"connectionPool.http.h2UpgradePolicy":                "{connectionPool: {http: {h2UpgradePolicy: UPGRADE}}}",
	"connectionPool.http.useClientProtocol":              "{connectionPool: {http: {useClientProtocol: true}}}",
	"connectionPool.http.maxConcurrentStreams":           "{connectionPool: {http: {maxConcurrentStreams: 7}}}",
	"connectionPool.http.http2KeepAlive":                 "{connectionPool: {http: {http2KeepAlive: {interval: 5s, timeout: 1s}}}}",
	"outlierDetection.splitExternalLocalOriginErrors":    "{outlierDetection: {splitExternalLocalOriginErrors: true}}",
	"outlierDetection.consecutiveLocalOriginFailures":    "{outlierDetection: {splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 3}}",
	"outlierDetection.consecutiveGatewayErrors":          "{outlierDetection: {consecutiveGatewayErrors: 3}}",
	"outlierDetection.consecutive5xxErrors":              "{outlierDetection: {consecutive5xxErrors: 3}}",
	"outlierDetection.interval":                          "{outlierDetection: {interval: 3s}}",
	"outlierDetection.baseEjectionTime":                  "{outlierDetection: {baseEjectionTime: 3s}}",
	"outlierDetection.maxEjectionPercent":                "{outlierDetection: {maxEjectionPercent: 30}}",
	"outlierDetection.minHealthPercent":                  "{outlierDetection: {minHealthPercent: 30}}",
	"outlierDetection.outlierDetectionHttpErrorCodes":    "{outlierDetection: {outlierDetectionHttpErrorCodes: [429]}}",
	"tls":           "{tls: {mode: SIMPLE, sni: a.test}}",
	"tunnel":        "{tunnel: {targetHost: t.test, targetPort: 443}}",
	"proxyProtocol": "{proxyProtocol: {version: V2}}",
	"retryBudget":   "{retryBudget: {percent: 30, minRetryConcurrency: 5}}",
}

// forHTTP are the settings that only HTTP knows. Some change the resources of other ports, where
// Envoy does not look at them.
var forHTTP = []string{
	"loadBalancer.consistentHash.http", "connectionPool.http.http2MaxRequests", "connectionPool.http.maxRequestsPerConnection", "connectionPool.http.maxRetries",
	"connectionPool.http.idleTimeout", "connectionPool.http.h2UpgradePolicy", "connectionPool.http.useClientProtocol", "connectionPool.http.maxConcurrentStreams",
	"connectionPool.http.http2KeepAlive", "outlierDetection.outlierDetectionHttpErrorCodes", "retryBudget",
}

// TestSettingsWithoutEffectAreTold: each setting of a trafficPolicy, with each protocol and each
// resolution, changes what some proxy gets, or a verdict tells that it does not. Settings of
// HTTP are always told of where there is none.
func TestSettingsWithoutEffectAreTold(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	for path := range settingsOf((&networking.TrafficPolicy{}).ProtoReflect().Descriptor(), "") {
		if !slices.ContainsFunc(keys(policySettings), func(p string) bool {
			return p == path || strings.HasPrefix(p, path+".") || strings.HasPrefix(path, p+".")
		}) {
			t.Errorf("the walk has no value for %s", path)
		}
	}
	endpoints := map[string]string{
		"STATIC": "endpoints: [{address: 10.1.0.1, locality: eu/a}, {address: 10.1.0.2, locality: us/b}]", "DNS": "endpoints: [{address: a.test, locality: eu/a}, {address: b.test, locality: us/b}]",
		"DNS_ROUND_ROBIN": "endpoints: [{address: a.test}]", "NONE": "", "DYNAMIC_DNS": "",
	}
	for _, protocol := range []string{"HTTP", "GRPC", "TCP", "MONGO", "TLS"} {
		for resolution, more := range endpoints {
			if resolution == "DYNAMIC_DNS" && protocol != "HTTP" && protocol != "TLS" {
				continue
			}
			host := "web.test"
			if resolution == "DYNAMIC_DNS" {
				host = "'*.web.test'"
			}
			w := xdstest.NewWorld(t, xdstest.Object("ServiceEntry", "web", fmt.Sprintf("{hosts: [%s], resolution: %s, ports: [{number: 7000, name: p, protocol: %s}], %s}", host, resolution, protocol, more)))
			before := built(t, w)
			for path, policy := range policySettings {
				without := before
				if block := blockOf(path); block != "" { // the empty block has an effect of its own
					w.Apply(xdstest.Object("DestinationRule", "rule", "{host: "+host+", trafficPolicy: {"+block+": {}}}"))
					without = built(t, w)
				}
				w.Apply(xdstest.Object("DestinationRule", "rule", "{host: "+host+", trafficPolicy: "+policy+"}"))
				http := protocol == "HTTP" || protocol == "GRPC"
				pointless := !http && slices.ContainsFunc(forHTTP, func(p string) bool { return strings.HasPrefix(path, p) })
				effect := built(t, w) != without && !pointless
				verdicts := said((*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context(), Proxies: proxies(bystander("default"))}))
				told := slices.ContainsFunc(verdicts, func(v string) bool { return strings.HasPrefix(v, "rule ") && strings.Contains(v, "spec.trafficPolicy") })
				unexpected := slices.ContainsFunc(verdicts, func(v string) bool { return strings.HasPrefix(v, "rule "+string(verdict.Unexpected)) })
				if !effect && !told {
					t.Errorf("%s %s: %s has no effect, and nobody tells", protocol, resolution, path)
				}
				if http && unexpected && resolution == "STATIC" && path != "tunnel" {
					t.Errorf("%s: %s is said to have no effect", protocol, path)
				}
			}
		}
	}
}

func keys(m map[string]string) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// blockOf returns the block of settings that has an effect as such.
func blockOf(path string) string {
	if strings.HasPrefix(path, "outlierDetection.") || path == "loadBalancer.localityLbSetting" {
		return "outlierDetection"
	}
	return ""
}

// settingsOf yields the paths of the fields of a message, down to its scalars.
func settingsOf(d protoreflect.MessageDescriptor, at string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			if path := strings.TrimPrefix(at+"."+f.JSONName(), "."); path != "portLevelSettings" && !yield(path) {
				return
			}
		}
	}
}

// built returns the resources of a sidecar that captures traffic, of one that does not, and of
// a gateway, as one text.
func built(t *testing.T, w *xdstest.World) string {
	t.Helper()
	var out strings.Builder
	for _, n := range []xdstest.Node{
		{IP: "10.9.0.1", Locality: "eu/a", SelfDiscovery: true}, {IP: "10.9.0.2", Interception: discovery.InterceptionRedirect, Locality: "eu/a"},
		{IP: "10.9.0.3", Type: discovery.Router, Labels: map[string]string{"app": "edge"}, Locality: "eu/a"},
	} {
		for _, r := range w.Build(n, generate.For(catalogue.Types(), n.Proxy(t).Type)...) {
			out.WriteString(r.Name + "=" + r.Version + "\n")
		}
	}
	return out.String()
}
