package cache_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache"
)

// run runs a worker until the test ends.
func run(t testing.TB, w *cache.Worker) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

// done posts a task and waits for its end and its hooks.
func done(w *cache.Worker) {
	finished := make(chan struct{})
	w.Post(new(byte), func() { w.Then(func() { close(finished) }) })
	<-finished
}

func TestWorkerRunsTasksInTheOrderOfTheirFirstPost(t *testing.T) {
	t.Parallel()
	w := cache.NewWorker()
	var got []string
	say := func(s string) func() { return func() { got = append(got, s) } }
	w.Post("a", say("a1"))
	w.Post("b", say("b1"))
	w.Post("a", say("a2"))
	w.Post("c", say("c1"))
	if w.Len() != 3 {
		t.Errorf("Len = %d, want 3: a newer task replaces one that waits", w.Len())
	}
	run(t, w)
	done(w)
	if d := cmp.Diff([]string{"a2", "b1", "c1"}, got); d != "" {
		t.Errorf("tasks (-want +got):\n%s", d)
	}
}

func TestWorkerRunsHooksThenWhatTheTaskLeft(t *testing.T) {
	t.Parallel()
	w := cache.NewWorker()
	var got []string
	w.AtTaskEnd(func() { got = append(got, "hook 1") })
	w.AtTaskEnd(func() { got = append(got, "hook 2") })
	w.Post("a", func() {
		w.Then(func() { got = append(got, "then") })
		got = append(got, "a")
	})
	w.Post("b", func() { got = append(got, "b") })
	run(t, w)
	done(w)
	want := []string{"a", "hook 1", "hook 2", "then", "b", "hook 1", "hook 2", "hook 1", "hook 2"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}

// TestWorkerLosesNoPost has several goroutines post their last value under one key each,
// while the worker alternately sleeps and works.
func TestWorkerLosesNoPost(t *testing.T) {
	t.Parallel()
	w := cache.NewWorker()
	run(t, w)
	const posters, posts = 4, 2000
	last := make([]int, posters) // written by the worker
	var group sync.WaitGroup
	for p := range posters {
		group.Go(func() {
			for i := range posts {
				w.Post(p, func() {
					if i < last[p] {
						t.Errorf("poster %d: %d after %d", p, i, last[p])
					}
					last[p] = i
				})
			}
		})
	}
	group.Wait()
	done(w)
	for p, got := range last {
		if got != posts-1 {
			t.Errorf("poster %d: last task run was %d, want %d", p, got, posts-1)
		}
	}
}

func TestWorkerTaskPostedByATaskRuns(t *testing.T) {
	t.Parallel()
	w := cache.NewWorker()
	again := make(chan struct{})
	w.Post("a", func() { w.Post("a", func() { close(again) }) })
	run(t, w)
	<-again
}

func TestWorkerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := cache.NewWorker()
	ctx, cancel := context.WithCancel(t.Context())
	finished := false
	w.Post("a", func() { cancel(); finished = true })
	w.Post("b", func() { t.Error("a task began after the end") })
	if err := w.Run(ctx); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if !finished || w.Len() != 1 {
		t.Errorf("finished = %v, %d wait; want the task under way finished, the other undone", finished, w.Len())
	}
}

func TestWorkerRefusesASecondRunAndALateHook(t *testing.T) {
	t.Parallel()
	w := cache.NewWorker()
	run(t, w)
	done(w)
	if err := w.Run(t.Context()); err == nil {
		t.Error("the second Run was let in")
	}
	defer func() {
		if recover() == nil {
			t.Error("AtTaskEnd after Run did not panic")
		}
	}()
	w.AtTaskEnd(func() {})
}

func BenchmarkWorkerPost(b *testing.B) {
	for _, keys := range []int{1, 1000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			w := cache.NewWorker()
			run(b, w)
			b.ReportAllocs()
			for i := range b.N {
				w.Post(i%keys, func() {})
			}
		})
	}
}
