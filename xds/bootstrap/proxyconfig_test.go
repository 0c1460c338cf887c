package bootstrap_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/discovery"
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
