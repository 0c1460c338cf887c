package objects

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/keyset"
)

// past is configuration created at different times. Its texts need quoting in YAML.
const past = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: younger
  namespace: shop
  creationTimestamp: "2026-03-01T10:00:01Z"
  annotations: {a: "yes", b: "1e3", c: "two\nlines\n", d: "\u0085\u2028\ufeff:#", e: "null", f: "012", g: " "}
spec:
  hosts: [contended.shop]
  http: [{route: [{destination: {host: a.shop}}]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: zz-older, namespace: shop, creationTimestamp: 2026-03-01T10:00:00Z, resourceVersion: "77", uid: x, generation: 9, labels: {app: shop}}
spec:
  hosts: [contended.shop]
  http: [{route: [{destination: {host: b.shop}, weight: 100}], timeout: 1.5s}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: edge, creationTimestamp: "2025-12-31T23:59:59Z"}
spec: {mtls: {mode: STRICT}}
`

// TestExportImportExport: the export of a store filled by an import equals the imported text,
// byte by byte.
func TestExportImportExport(t *testing.T) {
	t.Parallel()
	first := startAPI(t)
	first.Must(t, past, "import", "-f", "-")
	for i := range 30 {
		first.Must(t, clitest.Entry(fmt.Sprintf("e%d", i), ", namespace: shop"), "apply", "-f", "-")
	}
	first.Must(t, `{apiVersion: portolan.io/v1, kind: PeerPhase, metadata: {name: default, namespace: edge}, spec: {}}`, "apply", "-f", "-") // servers write it
	source := keyset.Source{URL: "https://a.example/keys"}
	first.Must(t, `{apiVersion: portolan.io/v1, kind: KeySet, metadata: {name: `+source.Name()+`, namespace: istio-system}, spec: {url: "https://a.example/keys", error: away}}`, "apply", "-f", "-")
	for _, output := range []string{"yaml", "json"} {
		text := first.Must(t, "", "export", "-o", output)
		if strings.Contains(text, "PeerPhase") || strings.Contains(text, "KeySet") {
			t.Errorf("what servers write is exported:\n%s", text)
		}
		if again := first.Must(t, "", "export", "-o", output); again != text {
			t.Errorf("two exports differ:\n%s\n%s", text, again)
		}
		for _, chunks := range []string{"0", "7"} {
			second := startAPI(t)
			second.Must(t, text, "import", "-f", "-", "--chunks", chunks)
			clitest.Same(t, output+" in chunks of "+chunks, second.Must(t, "", "export", "-o", output), text)
			if n := strings.Count(text, "hosts"); n != 32 {
				t.Errorf("%d objects with hosts in\n%s", n, text)
			}
		}
	}
	text := first.Must(t, "", "export")
	for _, only := range []string{"resourceVersion", "uid", "generation", "status"} {
		if strings.Contains(text, only+":") {
			t.Errorf("%s is in\n%s", only, text)
		}
	}
	var headings []string
	for _, match := range regexp.MustCompile(`(?m)^kind: (.*)$`).FindAllStringSubmatch(text, -1) {
		headings = append(headings, match[1])
	}
	if got, want := slices.Compact(headings), []string{"ServiceEntry", "VirtualService", "PeerAuthentication"}; !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}

// TestImportKeepsTheOrderOfCreation: import keeps creation times, since the oldest of
// conflicting objects wins; apply does not.
func TestImportKeepsTheOrderOfCreation(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, past, "import", "-f", "-")
	text := a.Must(t, "", "export", "virtualservices")
	for _, want := range []string{`creationTimestamp: "2026-03-01T10:00:00Z"`, `creationTimestamp: "2026-03-01T10:00:01Z"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
	// Existing objects keep their creation times.
	a.Must(t, strings.ReplaceAll(past, "2026-03-01", "2020-03-01"), "import", "-f", "-")
	clitest.Same(t, "imported again", a.Must(t, "", "export", "virtualservices"), text)
}

func TestExportOfARevisionANamespaceAKind(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, past, "import", "-f", "-")
	before := a.Must(t, "", "export")
	list := a.Must(t, "", "get", "vs", "-A", "--no-headers")
	revision := strings.Fields(list)[4]
	a.Must(t, clitest.Entry("new", ", namespace: shop"), "apply", "-f", "-")
	a.Must(t, "", "delete", "vs", "younger", "-n", "shop")
	clitest.Same(t, "at revision "+revision, a.Must(t, "", "export", "--revision", revision), before)
	for args, want := range map[string]string{
		"-n edge": "PeerAuthentication", "vs": "VirtualService", "-n shop se,vs": "ServiceEntry VirtualService", "vs se -n shop": "ServiceEntry VirtualService",
		"-n nobody": "", "gateways": "",
	} {
		text := a.Must(t, "", append([]string{"export"}, strings.Fields(args)...)...)
		var got []string
		for _, match := range regexp.MustCompile(`(?m)^kind: (.*)$`).FindAllStringSubmatch(text, -1) {
			got = append(got, match[1])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("export %s: %q, want %s", args, got, want)
		}
	}
	for args, code := range map[string]int{
		"--revision 9999": exit.Data, "--revision -1": exit.Usage, "kettles": exit.Usage, "vs/x": exit.Usage, "-o name": exit.Usage,
	} {
		if o := a.Do(t, "", append([]string{"export"}, strings.Fields(args)...)...); o.Code != code || o.Out != "" {
			t.Errorf("export %s: %+v, want exit code %d", args, o, code)
		}
	}
}

