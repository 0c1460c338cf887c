package integration

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
	"github.com/portolan-mesh/portolan/xds/envoy/accesslog"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/names"

	// The name envoy is the test's type for a process.
	messages "github.com/portolan-mesh/portolan/xds/envoy"
	metadata "github.com/portolan-mesh/portolan/xds/envoy/message"
	upstreams "github.com/portolan-mesh/portolan/xds/envoy/upstream"
)

// TestSmokeEnvoyAcceptsBootstraps: the real Envoy accepts every form of a bootstrap.
func TestSmokeEnvoyAcceptsBootstraps(t *testing.T) {
	t.Parallel()
	sidecar := bootstrap.Options{Type: discovery.Sidecar, IPs: []string{"10.0.0.1"}, Name: "web-1", Namespace: "shop"}
	full := sidecar
	full.IPs = []string{"10.0.0.1", "fd00::1"}
	full.Labels = labels.Instance{"app": "web"}
	full.ServiceAccount, full.ClusterID, full.Network, full.Locality = "web", "east", "dmz", "eu/a/rack-7"
	full.InterceptionMode = discovery.InterceptionRedirect
	full.SelfDiscovery = true
	full.Certificate = discovery.CertificateFiles{Chain: "/etc/mesh/cert.pem", Key: "/etc/mesh/key.pem", Roots: "/etc/mesh/ca.pem"}
	full.XDSAddresses, full.StateOfTheWorld, full.AdminAddress = []string{"mesh.example.com:15010", "10.0.0.1:15010"}, true, "[::1]:15000"
	router := sidecar
	router.Type, router.XDSAddresses, router.AdminAddress = discovery.Router, []string{"unix:///run/xds.sock"}, bootstrap.AdminOff
	for name, o := range map[string]bootstrap.Options{"sidecar": sidecar, "full": full, "router": router} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := bootstrap.Build(o)
			if err != nil {
				t.Fatal(err)
			}
			validate(t, b)
		})
	}
}

// TestSmokeEnvoyAcceptsConstructors: the real Envoy accepts all that xds/envoy makes, with
// every option.
func TestSmokeEnvoyAcceptsConstructors(t *testing.T) {
	t.Parallel()
	b, err := bootstrap.Build(bootstrap.Options{
		Type: discovery.Sidecar, IPs: []string{"10.0.0.1"}, Name: "web-1", Namespace: "shop",
	})
	if err != nil {
		t.Fatal(err)
	}
	b.StaticResources.Clusters = append(b.StaticResources.Clusters, everyCluster()...)
	b.StaticResources.Listeners = everyListener()
	validate(t, b)
}

// validate checks a configuration with Envoy. Warnings are errors, since they name deprecated
// fields, among other things.
func validate(t *testing.T, b *bootstrapv3.Bootstrap) {
	t.Helper()
	path := needEnvoy(t)
	for name, render := range map[string]func(*bootstrapv3.Bootstrap) ([]byte, error){
		"bootstrap.json": bootstrap.JSON,
		"bootstrap.yaml": func(b *bootstrapv3.Bootstrap) ([]byte, error) { return bootstrap.PatchedYAML(b, nil) },
	} {
		document, err := render(b)
		if err != nil {
			t.Fatal(err)
		}
		config := write(t, name, string(document))
		out, err := exec.CommandContext(t.Context(), path, "--mode", "validate", "--log-level", "warning", "-c", config).CombinedOutput()
		if err != nil {
			t.Fatalf("Envoy refuses %s: %v\n%s", filepath.Base(config), err, out)
		}
		if bytes.Contains(out, []byte("[warning]")) {
			t.Errorf("Envoy warns of %s:\n%s", filepath.Base(config), out)
		}
	}
}

