package upstream_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
)

// TestAnAssignmentOfLocalitiesIsTheWhole: an assignment assembled from encoded localities
// has the same bytes as one that is encoded at once.
func TestAnAssignmentOfLocalitiesIsTheWhole(t *testing.T) {
	t.Parallel()
	one := upstream.Endpoints{Locality: "r/z/s", Endpoints: []upstream.Endpoint{{Host: "10.0.0.1", Port: 80, Weight: 3}, {Host: "fd00::1", Port: 81, Health: upstream.Unhealthy}}}
	other := upstream.Endpoints{Priority: 2, Weight: 7, Endpoints: []upstream.Endpoint{{Host: "/run/s"}}}
	heavy := upstream.Endpoints{Locality: "r", Endpoints: []upstream.Endpoint{{Host: "10.0.0.2", Port: 1, Weight: 1 << 31}, {Host: "10.0.0.3", Port: 1, Weight: 1<<31 - 1}}}
	for name, localities := range map[string][]upstream.Endpoints{
		"none": nil, "one": {one}, "two": {one, other}, "one without endpoints": {{Locality: "r"}, other},
		"weights of 32 bits": {heavy},
	} {
		var parts []upstream.EncodedLocality
		for _, l := range localities {
			part, err := upstream.EncodeLocality(l)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, part)
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(upstream.LoadAssignment("c", localities))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := upstream.AssembleLoadAssignment("c", parts); !ok || !bytes.Equal(got, want) {
			t.Errorf("%s: %x, %v, want %x", name, got, ok, want)
		}
	}
}

// TestHeavyLocalitiesAreNotPutTogether: their weights must be scaled down together.
func TestHeavyLocalitiesAreNotPutTogether(t *testing.T) {
	t.Parallel()
	part, err := upstream.EncodeLocality(upstream.Endpoints{Endpoints: []upstream.Endpoint{{Host: "10.0.0.1", Port: 1, Weight: 1 << 31}}})
	if err != nil {
		t.Fatal(err)
	}
	if body, ok := upstream.AssembleLoadAssignment("c", []upstream.EncodedLocality{part, part}); ok {
		t.Errorf("put together: %x", body)
	}
}
