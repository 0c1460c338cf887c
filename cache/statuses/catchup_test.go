package statuses_test

import (
	"context"
	"strconv"
	"testing"
	"time"
)

// TestALongAbsenceIsCaughtUpWithInOrder: etcd tells a watch that was away for long
// in parts, each under the revision of the store. What is seen at a revision is all
// of the statuses up to it all the same, and no revision comes after a later one.
func TestALongAbsenceIsCaughtUpWithInOrder(t *testing.T) {
	t.Parallel()
	const changes = 2500 // in one part etcd tells of 1000 revisions
	r, relay := startRelayed(t)
	at := r.await(r.say("a", "at first"))
	relay.HoldAnswers()
	first := r.say("a", "away")
	last := first
	for i := range changes {
		last = r.say("a", strconv.Itoa(i))
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

// TestAListedAnewStatusIsTold: while the statuses are listed anew, one who is led
// through the revisions of the configuration and is cut off in the middle resumes at
// the last revision that he was told. He is told of the statuses that are older, too.
func TestAListedAnewStatusIsTold(t *testing.T) {
	t.Parallel()
	r, relay := startRelayed(t)
	from := r.await(r.put("a", 0))
	relay.HoldAnswers()
	said := r.say("a", "while away")
	put := r.put("b", 1)
	last := r.say("c", "last")
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
	// Cut off here, the last that he has heard of is the object of revision put, or a
	// bookmark of all that there is.
	for _, resumed := range []int64{put, at.Revision()} {
		before, ok := r.merged.Since(ctx, resumed)
		if !ok {
			t.Fatalf("cannot resume at revision %d", resumed)
		}
		for path, report := range before.Statuses().All() {
			if at.Statuses().Value(path) == nil {
				t.Errorf("who resumes at revision %d is taken to know the status of revision %d (%d), which nobody told him", resumed, report.Revision, said)
			}
		}
	}
}

// TestWhoHeardOfAStatusLastIsToldTheNext: one who resumes at the revision of a status,
// before which the statuses were listed anew and since when no object has changed, is
// told what was said meanwhile.
func TestWhoHeardOfAStatusLastIsToldTheNext(t *testing.T) {
	t.Parallel()
	r, relay := startRelayed(t)
	r.put("a", 0)
	heard := r.say("a", "heard")
	r.await(heard)
	relay.HoldAnswers()
	r.say("a", "while away")
	last := r.say("a", "while still away")
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
