package config_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/testing/protocmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func resolve(apiVersion, kind string) (config.Type, error) {
	return schema.Pilot().Type(apiVersion, kind)
}

func errorLines(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var all *multierror.Error
	if !errors.As(err, &all) {
		t.Fatalf("%T is no *multierror.Error: %v", err, err)
	}
	var out []string
	for _, e := range all.Errors {
		var fault *config.DecodeError
		if !errors.As(e, &fault) {
			t.Fatalf("%T is no *DecodeError: %v", e, e)
		}
		out = append(out, e.Error())
	}
	return out
}

func TestDecodeNamesEveryFault(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"broken YAML", "a: [\n---\na:\n\tb: c\n", []string{
			"f.yaml: document 1 (line 1): not valid YAML: line 1: did not find expected node content",
			"f.yaml: document 2 (line 3): not valid YAML: line 4: found character that cannot start any token",
		}},
		{"line numbers are those of the file", "# note\n\n---\n# note\n\na: 1\nb: {c: 1, c: 2}\na: 2\n", []string{
			`f.yaml: document 1 (line 6): not valid YAML: line 7: "c" is set twice; line 8: "a" is set twice`,
		}},
		{"text behind JSON", "{\"kind\": \"Gateway\"} more\n", []string{
			"f.yaml: document 1 (line 1): text follows the end of the document: separate documents with a line of ---",
		}},
		{"keys twice in JSON", `{"kind": "Gateway", "spec": {"a": [{"b": 1, "b": 2}], "a": 1}}`, []string{
			"f.yaml: document 1 (line 1): spec.a[0].b: is set twice; spec.a: is set twice",
		}},
		{"not a mapping", "- a\n---\ntext\n", []string{
			`f.yaml: document 1 (line 1): must be a mapping, is ["a"]`,
			`f.yaml: document 2 (line 3): must be a mapping, is "text"`,
		}},
		{"no apiVersion", "kind: Gateway\nmetadata: {name: edge, namespace: shop}\n", []string{
			"f.yaml: document 1 (line 1): gateway/shop/edge: apiVersion: is missing: say which API this is, such as networking.istio.io/v1",
		}},
		{"no kind", "apiVersion: networking.istio.io/v1\n", []string{
			"f.yaml: document 1 (line 1): kind: is missing: say what this is, such as VirtualService",
		}},
		{"no object", "connectTimeout: 5s\ndefaultConfig: {concurrency: 2}\n", []string{
			"f.yaml: document 1 (line 1): is no object: it has neither apiVersion nor kind, such as networking.istio.io/v1 and VirtualService",
		}},
		{"unknown kind", "apiVersion: v1\nkind: Service\nmetadata: {name: edge}\n", []string{
			`f.yaml: document 1 (line 1): service/edge: unknown kind "Service" of apiVersion "v1": see portolan api-resources for those served, or did you mean ServiceEntry of apiVersion networking.istio.io/v1?`,
		}},
		{"unknown version", "apiVersion: networking.istio.io/v1\nkind: EnvoyFilter\nmetadata: {name: edge}\n", []string{
			`f.yaml: document 1 (line 1): envoyfilter/edge: kind EnvoyFilter is not served as apiVersion "networking.istio.io/v1": use networking.istio.io/v1alpha3`,
		}},
		{"unknown fields everywhere", gateway("metadata: {name: edge, namespace: shop, foo: 1}\nspec: {servers: [{prot: {}}], server: []}\ndata: {}"), []string{
			"f.yaml: document 1 (line 1): gateway/shop/edge: metadata.foo: unknown field",
			"f.yaml: document 1 (line 1): gateway/shop/edge: data: unknown field",
			"f.yaml: document 1 (line 1): gateway/shop/edge: spec.server: unknown field: did you mean servers?",
			"f.yaml: document 1 (line 1): gateway/shop/edge: spec.servers[0].prot: unknown field: did you mean port?",
		}},
		{"metadata of wrong types", gateway("metadata: {name: 5, labels: {v: 1, ok: a, none: null}, annotations: [], finalizers: [a], resourceVersion: 7}"), []string{
			"f.yaml: document 1 (line 1): gateway: metadata.name: must be a string, is 5: put it in quotes",
			"f.yaml: document 1 (line 1): gateway: metadata.annotations: must be a mapping, is []",
			"f.yaml: document 1 (line 1): gateway: metadata.finalizers: is not supported: leave it out",
			"f.yaml: document 1 (line 1): gateway: metadata.labels[none]: must be a string, is null",
			"f.yaml: document 1 (line 1): gateway: metadata.labels[v]: must be a string, is 1: put it in quotes",
			"f.yaml: document 1 (line 1): gateway: metadata.resourceVersion: must be a string, is 7: put it in quotes",
		}},
		{"metadata is a list", gateway("metadata: []\nspec: text"), []string{
			"f.yaml: document 1 (line 1): gateway: metadata: must be a mapping, is []",
			`f.yaml: document 1 (line 1): gateway: spec: must be a mapping, is "text": it has the fields servers, selector`,
		}},
		{"values of wrong types", virtualService(`
  hosts: reviews
  exportTo: [5, null]
  http:
  - timeout: 5 parsecs
    rewrite: {uri: true}
    retries: {attempts: many, retryRemoteLocalities: 1}
    redirect: {port: 1, derivePort: FROM_REQUEST_PORT}
    route: [{weight: 1.5}, null, {destination: {port: {number: -1}}}, {destination: {port: 80}}, {destination: {port: http}}]
    match: [{headers: {x: 5}, sourceLabels: {a: 1}, uri: {prefix: /a, exact: /b}}]
    mirrorPercentage: {value: much}
    mirror_percent: 1
    mirrorPercent: 2
    directResponse: {body: {bytes: "?"}}
    corsPolicy: {unmatchedPreflights: MAYBE}`), []string{
			`spec.exportTo[0]: must be a string, is 5: put it in quotes`,
			`spec.exportTo[1]: must be a string, is null`,
			`spec.hosts: must be a list, is "reviews"`,
			`spec.http[0].corsPolicy.unmatchedPreflights: must be one of UNSPECIFIED, FORWARD, IGNORE, is "MAYBE"`,
			`spec.http[0].directResponse.body.bytes: must be a string in base64, is "?"`,
			`spec.http[0].match[0].headers[x]: must be a mapping, is 5: it has the fields exact, prefix, regex`,
			`spec.http[0].match[0].sourceLabels[a]: must be a string, is 1: put it in quotes`,
			`spec.http[0].match[0].uri.prefix: excludes exact: set one of the two`,
			`spec.http[0].mirrorPercentage.value: must be a number, is "much"`,
			`spec.http[0].mirror_percent: is set twice, also as mirrorPercent`,
			`spec.http[0].redirect.port: excludes derivePort: set one of the two`,
			`spec.http[0].retries.attempts: must be a whole number (int32), is "many"`,
			`spec.http[0].retries.retryRemoteLocalities: must be true or false, is 1`,
			`spec.http[0].rewrite.uri: must be a string, is true: put it in quotes`,
			`spec.http[0].route[0].weight: must be a whole number (int32), is 1.5`,
			`spec.http[0].route[1]: must be a mapping, is null: it has the fields destination, weight, headers`,
			`spec.http[0].route[2].destination.port.number: must be a whole number from 0 (uint32), is -1`,
			`spec.http[0].route[3].destination.port: must be a mapping, is 80: write {number: 80}`,
			`spec.http[0].route[4].destination.port: must be a mapping, is "http": it has the field number`,
			`spec.http[0].timeout: must be a duration such as 1.5s, 100ms or 1h, is "5 parsecs"`,
		}},
		{"lists", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod}\n- 5\nmore: 1\n", []string{
			"f.yaml: document 1 (line 1): more: unknown field",
			`f.yaml: document 1 (line 1): items[0]: pod: unknown kind "Pod" of apiVersion "v1": see portolan api-resources for those served`,
			"f.yaml: document 1 (line 1): items[1]: must be a mapping, is 5",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Decode("f.yaml", []byte(test.text), resolve)
			got := errorLines(t, err)
			for i := range got { // most cases are about one object
				got[i] = strings.TrimPrefix(got[i], "f.yaml: document 1 (line 1): virtualservice/shop/reviews: ")
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("errors (-want +got):\n%s", d)
			}
		})
	}
}

