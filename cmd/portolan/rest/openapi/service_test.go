package openapi

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/portolan-mesh/portolan/storage/schema"
)

func serve(t testing.TB) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	hasStatus := func(k *schema.Schema) bool { return k.Kind == "WorkloadEntry" }
	for _, route := range Routes(schema.Pilot(), Options{Version: "v1.2.3", HasStatus: hasStatus}) {
		mux.Handle("GET "+route.Path, route.Handler)
	}
	return mux
}

// get returns an answer with its body.
func get(t testing.TB, handler http.Handler, path string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	answer := w.Result()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, body
}

func read[T any](t testing.TB, text []byte) T {
	t.Helper()
	var out T
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%v: %.200s", err, text)
	}
	return out
}

// TestV2: the document in JSON and in protobuf, and what a cache asks. TestClientGoReadsOpenAPI
// reads the protobuf.
func TestV2(t *testing.T) {
	t.Parallel()
	server := serve(t)
	answer, text := get(t, server, "/openapi/v2")
	document := read[spec.Swagger](t, text)
	if answer.StatusCode != http.StatusOK || document.Info.Version != "v1.2.3" || len(document.Definitions) < 100 {
		t.Fatalf("%d: %v, %d definitions", answer.StatusCode, document.Info, len(document.Definitions))
	}
	if strings.Contains(string(text), `"nullable"`) {
		t.Error("nullable is not of version 2")
	}
	if again, _ := get(t, server, "/openapi/v2", "If-None-Match", answer.Header.Get("Etag")); again.StatusCode != http.StatusNotModified {
		t.Errorf("asked again: %d", again.StatusCode)
	}
	if zipped, _ := get(t, server, "/openapi/v2", "Accept-Encoding", "gzip"); zipped.Header.Get("Content-Encoding") != "gzip" {
		t.Error("the document is not compressed")
	}
	answer, encoded := get(t, server, "/openapi/v2", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	if !strings.HasSuffix(answer.Header.Get("Content-Type"), "+protobuf") || len(encoded) < len(text)/10 {
		t.Errorf("%d %s: %d bytes", answer.StatusCode, answer.Header.Get("Content-Type"), len(encoded))
	}
}

// TestV3: the index leads to a document for each API version, in JSON and in protobuf, with
// the definitions it needs and no others.
func TestV3(t *testing.T) {
	t.Parallel()
	server := serve(t)
	answer, text := get(t, server, "/openapi/v3")
	index := read[handler3.OpenAPIV3Discovery](t, text)
	if answer.StatusCode != http.StatusOK || len(index.Paths) != len(groupVersions(schema.Pilot())) {
		t.Fatalf("%d: the index has %d paths", answer.StatusCode, len(index.Paths))
	}
	for _, k := range schema.Pilot().All() {
		for _, version := range k.Versions {
			at, ok := index.Paths[strings.TrimPrefix(root(k, version), "/")]
			if !ok {
				t.Errorf("the index lacks %s", root(k, version))
				continue
			}
			answer, text := get(t, server, at.ServerRelativeURL)
			if answer.StatusCode != http.StatusOK || answer.Header.Get("Cache-Control") != "public, immutable" {
				t.Errorf("%s: %d, %v", at.ServerRelativeURL, answer.StatusCode, answer.Header)
			}
			document := read[spec3.OpenAPI](t, text)
			if document.Components.Schemas[kindName(k, version)] == nil {
				t.Errorf("%s lacks %s", at.ServerRelativeURL, kindName(k, version))
			}
			if strings.Contains(string(text), definitionPrefix) {
				t.Errorf("%s refers to definitions as version 2 does", at.ServerRelativeURL)
			}
		}
	}
	_, core := get(t, server, "/openapi/v3/api/v1")
	for name := range read[spec3.OpenAPI](t, core).Components.Schemas {
		if strings.Contains(name, "networking") {
			t.Errorf("/openapi/v3/api/v1 has %s", name)
		}
	}
	answer, encoded := get(t, server, "/openapi/v3/api/v1", "Accept", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf")
	if !strings.HasSuffix(answer.Header.Get("Content-Type"), "+protobuf") || len(encoded) < len(core)/10 {
		t.Errorf("%d %s: %d bytes", answer.StatusCode, answer.Header.Get("Content-Type"), len(encoded))
	}
	if answer, _ := get(t, server, "/openapi/v3/apis/networking.istio.io/v9"); answer.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown version: %d", answer.StatusCode)
	}
}

// TestOperations: each path has the verbs that the API serves, and the parameters for which
// clients look before they send them.
func TestOperations(t *testing.T) {
	t.Parallel()
	_, text := get(t, serve(t), "/openapi/v3/apis/networking.istio.io/v1beta1")
	document := read[spec3.OpenAPI](t, text)
	const root = "/apis/networking.istio.io/v1beta1/"
	for at, want := range map[string]string{
		"workloadentries":                                      "get",
		"namespaces/{namespace}/workloadentries":               "get post",
		"namespaces/{namespace}/workloadentries/{name}":        "get put patch delete",
		"namespaces/{namespace}/workloadentries/{name}/status": "get put",
		"namespaces/{namespace}/gateways/{name}":               "get put patch delete",
	} {
		p := document.Paths.Paths[root+at]
		if p == nil {
			t.Errorf("no path %s", at)
			continue
		}
		var verbs []string
		for _, o := range []struct {
			verb string
			*spec3.Operation
		}{{"get", p.Get}, {"post", p.Post}, {"put", p.Put}, {"patch", p.Patch}, {"delete", p.Delete}} {
			if o.Operation == nil {
				continue
			}
			verbs = append(verbs, o.verb)
			var kind struct{ Group, Version, Kind string }
			if err := o.Extensions.GetObject(kindExtension, &kind); err != nil || kind.Group+kind.Version != "networking.istio.iov1beta1" || kind.Kind == "" {
				t.Errorf("%s of %s is about %+v, %v", o.verb, at, kind, err)
			}
			wanted := map[string][]string{
				"get": {"resourceVersion"}, "post": {"dryRun", "fieldManager", "fieldValidation"}, "put": {"dryRun", "fieldManager", "fieldValidation"},
				"patch": {"dryRun", "fieldManager", "fieldValidation", "force"}, "delete": {"dryRun"},
			}
			for _, name := range wanted[o.verb] {
				if !slices.ContainsFunc(o.Parameters, func(p *spec3.Parameter) bool { return p.Name == name && p.In == "query" }) {
					t.Errorf("%s of %s has no parameter %s", o.verb, at, name)
				}
			}
		}
		if got := strings.Join(verbs, " "); got != want {
			t.Errorf("%s has %s, want %s", at, got, want)
		}
	}
	content := document.Paths.Paths[root+"namespaces/{namespace}/gateways/{name}"].Patch.RequestBody.Content
	for _, media := range []string{"application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"} {
		if content[media] == nil {
			t.Errorf("a patch is not of %s", media)
		}
	}
	if document.Paths.Paths[root+"namespaces/{namespace}/gateways/{name}/status"] != nil {
		t.Error("the status of a Gateway can be set")
	}
}

// TestOperationsHaveIDsOfTheirOwn: tools make functions of them.
func TestOperationsHaveIDsOfTheirOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for path, item := range swagger(schema.Pilot(), Options{HasStatus: func(*schema.Schema) bool { return true }}).Paths.Paths {
		for _, o := range []*spec.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if o == nil {
				continue
			}
			if before, ok := seen[o.ID]; ok {
				t.Errorf("%s and %s have the operation %s", before, path, o.ID)
			}
			seen[o.ID] = path
		}
	}
	if len(seen) < 100 {
		t.Errorf("there are %d operations", len(seen))
	}
}
