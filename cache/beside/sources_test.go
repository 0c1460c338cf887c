package beside

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/storage/status"
)

// follower makes Sources with one source, whose state and newest snapshot the test sets.
func follower(state *status.SourceState, newest **cache.Snapshot) *Sources {
	return &Sources{
		States: func() []status.SourceState { return []status.SourceState{*state} },
		Newest: func() *cache.Snapshot { return *newest },
	}
}

// TestSourcesAreFollowed: following a random history has the same result as starting at
// its end. Unchanged parts stay the same values.
func TestSourcesAreFollowed(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	state, at := &status.SourceState{Name: "dir", Complete: true}, cachetest.DirectoryOf(1)
	b := follower(state, &at)
	b.Follow(at)
	for round := range int64(200) {
		configs := at.Configs()
		object := cachetest.InFile(fmt.Sprint(random.IntN(100)), fmt.Sprintf("f%d", round))
		if path := object.Key().Path(); random.IntN(3) == 0 {
			configs = configs.Delete(path)
		} else {
			configs = configs.Set(path, object)
		}
		before := b.Report("a")
		at = at.Next(round+2, cache.Content{Configs: configs})
		b.Follow(at)
		after, differ := b.Report("a"), 0
		for path, content := range after.Contents {
			if before.Contents[path] != content {
				differ++
			}
		}
		if differ > 1 {
			t.Errorf("round %d: one object makes %d parts", round, differ)
		}
	}
	anew := follower(state, &at)
	anew.Follow(at)
	got, want := b.Report("a"), anew.Report("a")
	if d := cmp.Diff(want.States, got.States); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(want.Contents, got.Contents); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestASourceIsCompleteOnceItIsPublished: while objects are read but not yet published,
// the source is not reported as complete without them.
func TestASourceIsCompleteOnceItIsPublished(t *testing.T) {
	t.Parallel()
	state, newest := &status.SourceState{Name: "dir", Complete: true}, cachetest.DirectoryOf(1, cachetest.InFile("a", "f1"))
	b := follower(state, &newest)
	b.Follow(cachetest.DirectoryOf(1))
	if b.Report("x").States[0].Complete {
		t.Error("it is complete before it is published")
	}
	b.Follow(newest)
	if !b.Report("x").States[0].Complete {
		t.Error("it is not complete when it is published")
	}
	newest = cachetest.DirectoryOf(2, cachetest.InFile("a", "f2")) // read, not yet published
	if !b.Report("x").States[0].Complete {
		t.Error("it is not complete any more while a change is on its way")
	}
	state.Complete = false
	if b.Report("x").States[0].Complete {
		t.Error("it is complete and cannot be read")
	}
	state.Complete = true
	if b.Report("x").States[0].Complete {
		t.Error("it is complete before the change is published")
	}
	if none := (&Sources{}).Report("x"); len(none.States) > 0 {
		t.Errorf("a server without sources has %v", none.States)
	}
}
