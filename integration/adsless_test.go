package integration

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestEnvoyWithoutADS: an Envoy with a stream for each type, instead of ADS, gets a clear
// error.
func TestEnvoyWithoutADS(t *testing.T) {
	t.Parallel()
	path := needEnvoy(t)
	s := xdstest.NewServer(t, catalogue.Types())
	_, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		t.Fatal(err)
	}
	config := write(t, "apart.yaml", fill(`
node: {id: sidecar~10.0.0.1~apart.shop~shop.svc.cluster.local, cluster: apart}
dynamic_resources:
  cds_config: &source
    resource_api_version: V3
    api_config_source: {api_type: DELTA_GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}
  lds_config: *source
static_resources:
  clusters:
  - name: xds
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment: {cluster_name: xds, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $port}}}}]}]}
`, "$port", port))
	envoy := start(t, "envoy-apart", path, "-c", config, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
	eventually(t, "the Envoy is told to use ADS", func() error {
		if !strings.Contains(envoy.output(), "have dynamic_resources name an ads_config") {
			return errors.New(envoy.tail())
		}
		return nil
	})
}
