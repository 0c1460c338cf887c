package file_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache/file"
)

// TestOneFileCostsTheSameInALargeDirectory: a changed file, from its write to its
// snapshot, allocates at most twice as often among 3,000 files as among 300. Not
// parallel: it counts the allocations of the process.
func TestOneFileCostsTheSameInALargeDirectory(t *testing.T) {
	var allocations [2]float64
	for i, n := range []int{300, 3000} {
		dir := t.TempDir()
		for k := range n {
			write(t, filepath.Join(dir, fmt.Sprintf("x%d.yaml", k)), entry(t, fmt.Sprint("x", k), 0))
		}
		s, stop := launch(t, dir, func(o *file.Options) { o.Timing.Rescan = time.Hour }) // so that no rescan is counted
		s.await("it has synced", s.HasSynced)
		var texts []string
		for round := range 25 {
			texts = append(texts, entry(t, "x7", round+1))
		}
		last := s.Snapshot()
		allocations[i] = testing.AllocsPerRun(len(texts)-5, func() {
			replace(t, s.path("x7.yaml"), texts[0])
			texts = texts[1:]
			next, err := s.Next(t.Context(), last)
			must(t, err)
			last = next
		})
		stop()
	}
	t.Logf("%.0f allocations among 300 files, %.0f among 3,000", allocations[0], allocations[1])
	if allocations[1] > 2*allocations[0] {
		t.Errorf("a change allocates %.0f times among 300 files and %.0f times among 3,000", allocations[0], allocations[1])
	}
}
