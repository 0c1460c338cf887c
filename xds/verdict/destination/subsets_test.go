package destination

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/storage/labels"
)

// eachWithAll compares every selector with every endpoint.
func eachWithAll(selectors, endpoints []labels.Instance) (out []int) {
	for i, selector := range selectors {
		if len(endpoints) > 0 && !slices.ContainsFunc(endpoints, selector.SubsetOf) {
			out = append(out, i)
		}
	}
	return out
}

// TestUnselectingIsWhatComparingAllFinds, for random selectors and endpoints of few labels.
func TestUnselectingIsWhatComparingAllFinds(t *testing.T) {
	t.Parallel()
	some := rapid.MapOfN(rapid.SampledFrom([]string{"app", "version", "zone", ""}), rapid.SampledFrom([]string{"a", "b", ""}), 0, 3)
	drawn := func(rt *rapid.T, name string) (out []labels.Instance) {
		for _, m := range rapid.SliceOfN(some, 0, 6).Draw(rt, name) {
			out = append(out, m)
		}
		return out
	}
	rapid.Check(t, func(rt *rapid.T) {
		selectors, endpoints := drawn(rt, "selectors"), drawn(rt, "endpoints")
		got, want := unselecting(selectors, slices.Values(endpoints)), eachWithAll(selectors, endpoints)
		if !slices.Equal(got, want) {
			rt.Errorf("%v select none of %v, want %v", got, endpoints, want)
		}
	})
}

// BenchmarkUnselecting has a rule of two subsets or of a hundred, of which half select none of 1,000
// endpoints.
func BenchmarkUnselecting(b *testing.B) {
	for _, subsets := range []int{2, 100} {
		b.Run(fmt.Sprint(subsets), func(b *testing.B) {
			var selectors, endpoints []labels.Instance
			for i := range subsets {
				selectors = append(selectors, labels.Instance{"app": "web", "version": fmt.Sprint("v", i)})
			}
			for i := range 1000 {
				endpoints = append(endpoints, labels.Instance{"app": "web", "version": fmt.Sprint("v", i%(subsets/2)), "zone": "a"})
			}
			b.ReportAllocs()
			for b.Loop() {
				if got := unselecting(selectors, slices.Values(endpoints)); len(got) != subsets/2 {
					b.Fatal(got)
				}
			}
		})
	}
}
