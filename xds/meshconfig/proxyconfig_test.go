package meshconfig_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

func TestProxyConfigNamesAllFaults(t *testing.T) {
	t.Parallel()
	_, _, err := meshconfig.Parse([]byte(`defaultConfig:
  concurrency: -1
  drainDuration: 0.5s
  terminationDrainDuration: -1s
  fileFlushInterval: 0s
  proxyMetadata: {"a=b": c}
  proxyStatsMatcher: {inclusionRegexps: ["("]}
  proxyHeaders: {server: {value: "a\nb"}}
  connectionSettings: {http2InitialStreamWindowSize: 1, httpIdleTimeout: -1s, listenerPerConnectionBufferLimitBytes: 0, profile: 7}
`))
	for _, part := range []string{
		"defaultConfig.concurrency: must be at least 0, is -1", "defaultConfig.drainDuration: must be at least 1s", "defaultConfig.terminationDrainDuration: must be at least 0s",
		"defaultConfig.fileFlushInterval: must be at least 1ms", "defaultConfig.proxyMetadata[a=b]: is no name", "inclusionRegexps[0]: \"(\" is no regular expression",
		"proxyHeaders.server.value: must be in one line", "http2InitialStreamWindowSize: must be at least 65535, is 1", "httpIdleTimeout: must be at least 0s",
		"listenerPerConnectionBufferLimitBytes: must be at least 1", "connectionSettings.profile: 7 is unknown: use SIDECAR or EDGE",
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want %q in it", err, part)
		}
	}
}

// TestOver: what a proxy states outranks the mesh, field by field.
func TestOver(t *testing.T) {
	t.Parallel()
	c, _, err := meshconfig.Parse([]byte(`defaultConfig: {proxyHeaders: {server: {value: mesh}, attemptCount: {disabled: true}}, proxyMetadata: {ISTIO_META_HTTP10: "1", ISTIO_META_IDLE_TIMEOUT: 5s}}`))
	if err != nil {
		t.Fatal(err)
	}
	own, err := proto.Marshal(&meshv1alpha1.ProxyConfig{ProxyHeaders: &meshv1alpha1.ProxyConfig_ProxyHeaders{Server: &meshv1alpha1.ProxyConfig_ProxyHeaders_Server{Value: "own"}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		stated discovery.ProxySettings
		server string
		http10 bool
		idle   string
	}{
		"nothing":      {discovery.ProxySettings{}, "mesh", true, "5s"},
		"a header":     {discovery.ProxySettings{Config: string(own)}, "own", true, "5s"},
		"no HTTP/1.0":  {discovery.ProxySettings{HTTP10: "0"}, "mesh", false, "5s"},
		"another time": {discovery.ProxySettings{IdleTimeout: "0s"}, "mesh", true, "0s"},
	} {
		got := c.Over(want.stated)
		server, keep := got.ServerHeader()
		if server != want.server || keep || got.AcceptsHTTP10() != want.http10 || got.IdleTimeout().AsDuration().String() != want.idle || got.CountsAttempts() {
			t.Errorf("%s: %v", name, got.GetDefaultConfig())
		}
	}
	if set := c.GetDefaultConfig().GetProxyHeaders().GetServer().GetValue(); set != "mesh" {
		t.Errorf("the mesh has %q now", set)
	}
}

// TestEdgeProfile: the profile EDGE is for gateways, and what is set outranks it.
func TestEdgeProfile(t *testing.T) {
	t.Parallel()
	c, _, err := meshconfig.Parse([]byte("defaultConfig: {connectionSettings: {profile: EDGE, httpMergeSlashes: false, httpIdleTimeout: 7s}}"))
	if err != nil {
		t.Fatal(err)
	}
	edge, sidecar := c.Connections(true), c.Connections(false)
	if edge.GetHttpMaxConcurrentStreams().GetValue() != 100 || edge.GetHttpMergeSlashes().GetValue() || edge.GetHttpIdleTimeout().GetSeconds() != 7 ||
		edge.GetHttpHeadersWithUnderscoresAction() != meshv1alpha1.ProxyConfig_ConnectionSettings_HEADERS_WITH_UNDERSCORES_REJECT_REQUEST {
		t.Errorf("a gateway has %v", edge)
	}
	if sidecar.GetHttpMaxConcurrentStreams() != nil || sidecar.GetHttpIdleTimeout().GetSeconds() != 7 {
		t.Errorf("a sidecar has %v", sidecar)
	}
}
