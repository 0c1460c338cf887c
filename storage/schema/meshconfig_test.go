package schema_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMeshConfigRules(t *testing.T) {
	t.Parallel()
	validated := func(name, spec string) (refused, warned []string) {
		m := &meshv1alpha1.MeshConfig{}
		if err := config.DecodeMessage("spec", []byte(spec), m); err != nil {
			t.Fatal(err)
		}
		object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.MeshConfig, Namespace: "istio-system", Name: name}, Spec: m}
		warnings, err := schema.Pilot().Kind(schema.MeshConfig).Validate(object)
		return messages(err), texts(warnings)
	}
	for _, c := range []struct {
		name, spec      string
		refused, warned []string
	}{
		{"default", "{connectTimeout: 3s, outboundTrafficPolicy: {mode: REGISTRY_ONLY}}", nil, nil},
		{"default", "{}", nil, nil},
		{"mine", "{}", []string{"metadata.name: must be default: a mesh has one MeshConfig"}, nil},
		{"default", "{rootNamespace: a, trustDomain: b}", []string{
			"spec.rootNamespace: set it in the file of --mesh-config and restart the servers: it holds from their start",
			"spec.trustDomain: set it in the file of --mesh-config and restart the servers: it holds from their start"}, nil},
		{"default", "{connectTimeout: 0s, defaultConfig: {gatewayTopology: {forwardClientCertDetails: 9}}}", []string{
			"spec.connectTimeout: must be at least 1ms, is 0s",
			"spec.defaultConfig.gatewayTopology.forwardClientCertDetails: 9 is unknown: use SANITIZE, FORWARD_ONLY, APPEND_FORWARD, SANITIZE_SET or ALWAYS_FORWARD_ONLY"}, nil},
		{"default", "{enablePrometheusMerge: true, defaultConfig: {interceptionMode: TPROXY}}", nil, []string{
			"spec.defaultConfig.interceptionMode has no effect here: each machine says how it captures traffic: see its agent",
			"spec.enablePrometheusMerge has no effect here: Kubernetes only: it follows annotations of pods: scrape the application and the proxy by themselves"}},
		{"default", "{defaultTrafficPolicy: {connectionPool: {tcp: {maxConnections: -1}}, outlierDetection: {interval: 0s}}, defaultConfig: {statsdUdpAddress: statsd:8125, envoyMetricsService: {address: metrics, tlsSettings: {mode: SIMPLE, caCertificates: /ca.pem}}, tracingServiceName: CANONICAL_NAME_ONLY}}", []string{
			"spec.defaultTrafficPolicy.connectionPool.tcp.maxConnections: must not be negative, is -1",
			"spec.defaultTrafficPolicy.outlierDetection.interval: must be at least 1ms, is 0s",
			`spec.defaultConfig.statsdUdpAddress: must be an IP address and a port, such as 10.0.0.9:8125, is "statsd:8125": Envoy resolves no name for it`,
			`spec.defaultConfig.envoyMetricsService.address: must be host:port, is "metrics"`,
			"spec.defaultConfig.envoyMetricsService.tlsSettings.mode: must be DISABLE or ISTIO_MUTUAL, is SIMPLE: for another have an EnvoyFilter merge a cluster and a sink into the BOOTSTRAP",
		}, []string{"spec.defaultConfig.envoyMetricsService.tlsSettings.caCertificates has no effect here: ISTIO_MUTUAL uses the certificate of the proxy and the authorities of the mesh"}},
		{"default", "{defaultTrafficPolicy: {connectionPool: {http: {maxRetries: 1}}, outlierDetection: {}}, disableEnvoyListenerLog: true, defaultConfig: {statsdUdpAddress: '[::1]:8125', envoyMetricsService: {address: 'metrics.test:9000', tlsSettings: {mode: ISTIO_MUTUAL}}}}", nil, nil},
		{"default", "{discoverySelectors: [{matchLabels: {mesh: 'yes', env: ''}}, {matchExpressions: [{key: example.com/team, operator: NotIn, values: [a, b]}, {key: mesh, operator: Exists}]}]}", nil, nil},
		{"default", "{discoverySelectors: [{}]}", nil, []string{"spec.discoverySelectors[0] is empty and selects every namespace"}},
		{"default", "{discoverySelectors: [{matchLabels: {'a b': 'c d'}}, {matchExpressions: [{operator: in, values: ['-']}, {key: b, operator: In}, {key: c, operator: Exists, values: [d]}]}]}", []string{
			`spec.discoverySelectors[0].matchLabels[a b]: "a b" is not valid: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
			`spec.discoverySelectors[0].matchLabels[a b]: "c d" is not valid: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
			"spec.discoverySelectors[1].matchExpressions[0].key: is missing: name a label",
			`spec.discoverySelectors[1].matchExpressions[0].operator: "in" is unknown: use In, NotIn, Exists or DoesNotExist`,
			`spec.discoverySelectors[1].matchExpressions[0].values[0]: "-" is not valid: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
			"spec.discoverySelectors[1].matchExpressions[1].values: must have at least one value with the operator In",
			"spec.discoverySelectors[1].matchExpressions[2].values: must be empty with the operator Exists, is d"}, nil},
		{"default", "{serviceEntryVisibility: {applyToSidecars: true}}", nil, []string{
			"spec.serviceEntryVisibility.applyToSidecars has no effect here: ServiceEntries that it would hide stay visible: use defaultServiceExportTo and exportTo",
			"spec.serviceEntryVisibility has no effect here: it is for ambient mode unless applyToSidecars is set, and its policies select by labels of Namespace objects: use defaultServiceExportTo"}},
	} {
		refused, warned := validated(c.name, c.spec)
		if fmt.Sprint(refused, warned) != fmt.Sprint(c.refused, c.warned) {
			t.Errorf("%s: refused %q, warned %q", c.spec, refused, warned)
		}
	}
}

func TestMeshConfigElsewhere(t *testing.T) {
	t.Parallel()
	key := func(kind config.GroupVersionKind, namespace string) config.Key {
		return config.Key{Kind: kind, Namespace: namespace, Name: "default"}
	}
	if err := schema.MeshConfigElsewhere(key(schema.MeshConfig, "istio-system"), "istio-system"); err != nil {
		t.Errorf("in the root namespace: %v", err)
	}
	if err := schema.MeshConfigElsewhere(key(schema.Sidecar, "shop"), "istio-system"); err != nil {
		t.Errorf("another kind: %v", err)
	}
	if err := schema.MeshConfigElsewhere(key(schema.MeshConfig, "shop"), "istio-system"); err == nil || !strings.Contains(err.Error(), "apply it with -n istio-system") {
		t.Errorf("elsewhere: %v", err)
	}
}

var updateDocs = flag.Bool("update-docs", false, "write the table of docs/operations/mesh-config.md")

// TestMeshConfigFields: each field of MeshConfig is served or has a reason, and the page says so.
func TestMeshConfigFields(t *testing.T) {
	t.Parallel()
	const page, begin, end = "../../docs/operations/mesh-config.md", "<!-- fields: begin -->\n", "<!-- fields: end -->\n"
	table := "| field | effect |\n|---|---|\n"
	for _, f := range schema.MeshConfigFields() {
		effect := "served"
		switch {
		case !f.Served && f.Reason == "":
			t.Errorf("%s: say in the table of storage/schema/meshconfigfields.go whether it is served, or why not", f.Path)
		case !f.Served:
			effect = "none: " + f.Reason
		case f.FileOnly:
			effect = "served, in the file alone"
		}
		table += "| `" + f.Path + "` | " + effect + " |\n"
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	is, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		t.Fatalf("%s lacks the marks of the table", page)
	}
	if *updateDocs {
		if err := os.WriteFile(page, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if is != table {
		t.Errorf("%s is not what the fields are: go test ./storage/schema -run TestMeshConfigFields -update-docs writes it", page)
	}
	for _, unknown := range schema.UnknownMeshConfigFields() {
		t.Errorf("the table of storage/schema/meshconfigfields.go has %s, which is no field", unknown)
	}
}
