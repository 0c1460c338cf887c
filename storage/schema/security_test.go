package schema_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestUnservedSecurity: fields that look secure and have no effect are reported apart from
// other fields without effect, and are no faults of the object.
func TestUnservedSecurity(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind config.GroupVersionKind
		spec string
		want []string // fields
	}{
		"authorization": {schema.AuthorizationPolicy, `{rules: [{}]}`, nil},
		"peers":         {schema.PeerAuthentication, `{mtls: {mode: PERMISSIVE}}`, nil},
		"a plugin":      {schema.WasmPlugin, `{url: "file:///a", phase: AUTHZ}`, nil},
		"visibility":    {schema.MeshConfig, `{serviceEntryVisibility: {applyToSidecars: true}}`, []string{"spec.serviceEntryVisibility.applyToSidecars"}},
		"patches": {schema.EnvoyFilter, `
			configPatches:
			- {applyTo: HTTP_FILTER, patch: {operation: INSERT_BEFORE, value: {name: envoy.filters.http.rbac}}}
			- {applyTo: CLUSTER, patch: {operation: MERGE, value: {transport_socket: {name: envoy.transport_sockets.tls}}}}`, nil},
		"TLS of clients":    {schema.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}`, nil},
		"no TLS":            {schema.DestinationRule, `{host: a.b, trafficPolicy: {tls: {mode: DISABLE}, retryBudget: {}}}`, nil},
		"names of a server": {schema.ServiceEntry, `{hosts: [a.b], ports: [{number: 1, name: a, protocol: HTTP}], subjectAltNames: [a]}`, nil},
		"servers of a gateway": {schema.Gateway, `
			servers:
			- {port: {number: 1, name: a, protocol: HTTP}, hosts: ["*"], tls: {httpsRedirect: true}}
			- {port: {number: 2, name: b, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: a}}
			- {port: {number: 3, name: c, protocol: TLS}, hosts: ["*"], tls: {mode: PASSTHROUGH}}
			- {port: {number: 5, name: e, protocol: TCP}, hosts: ["*"]}`,
			nil},
		"a sidecar": {schema.Sidecar, `
			ingress: [{port: {number: 1, name: a, protocol: HTTPS}, tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}}]`,
			nil},
		"claims": {schema.VirtualService, `
			hosts: [a.b]
			gateways: [edge]
			http:
			- match: [{headers: {"@request.auth.claims.sub": {exact: a}, x: {exact: a}}}, {withoutHeaders: {"@request.auth.claims[sub]": {}}}]
			  route: [{destination: {host: a.b}}]
			tls: [{match: [{sniHosts: [a.b]}], route: [{destination: {host: a.b}}]}]`,
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			documents, err := config.Decode("test.yaml", []byte(spec(test.kind, test.spec)), schema.Pilot().Type)
			if err != nil {
				t.Fatal(err)
			}
			object := documents[0].Config
			if test.kind == schema.MeshConfig {
				object.Name = schema.MeshConfigName
			}
			kind := schema.Pilot().Kind(test.kind)
			warnings, err := kind.Validate(object)
			if err != nil || len(warnings) < len(test.want) {
				t.Errorf("%v, warnings %q", err, warnings)
			}
			var got []string
			insecure, err := kind.UnservedSecurity(object)
			if err != nil {
				t.Error(err)
			}
			for _, f := range insecure {
				got = append(got, f.Field)
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("fields (-want +got):\n%s", d)
			}
		})
	}
}
