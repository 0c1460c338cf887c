package schema_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestProbeRules: the annotation of a WorkloadEntry has a probe that a WorkloadGroup might have.
func TestProbeRules(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"{httpGet: {port: 80, path: /ready}}": "",
		"{}":                                  "metadata.annotations[portolan.io/probe]: lacks what to do: set one of httpGet, tcpSocket, exec, grpc",
		"{tcpSocket: {}}":                     "metadata.annotations[portolan.io/probe].tcpSocket.port: must be a port from 1 to 65535, is 0",
		"{udp: {}}":                           `metadata.annotations[portolan.io/probe]: must be YAML with the fields of spec.probe of a WorkloadGroup, such as {httpGet: {port: 8080}}: (line 1:2): unknown field "udp"`,
	} {
		document := strings.Replace(spec(schema.WorkloadEntry, "address: 10.0.0.1"), "namespace: shop}", "namespace: shop, annotations: {portolan.io/probe: '"+value+"'}}", 1)
		refused, _ := validate(t, document)
		if got := strings.Join(refused, "\n"); got != want {
			t.Errorf("%s: got %q, want %q", value, got, want)
		}
	}
}

// TestProxyConfigOfEntries: a WorkloadEntry that is annotated with a ProxyConfig is warned of, unless
// the annotation came from its WorkloadGroup, whose machines read it there.
func TestProxyConfigOfEntries(t *testing.T) {
	t.Parallel()
	for more, want := range map[string]string{
		"": "metadata.annotations[proxy.istio.io/config] has no effect on a WorkloadEntry: put it into spec.metadata.annotations of the machine's WorkloadGroup, " +
			"or write a ProxyConfig that selects the machine by its labels",
		", ownerReferences: [{apiVersion: networking.istio.io/v1, kind: WorkloadGroup, name: vms, uid: a}]": "",
	} {
		document := strings.Replace(spec(schema.WorkloadEntry, "address: 10.0.0.1"), "namespace: shop}", "namespace: shop, annotations: {proxy.istio.io/config: '{concurrency: 2}'}"+more+"}", 1)
		refused, warned := validate(t, document)
		if got := strings.Join(append(refused, warned...), "\n"); got != want {
			t.Errorf("%s: got %q, want %q", more, got, want)
		}
	}
}

// TestProxyConfigElsewhere: the annotation of a ProxyConfig is warned of where nothing reads it.
func TestProxyConfigElsewhere(t *testing.T) {
	t.Parallel()
	for kind, c := range map[config.GroupVersionKind]struct{ spec, want string }{
		schema.WorkloadGroup: {"{template: {serviceAccount: web}}", "has no effect in metadata of the object: put it into spec.metadata.annotations, which is for the machines of the group"},
		schema.Gateway: {`{servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}`,
			"has no effect on a Gateway: write a ProxyConfig that selects the proxies by their labels"},
	} {
		document := strings.Replace(spec(kind, c.spec), "namespace: shop}", "namespace: shop, annotations: {proxy.istio.io/config: '{concurrency: 2}'}}", 1)
		refused, warned := validate(t, document)
		if got, want := strings.Join(append(refused, warned...), "\n"), "metadata.annotations[proxy.istio.io/config] "+c.want; !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", kind.Kind, got, want)
		}
	}
}

// TestConfigMapOfIstio: the mesh configuration of Istio is refused as a ConfigMap, with what to write
// instead, and no other ConfigMap is.
func TestConfigMapOfIstio(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		"metadata: {name: istio, namespace: istio-system}\ndata: {mesh: 'accessLogFile: /dev/stdout', meshNetworks: 'networks: {}'}": "data[mesh]: is the mesh configuration of Istio, which is an object of its own here: write it below spec: of a document with apiVersion: portolan.io/v1, kind: MeshConfig",
		"metadata: {name: istio-1-31, namespace: istio-system}\ndata: {mesh: 'accessLogFile: /dev/stdout'}":                          "kind: MeshConfig and metadata: {name: default, namespace: istio-system}",
		"metadata: {name: istio, namespace: shop}\ndata: {other: a}":                                                                 "",
		"metadata: {name: paths, namespace: shop}\ndata: {mesh: a}":                                                                  "",
	} {
		refused, warned := validate(t, "apiVersion: v1\nkind: ConfigMap\n"+document+"\n")
		if got := strings.Join(append(refused, warned...), "\n"); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", document, got, want)
		}
	}
}
