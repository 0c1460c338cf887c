package statuses_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// forgetter follows like the API's clients. It is cut off again and again in the middle
// of one snapshot's events, and resumes at the last revision that it got.
type forgetter struct {
	merged *statuses.Cache
	random *rand.Rand
	knows  map[string]int64 // revisions of objects and of their statuses
	heard  int64
	lists  int
}

type tidings struct {
	subject  string
	revision int64
	gone     bool
}

func knownIn(s *cache.Snapshot) map[string]int64 {
	out := map[string]int64{}
	for path, object := range s.Configs().All() {
		out["object "+path], _ = strconv.ParseInt(object.ResourceVersion, 10, 64)
	}
	for path, report := range s.Statuses().All() {
		out["status "+path] = report.Revision
	}
	return out
}

func (f *forgetter) between(at, next *cache.Snapshot) []tidings {
	goneAt := next.Changed()
	if _, known := f.merged.At(at.Revision()); !known && next.Changed() != at.Revision()+1 {
		goneAt = at.Revision()
	}
	var out []tidings
	for c := range pmap.Diff(at.Configs(), next.Configs()) {
		if c.HasNew {
			revision, _ := strconv.ParseInt(c.New.ResourceVersion, 10, 64)
			out = append(out, tidings{"object " + c.Key, revision, false})
		} else {
			out = append(out, tidings{"object " + c.Key, goneAt, true})
		}
	}
	for c := range pmap.Diff(at.Statuses(), next.Statuses()) {
		if c.HasNew && (c.Old == nil || c.Old.Revision != c.New.Revision) {
			out = append(out, tidings{"status " + c.Key, c.New.Revision, false})
		}
	}
	slices.SortStableFunc(out, func(a, b tidings) int { return cmp.Compare(a.revision, b.revision) })
	return out
}

// until follows until it has got everything up to a revision.
func (f *forgetter) until(ctx context.Context, last int64) error {
	for {
		if _, err := f.merged.Await(ctx, f.heard); err != nil {
			return err
		}
		at, ok := f.merged.Since(ctx, f.heard)
		if !ok {
			at = f.merged.Snapshot()
			f.knows, f.heard = knownIn(at), at.Revision()
			f.lists++
		}
		done, err := f.watch(ctx, at, last)
		if done || err != nil {
			return err
		}
	}
}

func (f *forgetter) watch(ctx context.Context, at *cache.Snapshot, last int64) (bool, error) {
	for at.Revision() < last {
		next, err := f.merged.Next(ctx, at)
		if err != nil {
			return false, err
		}
		for _, one := range f.between(at, next) {
			if f.heard = one.revision; one.gone {
				delete(f.knows, one.subject)
			} else {
				f.knows[one.subject] = one.revision
			}
			if f.random.IntN(3) == 0 {
				return false, nil
			}
		}
		if at = next; f.random.IntN(4) == 0 {
			f.heard = at.Revision() // a bookmark
			return false, nil
		}
	}
	return true, nil
}

// TestWhoIsCutOffMissesNothing: wherever a client is cut off, even while the statuses
// are listed again, it ends up with the present state.
func TestWhoIsCutOffMissesNothing(t *testing.T) {
	t.Parallel()
	r, relay := startRelayed(t)
	from := r.await(r.put("a", 0))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var clients []*forgetter
	for seed := range uint64(20) {
		clients = append(clients, &forgetter{merged: r.merged, random: rand.New(rand.NewPCG(seed, 1)), knows: knownIn(from), heard: from.Revision()})
	}
	random := rand.New(rand.NewPCG(3, 0))
	there := map[string]bool{}
	for round := range 5 {
		relay.HoldAnswers()
		for i := range 15 {
			name := fmt.Sprintf("o%d", random.IntN(6))
			switch {
			case random.IntN(2) == 0:
				r.writeStatus(name, strconv.Itoa(i))
			case there[name] && random.IntN(3) == 0:
				r.delete(name)
				there[name] = false
			default:
				r.put(name, 100*round+i+1)
				there[name] = true
			}
		}
		last := r.writeStatus("a", strconv.Itoa(round))
		r.forget(last)
		relay.Cut()
		want := knownIn(r.await(last))
		for i, f := range clients {
			if err := f.until(ctx, last); err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(want, f.knows); diff != "" {
				t.Errorf("round %d: what there is, and what client %d knows after %d lists (-want +got):\n%s", round, i, f.lists, diff)
				f.knows = maps.Clone(want)
			}
		}
	}
}