func everyCluster() []*clusterv3.Cluster {
	threshold := 0.0
	addresses := []upstreams.Endpoints{
		{Locality: "eu/a/1", Endpoints: []upstreams.Endpoint{
			{Host: "10.0.0.1", Port: 80, Weight: 1 << 31, Metadata: metadata.EndpointMetadata{Workload: "w;ns;;;", TLSMode: "istio"}},
			{Host: "fd00::1", Port: 80, Weight: 1 << 31, Health: corev3.HealthStatus_UNHEALTHY},
		}},
		{Locality: "eu/b", Priority: 1, Endpoints: []upstreams.Endpoint{{Host: "unix:///run/s.sock"}, {Host: "unix://@abstract"}}},
	}
	name := []upstreams.Endpoints{{Endpoints: []upstreams.Endpoint{{Host: "db.example.com", Port: 3306}}}}
	failures := uint32(2)
	options := []upstreams.ClusterOptions{
		{Name: names.Cluster(names.Outbound, 80, "v1", "web.example.com"), Metadata: metadata.ClusterMetadata{
			Config: "/apis/x", Subset: "v1", External: true, Services: []metadata.ServiceRef{{Host: "web.example.com", Name: "web", Namespace: "shop"}},
		}},
		{Name: "static", Type: upstreams.Static, Endpoints: addresses, ConnectTimeout: time.Second,
			LoadBalancer: upstreams.LoadBalancer{PanicThreshold: &threshold, LocalityWeighted: true, WarmUp: &upstreams.WarmUp{Window: time.Minute, MinPercent: 10, Aggression: 1}},
			Keepalive:    &upstreams.Keepalive{Probes: 3, Time: time.Hour, Interval: time.Second},
			CircuitBreakers: upstreams.CircuitBreakers{
				MaxConnections: 1, MaxPendingRequests: 1, MaxRequests: 1, MaxRetries: 1,
				RetryBudget: &upstreams.RetryBudget{Percent: 20, MinConcurrency: 3, Interval: time.Second},
			}},
		{Name: "strict-dns", Type: upstreams.StrictDNS, Endpoints: name, DNS: upstreams.DNSOptions{Family: upstreams.DNSv4Only, RefreshRate: time.Minute}},
		{Name: "logical-dns", Type: upstreams.LogicalDNS, Endpoints: name, DNS: upstreams.DNSOptions{Family: upstreams.DNSAll}},
		{Name: "v6", Type: upstreams.LogicalDNS, Endpoints: name, DNS: upstreams.DNSOptions{Family: upstreams.DNSv6Only}},
		{Name: "original", Type: upstreams.OriginalDst, PortOverride: 8080},
		{Name: "dynamic", Type: upstreams.DynamicDNS, DNS: upstreams.DNSOptions{Family: upstreams.DNSv4Only}, HTTP: &upstreams.HTTP{Protocol: upstreams.HTTP2}},
		{Name: "dynamic-v6", Type: upstreams.DynamicDNS, DNS: upstreams.DNSOptions{Family: upstreams.DNSv6Only}},
		{Name: "dynamic-all", Type: upstreams.DynamicDNS, DNS: upstreams.DNSOptions{Family: upstreams.DNSAll}},
		{Name: "zones", Type: upstreams.Static, LoadBalancer: upstreams.LoadBalancer{Zones: &upstreams.Zones{Enabled: true, MinClusterSize: 1}}},
		{Name: "no zones", Type: upstreams.Static, LoadBalancer: upstreams.LoadBalancer{Policy: upstreams.Maglev, Zones: &upstreams.Zones{}}},
		{Name: "round-robin", Type: upstreams.Static, LoadBalancer: upstreams.LoadBalancer{Policy: upstreams.RoundRobin, WarmUp: &upstreams.WarmUp{Window: time.Minute}}},
		{Name: "random", Type: upstreams.Static, LoadBalancer: upstreams.LoadBalancer{Policy: upstreams.Random}},
		{Name: "ring", Type: upstreams.Static, LoadBalancer: upstreams.LoadBalancer{Policy: upstreams.RingHash}},
		{Name: "maglev", Type: upstreams.Static, LoadBalancer: upstreams.LoadBalancer{Policy: upstreams.Maglev, TableSize: 251}},
		{Name: "http1", Type: upstreams.Static, HTTP: &upstreams.HTTP{
			IdleTimeout: durationpb.New(0), MaxConnectionDuration: time.Hour, MaxRequestsPerConnection: 9,
		}},
		{Name: "http2", Type: upstreams.Static, HTTP: &upstreams.HTTP{
			Protocol: upstreams.HTTP2, MaxConcurrentStreams: 7, PingInterval: time.Minute, PingTimeout: time.Second,
		}},
		{Name: "outliers", Type: upstreams.Static, ProxyProtocol: socket.ProxyProtocolV1, Outliers: &upstreams.OutlierDetection{
			Consecutive5xx: new(uint32), ConsecutiveGateway: &failures, SplitLocalOrigin: true, ConsecutiveLocalOrigin: 3,
			Interval: time.Millisecond, BaseEjectionTime: time.Hour, MaxEjectionPercent: 100, ErrorCodes: []uint32{429, 503},
		}},
		{Name: "outliers by default", Type: upstreams.Static, ProxyProtocol: socket.ProxyProtocolV2, Outliers: &upstreams.OutlierDetection{ErrorCodes: []uint32{429}}},
		{Name: "checked", Type: upstreams.Static, Check: &upstreams.HealthCheck{Host: "a.example.com", Path: "/healthz", Interval: time.Second, HTTP2: true},
			Endpoints: []upstreams.Endpoints{{Endpoints: []upstreams.Endpoint{{Host: "10.0.0.1", Port: 80}, {Host: "10.0.0.2", Port: 80, Unchecked: true}}}}},
		{Name: "downstream", Type: upstreams.Static, HTTP: &upstreams.HTTP{Protocol: upstreams.UseDownstream}},
	}
	out := []*clusterv3.Cluster{
		upstreams.BlackHoleCluster(time.Second), upstreams.Cluster(upstreams.PassthroughCluster(time.Second, &upstreams.Keepalive{Time: time.Minute})),
		upstreams.Cluster(upstreams.InboundPassthroughCluster(time.Second, "127.0.0.6", "::6")),
	}
	for _, o := range options {
		out = append(out, upstreams.Cluster(o))
	}
	return out
}

