package schema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// tenRoutes is a VirtualService without faults or warnings.
func tenRoutes() string {
	var text strings.Builder
	text.WriteString("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: reviews, namespace: shop}\nspec:\n  hosts: [reviews.shop.mesh.test]\n  http:\n")
	for i := range 10 {
		fmt.Fprintf(&text, `  - name: r%02d
    match: [{uri: {prefix: /api/v1/%02d}, headers: {x-tenant: {exact: t%d}}}]
    route:
    - {destination: {host: reviews.shop.mesh.test, subset: v1, port: {number: 8080}}, weight: %d}
    - {destination: {host: reviews.shop.mesh.test, subset: v2, port: {number: 8080}}, weight: %d}
`, i, i, i, 100-i, i)
	}
	return text.String()
}

// decodedRoutes returns tenRoutes as an object, and its schema.
func decodedRoutes(tb testing.TB) (*config.Config, *schema.Schema) {
	tb.Helper()
	documents, err := config.Decode("test.yaml", []byte(tenRoutes()), schema.Pilot().Type)
	if err != nil {
		tb.Fatal(err)
	}
	object := documents[0].Config
	return object, schema.Pilot().Kind(object.GroupVersionKind)
}

// BenchmarkValidate measures the check of a VirtualService of ten routes.
func BenchmarkValidate(b *testing.B) {
	object, kind := decodedRoutes(b)
	b.ReportAllocs()
	for b.Loop() {
		if warnings, err := kind.Validate(object); err != nil || len(warnings) > 0 {
			b.Fatal(warnings, err)
		}
	}
}

// TestValidateMakesNoPathOfWhatHasNoFault: a sound object costs few allocations, since a path
// becomes text only where something is reported.
func TestValidateMakesNoPathOfWhatHasNoFault(t *testing.T) {
	object, kind := decodedRoutes(t)
	const most = 300
	if n := testing.AllocsPerRun(10, func() { _, _ = kind.Validate(object) }); n > most {
		t.Errorf("the check of a VirtualService of ten routes takes %v allocations, and %d are the most", n, most)
	}
}

// TestFaultsNameDeepFields: a fault names the whole path of a field, however deep it is.
func TestFaultsNameDeepFields(t *testing.T) {
	t.Parallel()
	refused, _ := validate(t, spec(schema.DestinationRule, `
		host: a.b
		subsets:
		- name: v1
		  trafficPolicy:
		    portLevelSettings:
		    - port: {number: 80}
		      loadBalancer: {consistentHash: {httpCookie: {name: c, ttl: -1s}}}
		    - port: {number: 81}
		      loadBalancer: {localityLbSetting: {distribute: [{from: "a/b", to: {"a/b": 99}}]}}`))
	for _, path := range []string{
		"spec.subsets[0].trafficPolicy.portLevelSettings[0].loadBalancer.consistentHash.httpCookie.ttl",
		"spec.subsets[0].trafficPolicy.portLevelSettings[1].loadBalancer.localityLbSetting.distribute[0].to",
	} {
		if !slices.ContainsFunc(refused, func(f string) bool { return strings.HasPrefix(f, path+":") }) {
			t.Errorf("no fault names %s: %q", path, refused)
		}
	}
}
