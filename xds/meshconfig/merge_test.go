package meshconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// Fields replace fields. The exceptions are those of Istio.
func TestWith(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, object, want string }{
		"fields":         {"{connectTimeout: 1s, accessLogFile: /a}", "{connectTimeout: 2s}", "{connectTimeout: 2s, accessLogFile: /a}"},
		"whole messages": {"{outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {}}}", "{outboundTrafficPolicy: {}}", "{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}"},
		"lists":          {"{defaultServiceExportTo: [a, b]}", "{defaultServiceExportTo: [c]}", "{defaultServiceExportTo: [c]}"},
		"defaultConfig": {
			"{defaultConfig: {concurrency: 2, statNameLength: 9, gatewayTopology: {numTrustedProxies: 1, proxyProtocol: {}}, serviceCluster: a}}",
			"{defaultConfig: {concurrency: 3, gatewayTopology: {numTrustedProxies: 2}, tracingServiceName: CANONICAL_NAME_ONLY}}",
			"{defaultConfig: {concurrency: 3, statNameLength: 9, gatewayTopology: {numTrustedProxies: 2}, tracingServiceName: CANONICAL_NAME_ONLY}}"},
		"proxyHeaders": {
			"{defaultConfig: {proxyHeaders: {forwardedClientCert: SANITIZE, requestId: {disabled: true}}}}", "{defaultConfig: {proxyHeaders: {forwardedClientCert: FORWARD_ONLY}}}",
			"{defaultConfig: {proxyHeaders: {forwardedClientCert: FORWARD_ONLY, requestId: {disabled: true}}}}"},
		"proxyMetadata": {
			"{defaultConfig: {proxyMetadata: {A: '1', B: '1'}}}", "{defaultConfig: {proxyMetadata: {B: '2', C: '2'}}}", "{defaultConfig: {proxyMetadata: {A: '1', B: '2', C: '2'}}}"},
		"providers": {
			"{extensionProviders: [{name: a, prometheus: {}}, {name: b, prometheus: {}}]}", "{extensionProviders: [{name: b, zipkin: {service: z, port: 1}}, {name: c, prometheus: {}}]}",
			"{extensionProviders: [{name: a, prometheus: {}}, {name: b, zipkin: {service: z, port: 1}}, {name: c, prometheus: {}}]}"},
		"default providers": {"{defaultProviders: {tracing: [a], metrics: [a]}}", "{defaultProviders: {metrics: [b]}}", "{defaultProviders: {tracing: [a], metrics: [b]}}"},
		"aliases":           {"{trustDomainAliases: [c, a]}", "{trustDomainAliases: [b, a]}", "{trustDomainAliases: [c, a, b]}"},
	} {
		of := func(document string) *meshv1alpha1.MeshConfig {
			m := &meshv1alpha1.MeshConfig{}
			if err := config.DecodeMessage(name, []byte(document), m); err != nil {
				t.Fatal(err)
			}
			return m
		}
		file := &meshconfig.Config{MeshConfig: of(c.file), Domain: "mesh.example", HTTP3: true}
		got := file.With(of(c.object))
		if d := cmp.Diff(of(c.want), got.MeshConfig, protocmp.Transform()); d != "" || got.Domain != "mesh.example" || !got.HTTP3 {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if d := cmp.Diff(of(c.file), file.MeshConfig, protocmp.Transform()); d != "" {
			t.Errorf("%s: the file's has changed:\n%s", name, d)
		}
	}
}
