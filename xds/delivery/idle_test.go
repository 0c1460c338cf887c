package delivery_test

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/xds/delivery"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// twins are two sequencers that get the same calls. The types of the second are woken
// before each call. The test fails if the two send different responses, or have different
// states of the client.
type twins struct {
	*delivery.Sequencer
	t       *rapid.T
	awake   *delivery.Sequencer
	offered int64
}

func newTwins(t *rapid.T, v protocol.Variant) *twins {
	return &twins{Sequencer: delivery.New(types(), v, limits), t: t, awake: delivery.New(types(), v, limits)}
}

func (w *twins) wake() {
	for range w.awake.Subscriptions() {
	}
}

func (w *twins) Offer(of func(typeURL string) resource.Set, revision int64) {
	w.wake()
	w.awake.SetDesired(of, revision)
	w.Sequencer.SetDesired(of, revision)
	w.offered = revision
}

func (w *twins) Request(typeURL string, q protocol.Request, now time.Time) protocol.Answer {
	w.wake()
	want, got := w.awake.Request(typeURL, q, now), w.Sequencer.Request(typeURL, q, now)
	if d := cmp.Diff(want, got); d != "" {
		w.t.Fatalf("answer (-awake +rested):\n%s", d)
	}
	w.check()
	return got
}

func (w *twins) Responses(now time.Time) iter.Seq2[string, *protocol.Response] {
	say := func(typeURL string, r *protocol.Response) string {
		return fmt.Sprint(typeURL, r.ResponseID, names(r.Resources), r.Removed, names(r.Changed), slices.Sorted(maps.Keys(r.Withdrawn)))
	}
	return func(yield func(string, *protocol.Response) bool) {
		w.wake()
		var want []string
		for typeURL, r := range w.awake.Responses(now) {
			want = append(want, say(typeURL, r))
		}
		for typeURL, r := range w.Sequencer.Responses(now) {
			if got := say(typeURL, r); len(want) == 0 || got != want[0] {
				w.t.Fatalf("sent %s, awake it would be %q", got, want)
			}
			if want = want[1:]; !yield(typeURL, r) {
				w.t.Fatal("responses are not all taken")
			}
		}
		if len(want) > 0 {
			w.t.Fatalf("not sent, as it would be awake: %q", want)
		}
		if want, got := w.awake.Wake(), w.Wake(); !got.Equal(want) {
			w.t.Fatalf("to be looked at at %s, awake at %s", got, want)
		}
		w.check()
	}
}

// check compares the states that the twins have of the client.
func (w *twins) check() {
	for i, typ := range types() {
		want := w.awake.Subscription(typ.URL).Status()
		if w.Idle(i) == 0 {
			if d := cmp.Diff(want, w.Subscription(typ.URL).Status()); d != "" {
				w.t.Fatalf("%s (-awake +rested):\n%s", typ.URL, d)
			}
			continue
		}
		additions, withdrawals := w.awake.Waiting(typ.URL)
		if additions+withdrawals > 0 || w.awake.OnlyKeptRemovals(typ.URL) || want.State == protocol.Stale || want.State == protocol.Rejected {
			w.t.Fatalf("%s rests, and is %s, with %d and %d waiting", typ.URL, want.State, additions, withdrawals)
		}
		if at := w.Revision(); at != w.offered || want.State == protocol.Synced && (want.AckedRevision != at || want.AckedIgnoringRejected != at || want.Desired != at) {
			w.t.Fatalf("%s rests at %d, and is at %+v", typ.URL, at, want)
		}
	}
}