func gateway(rest string) string {
	return "apiVersion: networking.istio.io/v1\nkind: Gateway\n" + rest + "\n"
}

func virtualService(spec string) string {
	return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: reviews, namespace: shop}\nspec:" + spec + "\n"
}

type place struct {
	Index, Line int
	Item, Key   string
}

func TestDecodeFindsTheDocuments(t *testing.T) {
	t.Parallel()
	object := func(name string) string { return gateway("metadata: {name: " + name + "}") }
	inline := func(name string) string {
		return `{"apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "` + name + `"}}`
	}
	for _, test := range []struct {
		name, text string
		want       []place
	}{
		{"nothing", "", nil},
		{"nothing but comments", "# a\n---\n\n---\n# b\n...\n", nil},
		{"null", "---\nnull\n---\n~\n", nil},
		{"one", object("a"), []place{{1, 1, "", "gateway/a"}}},
		{"several", "# first\n" + object("a") + "---\n---\n\n# second\n" + object("b") + "--- # third\n" + object("c"), []place{
			{1, 2, "", "gateway/a"}, {2, 9, "", "gateway/b"}, {3, 13, "", "gateway/c"},
		}},
		{"ends and directives", "%YAML 1.1\n---\n" + object("a") + "...\n" + object("b"), []place{
			{1, 3, "", "gateway/a"}, {2, 7, "", "gateway/b"},
		}},
		{"Windows line ends and a byte order mark", "\ufeff" + strings.ReplaceAll(object("a")+"---\n"+object("b"), "\n", "\r\n"), []place{
			{1, 1, "", "gateway/a"}, {2, 5, "", "gateway/b"},
		}},
		{"a marker inside a line and a text", gateway("metadata:\n  name: a\n  annotations:\n    x: |\n      ---\n      ---- \n"), []place{{1, 1, "", "gateway/a"}}},
		{"JSON with tabs", strings.ReplaceAll(inline("a"), ", ", ",\n\t"), []place{{1, 1, "", "gateway/a"}}},
		{"a stream of JSON", inline("a") + "\n\n" + inline("b") + inline("c"), []place{
			{1, 1, "", "gateway/a"}, {2, 3, "", "gateway/b"}, {3, 3, "", "gateway/c"},
		}},
		{"braces that are not JSON", "{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: a}} # note\n", []place{{1, 1, "", "gateway/a"}}},
		{"an anchor", gateway("metadata: {name: &n a, labels: {x: *n}}"), []place{{1, 1, "", "gateway/a"}}},
		{"a list", "---\napiVersion: v1\nkind: List\nmetadata: {}\nitems:\n- " + inline("a") + "\n- " + inline("b") + "\n", []place{
			{1, 2, "items[0]", "gateway/a"}, {1, 2, "items[1]", "gateway/b"},
		}},
		{"a list of the API", `{"apiVersion": "networking.istio.io/v1", "kind": "GatewayList", "items": [` + inline("a") + `]}`, []place{
			{1, 1, "items[0]", "gateway/a"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			documents, err := config.Decode("f.yaml", []byte(test.text), resolve)
			if err != nil {
				t.Fatal(err)
			}
			var got []place
			for _, d := range documents {
				got = append(got, place{d.Index, d.Line, d.Item, d.Config.Key().String()})
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("documents (-want +got):\n%s", d)
			}
		})
	}
}

func TestDecodeReturnsTheSoundDocuments(t *testing.T) {
	t.Parallel()
	text := gateway("metadata: {name: a}") + "---\n" + gateway("metadata: {nam: b}") + "---\n" + gateway("metadata: {name: c}")
	documents, err := config.Decode("f.yaml", []byte(text), resolve)
	if len(errorLines(t, err)) != 1 || len(documents) != 2 || documents[1].Config.Name != "c" {
		t.Errorf("%d documents, %v", len(documents), err)
	}
	fault := documents[1].Fault("spec.servers", "is missing").Error()
	if want := "f.yaml: document 3 (line 9): gateway/c: spec.servers: is missing"; fault != want {
		t.Errorf("Fault is %q, want %q", fault, want)
	}
}

func TestDecodeIgnoresWhatTheServerSets(t *testing.T) {
	t.Parallel()
	documents, err := config.Decode("f.yaml", []byte(`
apiVersion: networking.istio.io/v1alpha3
kind: Gateway
metadata:
  name: edge
  namespace: shop
  creationTimestamp: null
  generation: many
  uid: 5
  resourceVersion: "815"
  selfLink: /a
  managedFields: [{manager: kubectl}]
  finalizers: []
  labels: {}
spec: {selector: {a: b}}
status: {anything: [at, all]}
`), resolve)
	if err != nil || len(documents) != 1 {
		t.Fatal(documents, err)
	}
	want := &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.Gateway, Name: "edge", Namespace: "shop", ResourceVersion: "815"},
		Spec: &networking.Gateway{Selector: map[string]string{"a": "b"}},
	}
	if d := cmp.Diff(want, documents[0].Config, protocmp.Transform()); d != "" {
		t.Errorf("object (-want +got):\n%s", d)
	}
}

