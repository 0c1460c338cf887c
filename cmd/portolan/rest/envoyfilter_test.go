package rest_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate/envoyfilter"
)

// TestValuesOfPatchesAreChecked: whatever the request, a value that no Envoy takes is refused at its
// path, with all other faults.
func TestValuesOfPatchesAreChecked(t *testing.T) {
	t.Parallel()
	s := resttest.StartKinds(t, envoyfilter.Kinds(schema.Pilot()))
	const filters = "/apis/networking.istio.io/v1alpha3/namespaces/shop/envoyfilters"
	of := func(name, patches string) string {
		return `{"apiVersion":"networking.istio.io/v1alpha3","kind":"EnvoyFilter","metadata":{"name":"` + name + `","namespace":"shop"},"spec":{"configPatches":[` + patches + `]}}`
	}
	timeout := func(value string) string {
		return `{"applyTo":"CLUSTER","patch":{"operation":"MERGE","value":{"connect_timeout":"` + value + `"}}}`
	}
	const untyped = `{"applyTo":"HTTP_FILTER","patch":{"operation":"INSERT_FIRST","value":{"name":"a","typed_config":{"@type":"type.googleapis.com/envoy.none"}}}}`
	bad := of("a", timeout("1s")+","+timeout("soon")+","+untyped)
	if a := s.Do(t, "POST", filters, of("a", timeout("1s"))); a.Code != 201 {
		t.Fatalf("a sound one: %d %s", a.Code, a.Body)
	}
	merged := `{"spec":{"configPatches":[` + timeout("1s") + "," + timeout("soon") + "," + untyped + `]}}`
	for _, query := range []string{"", dry} {
		for _, x := range []struct {
			method, path, body, media string
			prefix                    string // of the fields
		}{
			{"POST", filters, strings.Replace(bad, `"name":"a"`, `"name":"b"`, 1), "application/json", ""},
			{"PUT", filters + "/a", bad, "application/json", ""},
			{"PATCH", filters + "/a", merged, "application/merge-patch+json", ""},
			{"POST", batches, batchOf(write("apply", entry("good", "")), write("apply", bad)), "application/json", "operations[1].object."},
		} {
			before := s.Store.Version()
			a := s.Do(t, x.method, x.path+query, x.body, func(r *http.Request) { r.Header.Set("Content-Type", x.media) })
			var fields []string
			if status := parse[metav1.Status](t, a.Body); status.Details != nil {
				for _, cause := range status.Details.Causes {
					fields = append(fields, cause.Field)
				}
			}
			want := x.prefix + "spec.configPatches[1].patch.value " + x.prefix + "spec.configPatches[2].patch.value.typed_config.@type"
			if got := strings.Join(fields, " "); a.Code != 422 || got != want || !strings.Contains(a.Body, "envoyfilter/shop/") || s.Store.Version() != before {
				t.Errorf("%s %s: %d, fields %s, want %s: %s", x.method, x.path+query, a.Code, got, want, a.Body)
			}
		}
	}
}
