package schema_test

import (
	"strings"
	"testing"

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
