package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy/envoytest"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

func simulated(t *testing.T, n xdstest.Node, documents ...string) *simulate.Proxy {
	t.Helper()
	return xdstest.NewWorld(t, documents...).Simulate(n)
}

var router = xdstest.Node{Type: discovery.Router}

func TestTypeByResolution(t *testing.T) {
	t.Parallel()
	const ports = "ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]"
	tests := []struct {
		name, spec      string
		sidecar, router upstream.ClusterType
	}{
		{name: "STATIC", spec: "{hosts: [a.example.com], resolution: STATIC, " + ports + "}", sidecar: upstream.EDS, router: upstream.EDS},
		{name: "DNS", spec: "{hosts: [a.example.com], resolution: DNS, " + ports + "}", sidecar: upstream.StrictDNS, router: upstream.StrictDNS},
		{name: "DNS_ROUND_ROBIN", spec: "{hosts: [a.example.com], resolution: DNS_ROUND_ROBIN, " + ports + "}", sidecar: upstream.LogicalDNS, router: upstream.LogicalDNS},
		{name: "NONE", spec: "{hosts: [a.example.com], resolution: NONE, " + ports + "}", sidecar: upstream.OriginalDst, router: upstream.EDS},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			service := xdstest.Object("ServiceEntry", "a", tt.spec)
			const name = "outbound|80||a.example.com"
			for n, want := range map[*xdstest.Node]upstream.ClusterType{{}: tt.sidecar, &router: tt.router} {
				s := simulated(t, *n, service)
				if got := envoytest.ClusterTypeOf(s.Cluster(name)); got != want {
					t.Errorf("for a %s: type %d, want %d", n.Type, got, want)
				}
				if got := s.Assignment(name) != nil; got != (want == upstream.EDS) {
					t.Errorf("for a %s: load assignment %v", n.Type, got)
				}
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	documents := []string{
		xdstest.Object("ServiceEntry", "a", "{hosts: [a.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}, {number: 53, name: dns, protocol: UDP}]}"),
		xdstest.Object("ServiceEntry", "b", "{hosts: [a.example.com], resolution: STATIC, ports: [{number: 81, name: more, protocol: HTTP}]}"),
		xdstest.Object("ServiceEntry", "c", "{hosts: [a.example.com], resolution: DNS, ports: [{number: 82, name: not-merged, protocol: HTTP}]}"),
		xdstest.Object("ServiceEntry", "d", "{hosts: [d.example.com], resolution: DNS, workloadSelector: {labels: {app: none}}, ports: [{number: 80, name: http, protocol: HTTP}]}"),
		xdstest.Object("DestinationRule", "a", "{host: a.example.com, subsets: [{name: v1, labels: {version: v1}}]}"),
		xdstest.Object("Sidecar", "s", "{ingress: [{port: {number: 9090, protocol: HTTP, name: http}}]}"),
	}
	outbound := []string{"outbound|80|v1|a.example.com", "outbound|80||a.example.com", "outbound|81|v1|a.example.com", "outbound|81||a.example.com"}
	sidecar := append([]string{"BlackHoleCluster", "PassthroughCluster", "inbound|9090||"}, outbound...)
	if diff := cmp.Diff(sidecar, simulated(t, xdstest.Node{}, documents...).Clusters()); diff != "" {
		t.Errorf("sidecar: %s", diff)
	}
	if diff := cmp.Diff(append([]string{"BlackHoleCluster"}, outbound...), simulated(t, router, documents...).Clusters()); diff != "" {
		t.Errorf("router: %s", diff)
	}
}

func TestInlineEndpoints(t *testing.T) {
	t.Parallel()
	service := xdstest.Object("ServiceEntry", "a", `{hosts: [a.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}],
		endpoints: [{address: one.example.com, labels: {version: v1}, locality: eu/a}, {address: two.example.com, labels: {version: v2}, ports: {http: 8080}}]}`)
	rule := xdstest.Object("DestinationRule", "a", "{host: a.example.com, subsets: [{name: v2, labels: {version: v2}}, {name: v3, labels: {version: v3}}]}")
	tests := []struct {
		name, cluster string
		documents     []string
		want          []string
	}{
		{name: "all", cluster: "outbound|80||a.example.com", documents: []string{service}, want: []string{"one.example.com:80", "two.example.com:8080"}},
		{name: "of a subset", cluster: "outbound|80|v2|a.example.com", documents: []string{service, rule}, want: []string{"two.example.com:8080"}},
		{name: "the host itself", cluster: "outbound|80||b.example.com", want: []string{"b.example.com:80"},
			documents: []string{xdstest.Object("ServiceEntry", "b", "{hosts: [b.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := simulated(t, xdstest.Node{}, tt.documents...)
			if diff := cmp.Diff(tt.want, s.EndpointsOf(tt.cluster)); diff != "" {
				t.Error(diff)
			}
			if s.Cluster("outbound|80|v3|a.example.com") != nil {
				t.Error("there is a DNS cluster without endpoints")
			}
		})
	}
}

func TestTrafficPolicy(t *testing.T) {
	t.Parallel()
	service := xdstest.Object("ServiceEntry", "a", "{hosts: [a.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: grpc, protocol: GRPC}, {number: 82, name: tcp, protocol: TCP}]}")
	rule := func(spec string) string {
		return xdstest.Object("DestinationRule", "a", "{host: a.example.com, "+spec+"}")
	}
	const web, grpc, subset = "outbound|80||a.example.com", "outbound|81||a.example.com", "outbound|80|v1|a.example.com"
	tests := []struct {
		name, rule, cluster string
		check               func(*clusterv3.Cluster) any
		want                any
	}{
		{name: "least request by default", cluster: web, check: policy, want: clusterv3.Cluster_LEAST_REQUEST},
		{name: "LEAST_CONN", rule: rule("trafficPolicy: {loadBalancer: {simple: LEAST_CONN}}"), cluster: web, check: policy, want: clusterv3.Cluster_LEAST_REQUEST},
		{name: "ROUND_ROBIN", rule: rule("trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN}}"), cluster: web, check: policy, want: clusterv3.Cluster_ROUND_ROBIN},
		{name: "RANDOM", rule: rule("trafficPolicy: {loadBalancer: {simple: RANDOM}}"), cluster: web, check: policy, want: clusterv3.Cluster_RANDOM},
		{name: "PASSTHROUGH", rule: rule("trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}"), cluster: web, check: policy, want: clusterv3.Cluster_CLUSTER_PROVIDED},
		{name: "consistent hash", rule: rule("trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x}}}"), cluster: web, check: policy, want: clusterv3.Cluster_RING_HASH},
		{name: "consistent hash of nothing", rule: rule("trafficPolicy: {loadBalancer: {consistentHash: {}}}"), cluster: web, check: policy, want: clusterv3.Cluster_RING_HASH},
		{name: "ring size", rule: rule("trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x, ringHash: {minimumRingSize: 64}}}}"), cluster: web,
			check: func(c *clusterv3.Cluster) any { return c.GetRingHashLbConfig().GetMinimumRingSize().GetValue() }, want: uint64(64)},
		{name: "maglev", rule: rule("trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x, maglev: {}}}}"), cluster: web, check: policy, want: clusterv3.Cluster_MAGLEV},
		{name: "connect timeout of the mesh", cluster: web, check: connectTimeout, want: 10 * time.Second},
		{name: "connect timeout", rule: rule("trafficPolicy: {connectionPool: {tcp: {connectTimeout: 2s}}}"), cluster: web, check: connectTimeout, want: 2 * time.Second},
		{name: "no limits by default", cluster: web, check: maxConnections, want: uint32(1<<32 - 1)},
		{name: "limits", rule: rule("trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}"), cluster: web, check: maxConnections, want: uint32(7)},
		{name: "a port's settings stand alone", cluster: web, check: maxConnections, want: uint32(1<<32 - 1),
			rule: rule("trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}, portLevelSettings: [{port: {number: 80}, loadBalancer: {simple: RANDOM}}]}")},
		{name: "and not for other ports", cluster: grpc, check: policy, want: clusterv3.Cluster_LEAST_REQUEST,
			rule: rule("trafficPolicy: {portLevelSettings: [{port: {number: 80}, loadBalancer: {simple: RANDOM}}]}")},
		{name: "a subset overrides block by block", cluster: subset, check: policy, want: clusterv3.Cluster_RANDOM,
			rule: rule("trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}, subsets: [{name: v1, labels: {a: b}, trafficPolicy: {loadBalancer: {simple: RANDOM}}}]")},
		{name: "and keeps the other blocks", cluster: subset, check: maxConnections, want: uint32(7),
			rule: rule("trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}, subsets: [{name: v1, labels: {a: b}, trafficPolicy: {loadBalancer: {simple: RANDOM}}}]")},
		{name: "HTTP/1 is Envoy's default", cluster: web, check: protocol, want: "none"},
		{name: "GRPC is HTTP/2", cluster: grpc, check: protocol, want: "http2"},
		{name: "upgrade to HTTP/2", rule: rule("trafficPolicy: {connectionPool: {http: {h2UpgradePolicy: UPGRADE}}}"), cluster: web, check: protocol, want: "http2"},
		{name: "an upgrade is for HTTP only", rule: rule("trafficPolicy: {connectionPool: {http: {h2UpgradePolicy: UPGRADE}}}"), cluster: "outbound|82||a.example.com", check: protocol, want: "none"},
		{name: "the client's protocol", rule: rule("trafficPolicy: {connectionPool: {http: {useClientProtocol: true}}}"), cluster: grpc, check: protocol, want: "downstream"},
		{name: "requests per connection", rule: rule("trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}"), cluster: web,
			check: func(c *clusterv3.Cluster) any {
				return httpOptions(c).GetCommonHttpProtocolOptions().GetMaxRequestsPerConnection().GetValue()
			}, want: uint32(1)},
		{name: "no keep-alive of HTTP/2", cluster: grpc, check: ping, want: time.Duration(0)},
		{name: "keep-alive of HTTP/2", rule: rule("trafficPolicy: {connectionPool: {http: {http2KeepAlive: {interval: 30s, timeout: 5s}}}}"), cluster: grpc, check: ping, want: 30 * time.Second},
		{name: "Envoy's idle timeout", cluster: grpc, check: idle, want: time.Duration(-1)},
		{name: "no idle timeout", rule: rule("trafficPolicy: {connectionPool: {tcp: {idleTimeout: 1s}, http: {idleTimeout: 0s}}}"), cluster: web, check: idle, want: time.Duration(0)},
		{name: "the idle timeout of TCP", rule: rule("trafficPolicy: {connectionPool: {tcp: {idleTimeout: 1s}}}"), cluster: web, check: idle, want: time.Second},
		{name: "no retry budget", cluster: web, check: budget, want: "none"},
		{name: "retry budget", rule: rule("trafficPolicy: {retryBudget: {}}"), cluster: web, check: budget, want: "20% 3"},
		{name: "of a subset", rule: rule("trafficPolicy: {retryBudget: {}}, subsets: [{name: v1, labels: {a: b}, trafficPolicy: {retryBudget: {percent: 50, minRetryConcurrency: 9}}}]"), cluster: subset, check: budget, want: "50% 9"},
		{name: "no warm-up", rule: rule("trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN}}"), cluster: web, check: warmup, want: time.Duration(0)},
		{name: "warm-up", rule: rule("trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN, warmup: {duration: 9s}}}"), cluster: web, check: warmup, want: 9 * time.Second},
		{name: "warm-up, as it was", rule: rule("trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN, warmupDurationSecs: 8s}}"), cluster: web, check: warmup, want: 8 * time.Second},
		{name: "never in panic", cluster: web, check: panicThreshold, want: 0.0},
		{name: "nor with outlier detection", rule: rule("trafficPolicy: {outlierDetection: {}}"), cluster: web, check: panicThreshold, want: 0.0},
		{name: "in panic below a threshold", rule: rule("trafficPolicy: {outlierDetection: {minHealthPercent: 40}}"), cluster: web, check: panicThreshold, want: 40.0},
		{name: "a rule of the client's namespace outranks the service's", rule: xdstest.Object("DestinationRule", "shop/a", "{host: a.example.com, trafficPolicy: {loadBalancer: {simple: RANDOM}}}") +
			"---\n" + rule("trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN}}"), cluster: web, check: policy, want: clusterv3.Cluster_ROUND_ROBIN},
		{name: "a rule of the root namespace", rule: xdstest.Object("DestinationRule", "istio-system/all", "{host: '*', trafficPolicy: {loadBalancer: {simple: RANDOM}}}"),
			cluster: web, check: policy, want: clusterv3.Cluster_RANDOM},
		{name: "an exact host is not merged with a pattern", cluster: web, check: policy, want: clusterv3.Cluster_LEAST_REQUEST,
			rule: xdstest.Object("DestinationRule", "wide", "{host: '*.example.com', trafficPolicy: {loadBalancer: {simple: RANDOM}}}") + "---\n" + rule("subsets: [{name: v1, labels: {a: b}}]")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := simulated(t, xdstest.Node{}, service, tt.rule).Cluster(tt.cluster)
			if c == nil {
				t.Fatalf("there is no %s", tt.cluster)
			}
			if got := tt.check(c); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func policy(c *clusterv3.Cluster) any         { return c.GetLbPolicy() }
func connectTimeout(c *clusterv3.Cluster) any { return c.GetConnectTimeout().AsDuration() }
func maxConnections(c *clusterv3.Cluster) any {
	return c.GetCircuitBreakers().GetThresholds()[0].GetMaxConnections().GetValue()
}

func ping(c *clusterv3.Cluster) any {
	return httpOptions(c).GetExplicitHttpConfig().GetHttp2ProtocolOptions().GetConnectionKeepalive().GetInterval().AsDuration()
}

func idle(c *clusterv3.Cluster) any {
	if timeout := httpOptions(c).GetCommonHttpProtocolOptions().GetIdleTimeout(); timeout != nil {
		return timeout.AsDuration()
	}
	return time.Duration(-1)
}

func budget(c *clusterv3.Cluster) any {
	b := c.GetCircuitBreakers().GetThresholds()[0].GetRetryBudget()
	if b == nil {
		return "none"
	}
	return fmt.Sprintf("%v%% %d", b.GetBudgetPercent().GetValue(), b.GetMinRetryConcurrency().GetValue())
}

func warmup(c *clusterv3.Cluster) any {
	return c.GetRoundRobinLbConfig().GetSlowStartConfig().GetSlowStartWindow().AsDuration()
}

func panicThreshold(c *clusterv3.Cluster) any {
	return c.GetCommonLbConfig().GetHealthyPanicThreshold().GetValue()
}

func httpOptions(c *clusterv3.Cluster) *httpv3.HttpProtocolOptions {
	for _, extension := range c.GetTypedExtensionProtocolOptions() {
		out := &httpv3.HttpProtocolOptions{}
		if extension.UnmarshalTo(out) == nil {
			return out
		}
	}
	return nil
}

func protocol(c *clusterv3.Cluster) any {
	options := httpOptions(c)
	switch {
	case options == nil:
		return "none"
	case options.GetUseDownstreamProtocolConfig() != nil:
		return "downstream"
	case options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil:
		return "http2"
	}
	return "http1"
}

func TestInbound(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, endpoint, want string }{
		{name: "none given", want: "127.0.0.1:9090"},
		{name: "loopback", endpoint: ", defaultEndpoint: '127.0.0.1:8080'", want: "127.0.0.1:8080"},
		{name: "IPv6 loopback", endpoint: ", defaultEndpoint: '[::1]:8080'", want: "::1:8080"},
		{name: "the instance", endpoint: ", defaultEndpoint: '0.0.0.0:8080'", want: "10.0.0.1:8080"},
		{name: "a socket", endpoint: ", defaultEndpoint: 'unix:///run/app.sock'", want: "/run/app.sock"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := simulated(t, xdstest.Node{}, xdstest.Object("Sidecar", "s", "{ingress: [{port: {number: 9090, protocol: HTTP, name: http}"+tt.endpoint+"}]}"))
			if diff := cmp.Diff([]string{tt.want}, s.EndpointsOf("inbound|9090||")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDNSFamily(t *testing.T) {
	t.Parallel()
	service := xdstest.Object("ServiceEntry", "a", "{hosts: [a.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}")
	for ip, want := range map[string]string{"10.0.0.1": "V4_ONLY", "fd00::1": "V6_ONLY"} {
		c := simulated(t, xdstest.Node{IP: ip}, service).Cluster("outbound|80||a.example.com")
		text := protojson.Format(c)
		if !strings.Contains(text, want) {
			t.Errorf("a proxy at %s: no %s in %s", ip, want, text)
		}
	}
}

// The golden file shows what behaviour cannot: the shape that dashboards and EnvoyFilters
// read.
func TestGolden(t *testing.T) {
	t.Parallel()
	s := simulated(t, xdstest.Node{},
		xdstest.Object("ServiceEntry", "shop/web", "{hosts: [web.example.com], location: MESH_EXTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP2}]}"),
		xdstest.Object("DestinationRule", "shop/rule", "{host: web.example.com, subsets: [{name: v1, labels: {version: v1}}]}"))
	xdstest.Golden(t, "subset.yaml", s.Cluster("outbound|80|v1|web.example.com"))
}

func TestGoldenPolicies(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]string{
		"outliers":      "{outlierDetection: {consecutive5xxErrors: 3, consecutiveGatewayErrors: 0, splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 2, interval: 5s, baseEjectionTime: 20s, maxEjectionPercent: 50, outlierDetectionHttpErrorCodes: [429, 503]}}",
		"proxyprotocol": "{proxyProtocol: {version: V2}}",
		"retrybudget":   "{retryBudget: {percent: 25, minRetryConcurrency: 5, budgetInterval: 1s}}",
		"warmup":        "{loadBalancer: {warmup: {duration: 60s, minimumPercent: 5, aggression: 2}}}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := simulated(t, xdstest.Node{}, xdstest.HTTPService("web", "web.example.com"),
				xdstest.Object("DestinationRule", "rule", "{host: web.example.com, trafficPolicy: "+policy+"}"))
			xdstest.Golden(t, name+".yaml", s.Cluster("outbound|80||web.example.com"))
		})
	}
}

func TestGoldenDynamicDNS(t *testing.T) {
	t.Parallel()
	for _, ip := range []string{"10.0.0.1", "fd00::1", "10.0.0.1,fd00::1"} {
		s := simulated(t, xdstest.Node{IP: ip},
			xdstest.Object("ServiceEntry", "a", "{hosts: ['*.example.com'], resolution: DYNAMIC_DNS, location: MESH_EXTERNAL, ports: [{number: 80, name: grpc, protocol: GRPC}]}"),
			xdstest.Object("DestinationRule", "rule", "{host: '*.example.com', trafficPolicy: {connectionPool: {tcp: {connectTimeout: 1s}}, loadBalancer: {consistentHash: {httpHeaderName: x}}}}"))
		name := map[string]string{"10.0.0.1": "dynamicdns", "fd00::1": "dynamicdns-v6"}[ip]
		if name == "" {
			name = "dynamicdns-all"
		}
		xdstest.Golden(t, name+".yaml", s.Cluster("outbound|80||*.example.com"))
	}
}

// TestHealthCheck: one annotated workload makes the service's HTTP ports checked.
// Workloads with no or another annotation are not checked.
func TestHealthCheck(t *testing.T) {
	t.Parallel()
	checked := func(name, ip, annotations string) string {
		return "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: " + name + ", annotations: {" + annotations + "}}\nspec: {address: " + ip + ", labels: {app: a}}"
	}
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "a", "{hosts: [a.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: grpc, protocol: GRPC}, {number: 82, name: tcp, protocol: TCP}], workloadSelector: {labels: {app: a}}}"),
		checked("one", "10.1.0.1", ""))
	if c := w.Simulate(xdstest.Node{}).Cluster("outbound|80||a.example.com"); len(c.GetHealthChecks()) > 0 {
		t.Errorf("checked by %v, want not at all", c.GetHealthChecks())
	}
	w.Apply(checked("two", "10.1.0.2", "portolan.io/health-check-path: /healthz"), checked("three", "10.1.0.3", "portolan.io/health-check-path: /ready, portolan.io/health-check-interval: 5s"))
	s := w.Simulate(xdstest.Node{})
	xdstest.Golden(t, "healthcheck.yaml", s.Cluster("outbound|81||a.example.com"))
	for port, want := range map[string][]bool{"80": {true, false, true}, "81": {true, false, true}, "82": {false, false, false}} {
		name := "outbound|" + port + "||a.example.com"
		if got := len(s.Cluster(name).GetHealthChecks()) == 1; got != want[0] {
			t.Errorf("port %s: checked %v", port, got)
		}
		var got []bool
		for _, e := range s.Assignment(name).GetEndpoints()[0].GetLbEndpoints() {
			got = append(got, e.GetEndpoint().GetHealthCheckConfig().GetDisableActiveHealthCheck())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("port %s, left out: %s", port, diff)
		}
	}
}

// A cluster needs its endpoints, or time to resolve host names.
func TestNeeds(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		xdstest.HTTPService("a", "a.example.com"),
		xdstest.Object("ServiceEntry", "b", "{hosts: [b.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}"))
	got := map[string][]resource.Need{}
	for _, r := range w.Build(xdstest.Node{}, cluster.Generator{}) {
		got[r.Name] = r.Needs
	}
	want := map[string][]resource.Need{
		"BlackHoleCluster": nil, "PassthroughCluster": nil, "outbound|80||b.example.com": {{Kind: resource.Grace}},
		"outbound|80||a.example.com": {{TypeURL: resource.EndpointType, Name: "outbound|80||a.example.com", Kind: resource.Covered}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
