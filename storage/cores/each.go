package cores

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// run is how many calls a goroutine takes at a time. Fewer calls than that stay in the goroutine
// of the caller.
const run = 16

// Each calls do with each number from 0 to n-1, several calls at a time and in any order, and
// returns after the last. Where a call panics, Each panics.
func Each(n int, do func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), (n+run-1)/run)
	if workers <= 1 {
		for i := range n {
			do(i)
		}
		return
	}
	var taken atomic.Int64
	var group sync.WaitGroup
	panics := make(chan string, workers)
	for range workers {
		group.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics <- fmt.Sprintf("%v\n%s", p, debug.Stack())
				}
			}()
			for {
				from := int(taken.Add(run)) - run
				if from >= n {
					return
				}
				for i := from; i < min(from+run, n); i++ {
					do(i)
				}
			}
		})
	}
	group.Wait()
	select {
	case p := <-panics:
		panic(p)
	default:
	}
}
