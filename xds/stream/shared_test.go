package stream_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
)

// TestASharedDifferenceIsTheDifference, whoever has asked for it before, and however
// large it is.
func TestASharedDifferenceIsTheDifference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shared := stream.NewShared()
		offers := []resource.Set{{}}
		for n := range rapid.IntRange(1, 6).Draw(t, "offers") {
			set := offers[rapid.IntRange(0, len(offers)-1).Draw(t, "from")]
			for range rapid.SampledFrom([]int{0, 1, 2, 31, 32, 33, 100}).Draw(t, "changes") {
				name := fmt.Sprint(rapid.IntRange(0, 200).Draw(t, "name"))
				if rapid.Bool().Draw(t, "gone") {
					set = set.Delete(name)
				} else {
					set = set.Set(name, &resource.Resource{Name: name, Version: fmt.Sprint(n)})
				}
			}
			offers = append(offers, set)
		}
		for range 2 {
			for _, to := range offers {
				s := stream.New(stream.Type{Shared: shared}, stream.Delta)
				s.Offer(to, 1)
				for _, from := range offers {
					if d := cmp.Diff(slices.Collect(pmap.Diff(from, to)), slices.Collect(s.Since(from))); d != "" {
						t.Fatal(d)
					}
				}
			}
		}
	})
}
