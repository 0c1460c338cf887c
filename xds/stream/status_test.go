package stream_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/xds/stream"
)

// TestStatusTellsWhatWasTaken: a client is at a revision when it has taken all
// that this revision changed for it, in as many responses as that took.
func TestStatusTellsWhatWasTaken(t *testing.T) {
	t.Parallel()
	for _, v := range []stream.Variant{stream.Delta, stream.StateOfTheWorld} {
		s := stream.New(clusters, v)
		expectAt := func(when string, state stream.State, revision, changed int64) {
			t.Helper()
			if st := s.Status(); st.State != state || st.Revision != revision || st.Changed != changed {
				t.Errorf("%s, %s: %s at %d, changed at %d; want %s at %d, %d", v, when, st.State, st.Revision, st.Changed, state, revision, changed)
			}
		}
		s.Offer(set(t, map[string]string{"a": "1", "b": "1"}), 1)
		expectAt("nothing was asked for", stream.NotSent, 0, 0)
		s.Request(said(""))
		expectAt("asked for", stream.Stale, 0, 1)
		take(t, s, true)
		expectAt("taken", stream.Synced, 1, 1)
		s.Offer(set(t, map[string]string{"a": "1", "b": "1"}), 2)
		expectAt("no difference", stream.Synced, 2, 1)

		s.Offer(set(t, map[string]string{"a": "2"}), 3)
		take(t, s, false)
		expectAt("the removal waits", stream.Stale, 2, 3)
		s.Offer(set(t, map[string]string{"a": "2"}), 4)
		expectAt("still", stream.Stale, 2, 3)
		take(t, s, true)
		expectAt("all is taken", stream.Synced, 4, 3)

		s.Offer(set(t, map[string]string{"a": "bad"}), 5)
		refuse(t, s)
		expectAt("refused", stream.Rejected, 4, 5)
		s.Offer(set(t, map[string]string{"a": "bad", "c": "1"}), 6)
		if v == stream.Delta {
			take(t, s, true)
			expectAt("another change does not mend it", stream.Rejected, 4, 6)
		} else {
			refuse(t, s)
		}
		if names := refused(s); !slices.Equal(names, []string{"a"}) && v == stream.Delta {
			t.Errorf("%s: refused %v", v, names)
		}
		s.Offer(set(t, map[string]string{"a": "good", "c": "1"}), 7)
		take(t, s, true)
		expectAt("mended", stream.Synced, 7, 7)
	}
}

func refuse(t *testing.T, s *stream.Session) {
	t.Helper()
	r, ok := s.Next(stream.All())
	if !ok {
		t.Fatal("there is nothing to refuse")
	}
	if sent := s.Status().Sent; sent != r.Mark {
		t.Errorf("under way is %+v, and %+v was sent", sent, r.Mark)
	}
	s.Request(stream.Request{Nonce: r.Nonce, Rejected: true, Message: "no"})
}

func refused(s *stream.Session) (names []string) {
	for name := range s.Refused() {
		names = append(names, name)
	}
	return names
}
