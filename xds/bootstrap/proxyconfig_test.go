package bootstrap_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
)

// TestProxyConfig: what the mesh says of a proxy is in its bootstrap, its command line and its
// environment, and the server reads it from the node.
func TestProxyConfig(t *testing.T) {
	t.Parallel()
	p := &meshv1alpha1.ProxyConfig{
		Concurrency: wrapperspb.Int32(2), DrainDuration: durationpb.New(9 * time.Second), FileFlushInterval: durationpb.New(time.Second), MeshId: "m",
		ClusterName:        &meshv1alpha1.ProxyConfig_ServiceCluster{ServiceCluster: "c"},
		ProxyMetadata:      map[string]string{"A": "b", "LD_PRELOAD": "x", "ENVOY_DYNAMIC_MODULES_SEARCH_PATH": "/x", "ISTIO_META_HTTP10": "1", "ISTIO_META_NAME": "other"},
		RuntimeValues:      map[string]string{"a.b": "7"},
		ProxyStatsMatcher:  &meshv1alpha1.ProxyConfig_ProxyStatsMatcher{InclusionSuffixes: []string{"upstream_rq_timeout"}},
		ProxyHeaders:       &meshv1alpha1.ProxyConfig_ProxyHeaders{Server: &meshv1alpha1.ProxyConfig_ProxyHeaders_Server{Value: "own"}},
		ConnectionSettings: &meshv1alpha1.ProxyConfig_ConnectionSettings{GlobalDownstreamConnectionLimit: wrapperspb.Int32(50)},
	}
	b, err := bootstrap.Build(bootstrap.Options{Type: discovery.Sidecar, IPs: []string{"10.0.0.1"}, Name: "n", Namespace: "shop", Config: p})
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := discovery.ParseProxy(b.GetNode())
	if err != nil || proxy.Settings.HTTP10 != "1" || proxy.Settings.Config == "" {
		t.Errorf("the server reads %+v, %v", proxy.Settings, err)
	}
	fields := b.GetNode().GetMetadata().GetFields()
	if fields["NAME"].GetStringValue() != "n" || fields["MESH_ID"].GetStringValue() != "m" || b.GetNode().GetCluster() != "c" {
		t.Errorf("the node is %v", b.GetNode())
	}
	if got := b.GetLayeredRuntime().GetLayers()[0].GetStaticLayer().GetFields()["a.b"].GetStringValue(); got != "7" {
		t.Errorf("the runtime has %q", got)
	}
	if len(b.GetStatsConfig().GetStatsMatcher().GetInclusionList().GetPatterns()) < 8 || len(b.GetOverloadManager().GetResourceMonitors()) != 1 {
		t.Errorf("the bootstrap lacks statistics or limits: %v", b)
	}
	for what, c := range map[string]struct{ got, want []string }{
		"arguments":       {bootstrap.Arguments(p, nil), []string{"--concurrency", "2", "--file-flush-interval-msec", "1000"}},
		"those of a file": {bootstrap.Arguments(p, []string{"--concurrency=8"}), []string{"--file-flush-interval-msec", "1000"}},
		"drain":           {bootstrap.DrainArguments(p), []string{"--drain-time-s", "9"}},
		"environment":     {bootstrap.Environment(p), []string{"A=b"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %q, want %q", what, c.got, c.want)
		}
	}
}

// TestStatsSinks: an Envoy sends its statistics where its ProxyConfig says, by the certificate of the
// mesh where that is asked for.
func TestStatsSinks(t *testing.T) {
	t.Parallel()
	service := func(mode networking.ClientTLSSettings_TLSmode) *meshv1alpha1.RemoteService {
		return &meshv1alpha1.RemoteService{
			Address: "metrics.test:9000", TlsSettings: &networking.ClientTLSSettings{Mode: mode, SubjectAltNames: []string{"spiffe://mesh/ns/a/sa/metrics"}},
			TcpKeepalive: &networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive{Probes: 3},
		}
	}
	options := bootstrap.Options{Type: discovery.Sidecar, IPs: []string{"10.0.0.1"}, Name: "n", Namespace: "shop", Config: &meshv1alpha1.ProxyConfig{StatsdUdpAddress: "[2001:db8::9]:8125"}}
	build := func(s *meshv1alpha1.RemoteService, socket string) (*bootstrapv3.Bootstrap, error) {
		o := options
		o.Config = proto.CloneOf(o.Config)
		o.Config.EnvoyMetricsService, o.SDSSocket, o.TLS = s, socket, socket != ""
		return bootstrap.Build(o)
	}
	if b, err := build(nil, ""); err != nil || len(b.GetStatsSinks()) != 1 || !strings.Contains(b.String(), "2001:db8::9") || !strings.Contains(b.String(), "UDP") {
		t.Errorf("statsd alone: %v, %v", b.GetStatsSinks(), err)
	}
	plain, err := build(service(networking.ClientTLSSettings_DISABLE), "")
	if err != nil || len(plain.GetStatsSinks()) != 2 || !strings.Contains(plain.String(), "metrics.test") || strings.Contains(plain.String(), "UpstreamTlsContext") {
		t.Errorf("in plaintext: %v, %v", plain, err)
	}
	if b, err := build(service(networking.ClientTLSSettings_ISTIO_MUTUAL), "/run/sds"); err != nil || strings.Count(b.String(), "UpstreamTlsContext") != 2 || !strings.Contains(b.String(), "sa/metrics") {
		t.Errorf("over TLS: %v, %v", b, err)
	}
	for _, s := range []*meshv1alpha1.RemoteService{service(networking.ClientTLSSettings_ISTIO_MUTUAL), {Address: "nowhere"}} {
		if _, err := build(s, ""); err == nil || !strings.Contains(err.Error(), "the ProxyConfig: envoyMetricsService.") {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// TestTracingServiceName: the proxy's service has the name that its ProxyConfig asks for.
func TestTracingServiceName(t *testing.T) {
	t.Parallel()
	app := labels.Instance{"app": "web", "app.kubernetes.io/name": "storefront"}
	for _, c := range []struct {
		name   meshv1alpha1.ProxyConfig_TracingServiceName
		labels labels.Instance
		want   string
	}{
		{meshv1alpha1.ProxyConfig_APP_LABEL_AND_NAMESPACE, app, "web.shop"},
		{meshv1alpha1.ProxyConfig_CANONICAL_NAME_ONLY, app, "storefront"},
		{meshv1alpha1.ProxyConfig_CANONICAL_NAME_AND_NAMESPACE, app, "storefront.shop"},
		{meshv1alpha1.ProxyConfig_APP_LABEL_AND_NAMESPACE, nil, "n.shop"},
		{meshv1alpha1.ProxyConfig_CANONICAL_NAME_ONLY, nil, "n"},
	} {
		b, err := bootstrap.Build(bootstrap.Options{Type: discovery.Sidecar, IPs: []string{"10.0.0.1"}, Name: "n", Namespace: "shop", Labels: c.labels, Config: &meshv1alpha1.ProxyConfig{
			ClusterName: &meshv1alpha1.ProxyConfig_TracingServiceName_{TracingServiceName: c.name},
		}})
		if err != nil || b.GetNode().GetCluster() != c.want {
			t.Errorf("%s of %v: %q, %v, want %q", c.name, c.labels, b.GetNode().GetCluster(), err, c.want)
		}
	}
}
