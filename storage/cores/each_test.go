package cores_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/portolan-mesh/portolan/storage/cores"
)

func TestEachCallsOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 15, 16, 17, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			calls := make([]atomic.Int32, n)
			cores.Each(n, func(i int) { calls[i].Add(1) })
			for i := range calls {
				if got := calls[i].Load(); got != 1 {
					t.Errorf("%d calls with %d", got, i)
				}
			}
		})
	}
}

func TestEachPanics(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "the last") {
					t.Errorf("Each panicked with %q", p)
				}
			}()
			cores.Each(n, func(i int) {
				if i == n-1 {
					panic("the last")
				}
			})
			t.Error("Each returned")
		})
	}
}
