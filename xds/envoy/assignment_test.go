package envoy_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/envoy"
)

// TestAnAssignmentOfLocalitiesIsTheWhole: put together of localities that were
// encoded one by one it has the bytes that it has when it is encoded as a whole.
func TestAnAssignmentOfLocalitiesIsTheWhole(t *testing.T) {
	t.Parallel()
	one := envoy.Endpoints{Locality: "r/z/s", Endpoints: []envoy.Endpoint{{Host: "10.0.0.1", Port: 80, Weight: 3}, {Host: "fd00::1", Port: 81, Health: envoy.Unhealthy}}}
	other := envoy.Endpoints{Priority: 2, Weight: 7, Endpoints: []envoy.Endpoint{{Host: "/run/s"}}}
	heavy := envoy.Endpoints{Locality: "r", Endpoints: []envoy.Endpoint{{Host: "10.0.0.2", Port: 1, Weight: 1 << 31}, {Host: "10.0.0.3", Port: 1, Weight: 1 << 31}}}
	for name, localities := range map[string][]envoy.Endpoints{
		"none": nil, "one": {one}, "two": {one, other}, "one without endpoints": {{Locality: "r"}, other},
		"weights beyond 32 bits": {heavy, one, heavy},
	} {
		var parts []envoy.EncodedLocality
		for _, l := range localities {
			part, err := envoy.EncodeLocality(l)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, part)
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(envoy.LoadAssignment("c", localities))
		if err != nil {
			t.Fatal(err)
		}
		if got := envoy.AssembleLoadAssignment("c", parts); !bytes.Equal(got, want) {
			t.Errorf("%s: %x, want %x", name, got, want)
		}
	}
}