func everyListener() []*listenerv3.Listener {
	filters := []*hcmv3.HttpFilter{messages.GRPCWebFilter(false), messages.FaultFilter(), messages.CORSFilter(), messages.DynamicDNSFilter(upstreams.DNSv4Only), messages.RouterFilter()}
	logs := []*accesslogv3.AccessLog{accesslog.New(accesslog.Options{Path: "/dev/null"}, accesslog.Filter{})}
	chain := func(name string, o messages.FilterChainOptions, f ...*listenerv3.Filter) *listenerv3.FilterChain {
		o.Name, o.Filters = name, f
		return messages.FilterChain(o)
	}
	weighted := []messages.WeightedCluster{{Name: "static", Weight: 1}, {Name: "http1", Weight: 2}}
	return []*listenerv3.Listener{
		messages.Listener(messages.ListenerOptions{
			Name: names.Listener("127.0.0.1", 10080), Host: "127.0.0.1", Port: 10080, Direction: corev3.TrafficDirection_OUTBOUND,
			HTTPInspector: &messages.Inspection{}, TLSInspector: &messages.Inspection{Only: []uint32{443}}, DetectionTimeout: time.Second,
			AccessLogs: []*accesslogv3.AccessLog{accesslog.New(accesslog.Options{Path: "/dev/null"}, accesslog.Filter{NoRoute: true})},
			FilterChains: []*listenerv3.FilterChain{
				chain("inline", messages.FilterChainOptions{
					TransportProtocol: messages.TransportRaw, ApplicationProtocols: messages.PlaintextHTTP(),
				}, messages.HTTPConnectionManager(messages.HTTPOptions{
					StatPrefix: names.HTTPStatPrefix(names.Outbound, "127.0.0.1_10080"), Edge: true,
					ServerName: messages.ServerName, RouteConfig: everyRoute(), AccessLogs: logs, Filters: filters,
				})),
				chain("over-ads", messages.FilterChainOptions{
					DestinationPort: 80, Prefixes: []messages.CIDR{{Address: "10.0.0.0", Bits: 8}, {Address: "fd00::", Bits: 8}},
				}, messages.HTTPConnectionManager(messages.HTTPOptions{StatPrefix: "h", RouteConfigName: "80", Filters: filters})),
				chain("names", messages.FilterChainOptions{
					TransportProtocol: "tls", ServerNames: []string{"web.example.com", "*.example.org"},
				}, messages.TCPProxy(messages.TCPProxyOptions{StatPrefix: "t", Clusters: weighted, HashSourceIP: true, AccessLogs: logs})),
				chain("dynamic-names", messages.FilterChainOptions{ServerNames: []string{"*.example.net"}}, messages.SNIDynamicDNSFilter(upstreams.DNSv4Only, 443),
					messages.TCPProxy(messages.TCPProxyOptions{StatPrefix: "n", Clusters: []messages.WeightedCluster{{Name: "dynamic"}}})),
			},
			DefaultFilterChain: chain(names.PassthroughFilterChain, messages.FilterChainOptions{}, messages.TCPProxy(
				messages.TCPProxyOptions{StatPrefix: "p", Clusters: weighted[:1], IdleTimeout: durationpb.New(time.Minute)})),
		}),
		messages.Listener(messages.ListenerOptions{
			Name: "redirected", Host: "0.0.0.0", MoreHosts: []string{"::"}, Port: 10082, Direction: corev3.TrafficDirection_INBOUND,
			HandOff: true, ProxyProtocol: true, OriginalDst: true, OriginalSrc: true, Free: true, HTTPInspector: &messages.Inspection{Except: []uint32{80, 81}},
			FilterChains: []*listenerv3.FilterChain{chain("", messages.FilterChainOptions{}, messages.HTTPConnectionManager(
				messages.HTTPOptions{StatPrefix: "i", RouteConfigName: "80", ClientCert: hcmv3.HttpConnectionManager_SANITIZE_SET, ClientCertDetails: &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Cert: true, Chain: true}, Filters: filters}))},
		}),
		messages.Listener(messages.ListenerOptions{
			Name: names.QUICListener("127.0.0.1", 10084), Host: "127.0.0.1", Port: 10084, QUIC: true, Direction: corev3.TrafficDirection_OUTBOUND,
			FilterChains: []*listenerv3.FilterChain{chain("", messages.FilterChainOptions{
				ServerNames: []string{"web.example.com"},
				Transport: socket.DownstreamTLS(socket.DownstreamTLSOptions{
					QUIC: true, TLSOptions: socket.TLSOptions{Certificates: []socket.SecretRef{{Name: "default"}}, ALPN: []string{"h3"}},
				}),
			}, messages.HTTPConnectionManager(messages.HTTPOptions{StatPrefix: "q", RouteConfigName: "443", HTTP3: true, Edge: true, Filters: filters}))},
		}),
		messages.Listener(messages.ListenerOptions{
			Name: "inspected", Host: "127.0.0.1", Port: 10083, HTTPInspector: &messages.Inspection{Except: []uint32{80}}, Direction: corev3.TrafficDirection_INBOUND,
			FilterChains: []*listenerv3.FilterChain{chain("", messages.FilterChainOptions{}, messages.TCPProxy(messages.TCPProxyOptions{StatPrefix: "b"}))},
		}),
		messages.Listener(messages.ListenerOptions{
			Name: "unbound", Host: "0.0.0.0", Port: 10081, Unbound: true, Direction: corev3.TrafficDirection_INBOUND,
			FilterChains: []*listenerv3.FilterChain{chain("", messages.FilterChainOptions{}, messages.TCPProxy(messages.TCPProxyOptions{StatPrefix: "b"}))},
		}),
	}
}

