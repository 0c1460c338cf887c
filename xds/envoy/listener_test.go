package envoy_test

import (
	"strings"
	"testing"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	fileaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/accesslog"
	"github.com/portolan-mesh/portolan/xds/envoy/envoytest"
)

const ads = `{"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"}`

func TestListener(t *testing.T) {
	t.Parallel()
	chain := envoy.FilterChain(envoy.FilterChainOptions{Name: "c"})
	const tail = `"filterChains": [{"name": "c"}], "continueOnListenerFiltersTimeout": true`
	for name, c := range map[string]struct {
		options envoy.ListenerOptions
		want    string
	}{
		"bound": {
			envoy.ListenerOptions{Name: "l", Host: "127.0.0.1", Port: 80, Direction: corev3.TrafficDirection_OUTBOUND, DetectionTimeout: time.Second},
			`"address": {"socketAddress": {"address": "127.0.0.1", "portValue": 80}}, "trafficDirection": "OUTBOUND", "listenerFiltersTimeout": "0s"`,
		},
		"unbound, detecting": {
			envoy.ListenerOptions{
				Name: "l", Host: "::", Port: 80, Unbound: true, DetectionTimeout: time.Second, HTTPInspector: &envoy.Inspection{}, TLSInspector: &envoy.Inspection{},
				DefaultFilterChain: chain,
			},
			`"address": {"socketAddress": {"address": "::", "portValue": 80}}, "bindToPort": false, "listenerFiltersTimeout": "1s",
			 "defaultFilterChain": {"name": "c"}, "listenerFilters": [
				{"name": "envoy.filters.listener.tls_inspector", "typedConfig": {
					"@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"}},
				{"name": "envoy.filters.listener.http_inspector", "typedConfig": {
					"@type": "type.googleapis.com/envoy.extensions.filters.listener.http_inspector.v3.HttpInspector"}}]`,
		},
		"socket": {
			envoy.ListenerOptions{Name: "l", Host: "unix:///run/s.sock"},
			`"address": {"pipe": {"path": "/run/s.sock"}}, "listenerFiltersTimeout": "0s"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.options.FilterChains = []*listenerv3.FilterChain{chain}
			envoytest.Check(t, envoy.Listener(c.options), `{"name": "l", `+tail+`, `+c.want+`}`)
		})
	}
}

func TestFilterChain(t *testing.T) {
	t.Parallel()
	envoytest.Check(t, envoy.FilterChain(envoy.FilterChainOptions{
		Name: "c", DestinationPort: 80, TransportProtocol: envoy.TransportRaw, ApplicationProtocols: envoy.PlaintextHTTP(),
		ServerNames: []string{"a.example.com"}, Prefixes: []envoy.CIDR{{Address: "10.0.0.0", Bits: 8}, {Address: "::", Bits: 0}},
	}), `{"name": "c", "filterChainMatch": {"destinationPort": 80, "transportProtocol": "raw_buffer",
		"applicationProtocols": ["http/1.1", "h2c"], "serverNames": ["a.example.com"],
		"prefixRanges": [{"addressPrefix": "10.0.0.0", "prefixLen": 8}, {"addressPrefix": "::", "prefixLen": 0}]}}`)
}

func TestHTTPConnectionManager(t *testing.T) {
	t.Parallel()
	const fixed = `"name": "envoy.filters.network.http_connection_manager", "typedConfig": {
		"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"normalizePath": true, "pathWithEscapedSlashesAction": "KEEP_UNCHANGED", "stripTrailingHostDot": true, "proxy100Continue": true, "streamIdleTimeout": "0s", "upgradeConfigs": [{"upgradeType": "websocket"}],
		"httpFilters": [{"name": "envoy.filters.http.router", "typedConfig": {
			"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]`
	filters := []*hcmv3.HttpFilter{envoy.RouterFilter()}
	envoytest.Check(t, envoy.HTTPConnectionManager(envoy.HTTPOptions{StatPrefix: "p", RouteConfigName: "80", Filters: filters}),
		`{`+fixed+`, "statPrefix": "p", "useRemoteAddress": false, "rds": {"configSource": `+ads+`, "routeConfigName": "80"}}}`)
	inline := envoy.HTTPConnectionManager(envoy.HTTPOptions{
		StatPrefix: "p", RouteConfigName: "ignored", Edge: true, ServerName: envoy.ServerName, Filters: filters,
		RouteConfig: envoy.RouteConfig(envoy.RouteConfigOptions{Name: "r"}),
	})
	envoytest.Check(t, inline, `{`+fixed+`, "statPrefix": "p", "useRemoteAddress": true, "serverName": "istio-envoy",
		"routeConfig": {"name": "r", "validateClusters": false, "ignorePortInHostMatching": true}}}`)
}

func TestTCPProxy(t *testing.T) {
	t.Parallel()
	const head = `"name": "envoy.filters.network.tcp_proxy", "typedConfig": {
		"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "statPrefix": "p"`
	for name, c := range map[string]struct {
		options envoy.TCPProxyOptions
		want    string
	}{
		"one cluster": {
			envoy.TCPProxyOptions{Clusters: []envoy.WeightedCluster{{Name: "c"}}, IdleTimeout: durationpb.New(time.Minute), HashSourceIP: true},
			`"cluster": "c", "idleTimeout": "60s", "hashPolicy": [{"sourceIp": {}}]`,
		},
		"several": {
			envoy.TCPProxyOptions{Clusters: []envoy.WeightedCluster{{Name: "a", Weight: 1}, {Name: "b", Weight: 2}, {Name: "c"}}},
			`"weightedClusters": {"clusters": [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}]}`,
		},
		"none": {envoy.TCPProxyOptions{}, `"cluster": "BlackHoleCluster"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.options.StatPrefix = "p"
			envoytest.Check(t, envoy.TCPProxy(c.options), `{`+head+`, `+c.want+`}}`)
		})
	}
}

func TestFiltersOfChain(t *testing.T) {
	t.Parallel()
	http := envoy.FilterChain(envoy.FilterChainOptions{Filters: []*listenerv3.Filter{
		envoy.HTTPConnectionManager(envoy.HTTPOptions{StatPrefix: "h", RouteConfigName: "80"}),
	}})
	tcp := envoy.FilterChain(envoy.FilterChainOptions{Filters: []*listenerv3.Filter{envoy.TCPProxy(envoy.TCPProxyOptions{StatPrefix: "t"})}})
	if got := envoytest.HTTPConnectionManagerOf(http).GetStatPrefix(); got != "h" {
		t.Errorf("the HTTP chain has %q", got)
	}
	if got := envoytest.RouteConfigNameOf(http); got != "80" {
		t.Errorf("the HTTP chain's routes are %q", got)
	}
	if got := envoytest.TCPProxyOf(tcp).GetStatPrefix(); got != "t" {
		t.Errorf("the TCP chain has %q", got)
	}
	if envoytest.HTTPConnectionManagerOf(tcp) != nil || envoytest.TCPProxyOf(http) != nil || envoytest.RouteConfigNameOf(nil) != "" {
		t.Error("a filter was found where there is none")
	}
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	format := func(log *accesslogv3.AccessLog) string {
		t.Helper()
		envoytest.CheckValid(t, log)
		var file fileaccesslogv3.FileAccessLog
		if err := log.GetTypedConfig().UnmarshalTo(&file); err != nil {
			t.Fatal(err)
		}
		if file.GetPath() != "/dev/stdout" {
			t.Errorf("path %q", file.GetPath())
		}
		return file.GetLogFormat().GetTextFormatSource().GetInlineString()
	}
	log := accesslog.New(accesslog.Options{Path: "/dev/stdout"}, accesslog.Filter{NoRoute: true})
	if got := format(log); got != accesslog.TextFormat || strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "[%START_TIME%] \"") {
		t.Errorf("by default: %q", got)
	}
	if got := log.GetFilter().GetResponseFlagFilter().GetFlags(); len(got) != 1 || got[0] != "NR" {
		t.Errorf("flags %v", got)
	}
	for _, in := range []string{"%PROTOCOL%", "%PROTOCOL%\n"} {
		if got := format(accesslog.New(accesslog.Options{Path: "/dev/stdout", Format: in}, accesslog.Filter{})); got != "%PROTOCOL%\n" {
			t.Errorf("%q became %q", in, got)
		}
	}
}
