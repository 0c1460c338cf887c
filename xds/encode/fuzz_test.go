package encode_test

import (
	"maps"
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
)

// FuzzRequest: Decode reads a request as protobuf reads it, or refuses it as protobuf
// does.
func FuzzRequest(f *testing.F) {
	for _, n := range []int{0, 1, 40} {
		bytes, err := proto.Marshal(subscription(n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes)
	}
	twice := []byte{0x2a, 5, 0x0a, 1, 'c', 0x12, 0} // initial_resource_versions: c, without a version
	f.Add(slices.Concat([]byte{0x2a, 6, 0x0a, 1, 'c', 0x12, 1, '2'}, twice, twice))
	table := nameset.NewTable()
	f.Fuzz(func(t *testing.T, data []byte) {
		r, into := request(table)
		err := r.Decode(mem.BufferSlice{mem.SliceBuffer(slices.Clone(data))})
		want := &discoveryv3.DeltaDiscoveryRequest{}
		if wantErr := proto.Unmarshal(data, want); (err == nil) != (wantErr == nil) {
			t.Fatalf("%x: %v, of protobuf %v", data, err, wantErr)
		}
		if err != nil {
			return
		}
		for i, names := range [][]string{want.ResourceNamesSubscribe, want.ResourceNamesUnsubscribe} {
			slices.Sort(names)
			if got := slices.Sorted(r.Names[i].All()); !slices.Equal(got, slices.Compact(names)) {
				t.Errorf("%x: list %d is %q, of protobuf %q", data, i, got, names)
			}
		}
		stated := map[string]string{}
		for _, v := range r.Stated {
			stated[v.Name] = v.Version
		}
		if !maps.Equal(stated, want.InitialResourceVersions) {
			t.Errorf("%x: stated is %q, of protobuf %q", data, stated, want.InitialResourceVersions)
		}
		want.ResourceNamesSubscribe, want.ResourceNamesUnsubscribe, want.InitialResourceVersions = nil, nil, nil
		if !proto.Equal(into, want) {
			t.Errorf("%x: %v, of protobuf %v", data, into, want)
		}
	})
}