func TestImportOfFaults(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	bad := past + "---\n" + strings.Replace(clitest.Entry("bad", ", namespace: shop"), "hosts: [bad.shop]", "hosts: []", 1)
	if o := a.Do(t, bad, "import", "-f", "-"); o.Code != exit.Data || !strings.Contains(o.Err, "spec.hosts") {
		t.Errorf("%+v", o)
	}
	if o := a.Do(t, past, "import", "-f", "-", "--dry-run=server"); o.Code != exit.OK || !strings.Contains(o.Out, "created (dry run)") {
		t.Errorf("dry run: %+v", o)
	}
	clitest.Same(t, "the store after it", a.Must(t, "", "export"), "")
	for _, args := range []string{"", "-f - --chunks -1", "x.yaml"} {
		if o := a.Do(t, past, append([]string{"import"}, strings.Fields(args)...)...); o.Code != exit.Usage {
			t.Errorf("import %s: %+v", args, o)
		}
	}
}

// TestImportOfKubernetes: import accepts what kubectl has written. It refuses security
// settings that have no effect, unless a flag accepts them.
func TestImportOfKubernetes(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	list := func(items ...string) string {
		return "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: \"\"}\nitems: [" + strings.Join(items, ", ") + "]\n"
	}
	route := `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a, namespace: shop, resourceVersion: "48211", uid: x, generation: 7, creationTimestamp: "2025-01-01T00:00:00Z", ` +
		`managedFields: [{manager: kubectl}]}, spec: {hosts: [a.shop.svc.cluster.local], http: [{directResponse: {status: 404}}]}, status: {observedGeneration: "7"}}`
	config := `{apiVersion: portolan.io/v1, kind: MeshConfig, metadata: {name: default, namespace: shop, uid: u2}, spec: {serviceEntryVisibility: {applyToSidecars: true}}}`
	clitest.Same(t, "without security", a.Must(t, list(route), "import", "-f", "-"), "virtualservice/shop/a  created  rev 2\n")
	if text := a.Must(t, "", "get", "vs/a", "-n", "shop", "-o", "yaml"); !strings.Contains(text, "2025-01-01") || strings.Contains(text, "managedFields") || strings.Contains(text, "48211") {
		t.Errorf("it is stored as %s", text)
	}
	const fault = "meshconfig/shop/default: spec.serviceEntryVisibility.applyToSidecars: "
	if o := a.Do(t, list(route, config), "import", "-f", "-"); o.Code != exit.Data || !strings.Contains(o.Err, fault) || !strings.Contains(o.Err, "items[1]") || !strings.Contains(o.Err, "--accept-unserved takes it") {
		t.Errorf("%+v", o)
	}
	recorded, err := os.ReadFile("../../../integration/testdata/moving-from-istio/all.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if out := a.Must(t, string(recorded), "import", "-f", "-"); !strings.Contains(out, "authorizationpolicy/shop/reviews         created") {
		t.Errorf("an export of a cluster: %s", out)
	}
	applied := `{apiVersion: portolan.io/v1, kind: MeshConfig, metadata: {name: default, namespace: shop, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}, spec: {serviceEntryVisibility: {applyToSidecars: true}}}`
	if o := a.Do(t, applied, "import", "-f", "-"); o.Code != exit.Data || !strings.Contains(o.Err, fault) {
		t.Errorf("one alone: %+v", o)
	}
	if o := a.Do(t, list(config), "import", "-f", "-", "--accept-unserved"); o.Code != exit.OK || !strings.Contains(o.Err, "meshconfig/shop/default: spec.serviceEntryVisibility.applyToSidecars has no effect here") {
		t.Errorf("%+v", o)
	}
}

// TestExportOfAllNamespaces: -A says what export does without -n, and contradicts it.
func TestExportOfAllNamespaces(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("a", "")+"---\n"+clitest.Entry("b", ", namespace: shop"), "apply", "-f", "-")
	clitest.Same(t, "-A", a.Must(t, "", "export", "-A"), a.Must(t, "", "export"))
	if o := a.Do(t, "", "export", "-A", "-n", "shop"); o.Code != exit.Usage || !strings.Contains(o.Err, "-A is all namespaces, and -n is one") {
		t.Errorf("%+v", o)
	}
}
