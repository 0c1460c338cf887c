package schematest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/schema/schematest"
)

// TestDrawn: drawn objects are valid as the API reads them, are of every served kind, and
// are the same for the same seed.
func TestDrawn(t *testing.T) {
	t.Parallel()
	batch := schematest.NewDrawer(1).Batch(50)
	kinds := map[string]int{}
	for i, object := range schematest.NewDrawer(1).Batch(50) {
		document := schematest.Document(object)
		if d := cmp.Diff(schematest.Document(batch[i]), document); d != "" {
			t.Fatalf("another time (-first +second):\n%s", d)
		}
		decoded, err := config.Decode("test", []byte(document), schema.Pilot().Type)
		if err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		if _, err := schema.Pilot().Kind(object.GroupVersionKind).Validate(decoded[0].Config); err != nil {
			t.Errorf("%v:\n%s", err, document)
		}
		kinds[object.Kind]++
	}
	for _, kind := range []string{"ServiceEntry", "WorkloadEntry", "DestinationRule", "VirtualService", "Gateway", "Sidecar"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s was drawn", kind)
		}
	}
}

// TestSimplify: a simpler object is valid, and simpler.
func TestSimplify(t *testing.T) {
	t.Parallel()
	for _, object := range schematest.NewDrawer(2).Batch(20) {
		for simpler := range schematest.Simplify(object) {
			if len(schematest.Document(simpler)) >= len(schematest.Document(object)) {
				t.Fatalf("not simpler:\n%s\n%s", schematest.Document(object), schematest.Document(simpler))
			}
			break
		}
	}
}