func everyRoute() *routev3.RouteConfiguration {
	clusters := []messages.WeightedCluster{{Name: "static"}}
	ttl := time.Hour
	headers := messages.Headers{
		Request:  messages.HeaderOps{Set: map[string]string{"host": "h", "x": "%START_TIME%"}, Add: map[string]string{"y": "1"}, Remove: []string{"z"}},
		Response: messages.HeaderOps{Set: map[string]string{"x": "1"}, Add: map[string]string{"y": "1"}, Remove: []string{"z"}},
	}
	exact := messages.StringMatch{Kind: messages.Exact, Value: "v"}
	routes := []messages.RouteOptions{
		{
			Name: "forward", Operation: "op", Config: "/apis/x", Headers: headers,
			Match: messages.MatchOptions{
				Path: messages.StringMatch{Kind: messages.Prefix, Value: "/a"}, IgnorePathCase: true, Method: &exact, Authority: &exact, HTTPScheme: &exact,
				Headers: []messages.NamedMatch{
					{Name: "a"}, {Name: "b", StringMatch: exact, Invert: true}, {Name: "c", StringMatch: messages.StringMatch{Kind: messages.Regex, Value: "x.*"}},
				},
				QueryParameters: []messages.NamedMatch{{Name: "a"}, {Name: "b", StringMatch: exact}},
			},
			Forward: &messages.Forward{
				GRPCWeb:  true,
				Clusters: clusters, Timeout: time.Second, PrefixRewrite: "/b", HostRewrite: "h",
				Retry: &messages.RetryOptions{
					On: "5xx,503", PerTryTimeout: time.Second, Backoff: time.Millisecond, RemoteLocalities: true,
				},
				Mirrors: []messages.Mirror{{Cluster: "http1", Percentage: 0.5}, {Cluster: "static", Percentage: 100}},
				HashPolicies: []messages.HashPolicy{
					{Header: "x"}, {QueryParameter: "q"}, {SourceIP: true},
					{Cookie: &messages.HashCookie{Name: "c", Path: "/", TTL: &ttl, Attributes: []messages.CookieAttribute{{Name: "SameSite", Value: "Lax"}}}},
				},
			},
		},
		{
			Match:   messages.MatchOptions{Path: messages.StringMatch{Kind: messages.Prefix, Value: "/c/"}},
			Forward: &messages.Forward{Clusters: clusters},
			CORS: &messages.CORS{
				Origins: []messages.StringMatch{exact, {Kind: messages.Regex, Value: "https://.*"}}, Methods: []string{"GET", "POST"}, Headers: []string{"a"},
				ExposeHeaders: []string{"b"}, MaxAge: &ttl, Credentials: new(bool), AnswerUnmatched: true,
			},
		},
		{
			Match: messages.MatchOptions{Path: messages.StringMatch{Kind: messages.Prefix, Value: "/s/"}},
			Forward: &messages.Forward{
				Clusters: []messages.WeightedCluster{{Name: "static", Weight: 1, Headers: headers}, {Name: "http1", Weight: 99}},
				Retry:    &messages.RetryOptions{}, RegexRewrite: &messages.RegexRewrite{Match: "/s/(.*)", Substitution: `/\1`},
			},
		},
		{
			Match:    messages.MatchOptions{Path: messages.StringMatch{Kind: messages.Regex, Value: "/[a-z]{1,200}(/.*)?"}},
			Redirect: &messages.Redirect{Code: 308, Scheme: "https", Host: "h", PrefixRewrite: "/", Port: 8443},
		},
		{Match: messages.MatchOptions{Path: exactPath("/moved")}, Redirect: &messages.Redirect{Path: "/new"}},
		{Match: messages.MatchOptions{Path: exactPath("/tea")}, DirectResponse: &messages.DirectResponse{Status: 418, Body: make([]byte, 1<<20)}},
		{},
	}
	return messages.RouteConfig(messages.RouteConfigOptions{Name: "80", MaxDirectResponseBody: 1 << 20, VirtualHosts: []*routev3.VirtualHost{
		messages.VirtualHost(messages.VirtualHostOptions{Name: "web:80", Domains: []string{"web.example.com"}, Routes: routes}),
		messages.VirtualHost(messages.VirtualHostOptions{Name: "tls", Domains: []string{"*"}, RequireTLS: true}),
	}})
}

func exactPath(path string) messages.StringMatch {
	return messages.StringMatch{Kind: messages.Exact, Value: path}
}
