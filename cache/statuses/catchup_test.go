package statuses_test

import (
	"context"
	"strconv"
	"testing"
	"time"
)

// TestALongAbsenceIsCaughtUpWithInOrder: etcd sends a watch that was away for long its
// events in parts, each with the revision of the store. Still, a snapshot has exactly
// the statuses up to its revision, and revisions come in order.
func TestALongAbsenceIsCaughtUpWithInOrder(t *testing.T) {
	t.Parallel()
	const changes = 2500 // one part covers 1000 revisions
	r, relay := startRelayed(t)
	at := r.await(r.writeStatus("a", "at first"))
	relay.HoldAnswers()
	first := r.writeStatus("a", "away")
	last := first
	for i := range changes {
		last = r.writeStatus("a", strconv.Itoa(i))
	}
	relay.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for at.Revision() < last {
		var err error
		if at, err = r.merged.Await(ctx, at.Revision()+1); err != nil {
			t.Fatal(err)
		}
		if said := at.Statuses().Value(key("a").Path()); at.Revision() >= first && said.Revision != at.Revision() {
			t.Fatalf("at revision %d the status is that of revision %d", at.Revision(), said.Revision)
		}
	}
}

// TestAListedAnewStatusIsTold: while the statuses are listed again, a follower of the
// configuration's revisions is cut off, and resumes at its last revision. It also gets
// the older statuses.
func TestAListedAnewStatusIsTold(t *testing.T) {
	t.Parallel()
	r, relay := startRelayed(t)
	from := r.await(r.put("a", 0))
	relay.HoldAnswers()
	written := r.writeStatus("a", "while away")
	put := r.put("b", 1)
	last := r.writeStatus("c", "last")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r.forget(last)
	relay.Cut()
	r.await(last)

	at, err := r.merged.Next(ctx, from)
	if err != nil {
		t.Fatal(err)
	}
	if at.Changed() != put {
		t.Fatalf("the next after %d is %d, want %d", from.Revision(), at.Changed(), put)
	}
	// Cut off here, the follower last got the object of revision put, or a bookmark of
	// everything.
	for _, resumed := range []int64{put, at.Revision()} {
		before, ok := r.merged.Since(ctx, resumed)
		if !ok {
			t.Fatalf("cannot resume at revision %d", resumed)
		}
		for path, report := range before.Statuses().All() {
			if at.Statuses().Value(path) == nil {
				t.Errorf("who resumes at revision %d is taken to know the status of revision %d (%d), which nobody told him", resumed, report.Revision, written)
			}
		}
	}
}

// TestWhoHeardOfAStatusLastIsToldTheNext: a follower resumes at the revision of a
// status. The statuses were listed again since, and no object has changed. It gets the
// statuses written meanwhile.
func TestWhoHeardOfAStatusLastIsToldTheNext(t *testing.T) {
	t.Parallel()
	r, relay := startRelayed(t)
	r.put("a", 0)
	heard := r.writeStatus("a", "heard")
	r.await(heard)
	relay.HoldAnswers()
	r.writeStatus("a", "while away")
	last := r.writeStatus("a", "while still away")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r.forget(last)
	relay.Cut()
	r.await(last)
	at, ok := r.merged.Since(ctx, heard)
	if !ok {
		t.Fatal("cannot resume")
	}
	for said := at.Statuses().Value(key("a").Path()); said == nil || said.Revision < last; said = at.Statuses().Value(key("a").Path()) {
		from := at.Revision()
		var err error
		if at, err = r.merged.Next(ctx, at); err != nil {
			t.Fatalf("after revision %d nothing is told, and at %d something was said: %v", from, last, err)
		}
	}
}
