package protocol_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// TestASharedDifferenceIsTheDifference, whoever asked for it before, and however large it
// is.
func TestASharedDifferenceIsTheDifference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shared := protocol.NewShared()
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
				s := protocol.New(protocol.Type{Shared: shared}, protocol.Delta)
				s.SetDesired(to, 1)
				for _, from := range offers {
					if d := cmp.Diff(slices.Collect(resource.Diff(from, to)), slices.Collect(s.ChangesSince(from))); d != "" {
						t.Fatal(d)
					}
				}
			}
		}
	})
}

// TestWhatIsSharedIsForgotten: a shared difference does not keep in memory a resource
// that no client has any more.
func TestWhatIsSharedIsForgotten(t *testing.T) {
	t.Parallel()
	shared, gone := protocol.NewShared(), make(chan struct{})
	s := protocol.New(protocol.Type{Shared: shared}, protocol.Delta)
	func() {
		old := &resource.Resource{Name: "a", Version: "1"}
		runtime.AddCleanup(old, func(gone chan struct{}) { close(gone) }, gone)
		before := resource.Set{}.Set("a", old)
		s.SetDesired(before.Set("a", &resource.Resource{Name: "a", Version: "2"}), 1)
		if n := len(slices.Collect(s.ChangesSince(before))); n != 1 {
			t.Errorf("%d differences", n)
		}
	}()
	defer runtime.KeepAlive(s) // and with it what is shared
	for limit := time.After(30 * time.Second); ; {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-limit:
			t.Fatal("it is kept")
		case <-time.After(50 * time.Millisecond):
		}
	}
}