func TestDurationsTakeAnyUnit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1.5s": "1.5s", "25ms": "25ms", "1h": "1h0m0s", "1m30s": "1m30s", "-1s": "-1s", "0s": "0s", "100us": "100µs",
	} {
		documents, err := config.Decode("f.yaml", []byte(virtualService(`
  http: [{timeout: `+text+`, match: [{headers: {x: {exact: 25ms}}}]}]`)), resolve)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		route := documents[0].Config.Spec.(*networking.VirtualService).Http[0]
		if got := route.Timeout.AsDuration().String(); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
		if got := route.Match[0].Headers["x"].GetExact(); got != "25ms" {
			t.Errorf("a string was taken for a duration: %q", got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	data, err := os.ReadFile("../schema/testdata/served/mesh.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	for text := range strings.SplitSeq(string(data), "---\n") {
		f.Add([]byte(text))
	}
	f.Add([]byte(virtualService("\n  http: [{timeout: 25ms}]")))
	f.Add([]byte(gateway("metadata: {name: \"\\x7f\\ufeff\\u2028\", labels: {\"a: b\": \"- x\\n\"}}")))
	f.Add([]byte(`{"apiVersion": "networking.istio.io/v1", "kind": "List", "items": [{}, null]} {}`))
	f.Add([]byte("apiVersion: v1\nkind: Chest\nmetadata: {name: a}\ntype: oak\ndata: {a: AAEC}\ntrees: [{name: x}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		documents, _ := config.Decode("fuzz.yaml", data, resolveAny)
		for _, d := range documents {
			text, err := config.ToYAML(d.Config)
			if err != nil {
				t.Fatalf("encode %s: %v", d.Config.Key(), err)
			}
			again, err := config.Decode("again.yaml", text, resolveAny)
			if err != nil || len(again) != 1 {
				t.Fatalf("decode again: %d documents, %v\n%s", len(again), err, text)
			}
			if diff := cmp.Diff(d.Config, again[0].Config, protocmp.Transform()); diff != "" {
				t.Fatalf("YAML changed the object (-first +second):\n%s\n%s", diff, text)
			}
		}
	})
}

// TestDecodeEach: objects after many faulty ones are still read.
func TestDecodeEach(t *testing.T) {
	t.Parallel()
	bad := "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: bad}\nspec: {hosts: 7}\n---\n"
	good := "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: good, creationTimestamp: \"2020-01-02T03:04:05Z\"}\nspec: {hosts: [a.b]}\n"
	list := "---\napiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- {apiVersion: v1}\n", 150) + "- {apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: last}, spec: {hosts: [c.d]}}\n"
	documents, err := config.DecodeEach("x.yaml", []byte(strings.Repeat(bad, 150)+good+list), schema.Pilot().Type)
	var faults *multierror.Error
	if !errors.As(err, &faults) || len(faults.Errors) != 300 {
		t.Errorf("the faults are %v", err)
	}
	if len(documents) != 2 || documents[0].Config.Name != "good" || documents[0].Index != 151 || documents[1].Item != "items[150]" {
		t.Fatalf("the documents are %v", documents)
	}
	if documents[0].Config.CreationTimestamp.IsZero() {
		t.Error("the time of creation is ignored")
	}
}
