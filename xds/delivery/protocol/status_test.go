package protocol_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
)

// TestStatusTellsWhatWasTaken: a client has acknowledged a revision once it has
// acknowledged all changes up to it, in however many responses.
func TestStatusTellsWhatWasTaken(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		s := protocol.New(clusters, v)
		expectAt := func(when string, state protocol.State, revision, changed int64) {
			t.Helper()
			if st := s.Status(); st.State != state || st.AckedRevision != revision || st.Changed != changed {
				t.Errorf("%s, %s: %s at %d, changed at %d; want %s at %d, %d", v, when, st.State, st.AckedRevision, st.Changed, state, revision, changed)
			}
		}
		s.SetDesired(set(t, map[string]string{"a": "1", "b": "1"}), 1)
		expectAt("nothing was asked for", protocol.NotSent, 0, 0)
		s.Request(said(""))
		expectAt("asked for", protocol.Stale, 0, 1)
		take(t, s, true)
		expectAt("taken", protocol.Synced, 1, 1)
		s.SetDesired(set(t, map[string]string{"a": "1", "b": "1"}), 2)
		expectAt("no difference", protocol.Synced, 2, 1)

		s.SetDesired(set(t, map[string]string{"a": "2"}), 3)
		take(t, s, false)
		expectAt("the removal waits", protocol.Stale, 2, 3)
		s.SetDesired(set(t, map[string]string{"a": "2"}), 4)
		expectAt("still", protocol.Stale, 2, 3)
		take(t, s, true)
		expectAt("all is taken", protocol.Synced, 4, 3)

		s.SetDesired(set(t, map[string]string{"a": "bad"}), 5)
		refuse(t, s)
		expectAt("refused", protocol.Rejected, 4, 5)
		s.SetDesired(set(t, map[string]string{"a": "bad", "c": "1"}), 6)
		take(t, s, true)
		expectAt("another change does not mend it", protocol.Rejected, 4, 6)
		if names := refused(s); !slices.Equal(names, []string{"a"}) {
			t.Errorf("%s: refused %v", v, names)
		}
		s.SetDesired(set(t, map[string]string{"a": "good", "c": "1"}), 7)
		take(t, s, true)
		expectAt("mended", protocol.Synced, 7, 7)
	}
}

func refuse(t *testing.T, s *protocol.Subscription) {
	t.Helper()
	r, ok := s.Next(protocoltest.Everything())
	if !ok {
		t.Fatal("there is nothing to refuse")
	}
	if sent := s.Status().Sent; sent != r.ResponseID {
		t.Errorf("under way is %+v, and %+v was sent", sent, r.ResponseID)
	}
	s.Request(protocol.Request{Nonce: r.Nonce, Rejected: true, Message: "no"})
}

func refused(s *protocol.Subscription) (names []string) {
	for name := range s.Rejected() {
		names = append(names, name)
	}
	return names
}

// TestTheRefusalOfNothingStands: the NACK of an empty response stands until the next ACK,
// though no resource is rejected.
func TestTheRefusalOfNothingStands(t *testing.T) {
	s := protocol.New(clusters, protocol.StateOfTheWorld)
	s.SetDesired(set(t, nil), 1)
	s.Request(protocol.Request{})
	refused, _ := s.Next(protocol.Allow{})
	s.Request(protocol.Request{Nonce: refused.Nonce, Rejected: true, Message: "no"})
	if st := s.Status(); st.State != protocol.Rejected || st.LastNACK == nil || st.LastNACK.Message != "no" {
		t.Errorf("the status is %+v", st)
	}
	s.SetDesired(set(t, map[string]string{"a": "1"}), 2)
	taken, _ := s.Next(protocol.Allow{})
	s.Request(protocol.Request{Nonce: taken.Nonce})
	if st := s.Status(); st.State != protocol.Synced || st.LastNACK != nil {
		t.Errorf("the status is %+v", st)
	}
}

// TestTheRefusalOfWhatIsUnsubscribedFrom: a NACK does not stand if the client has
// unsubscribed from the refused name before.
func TestTheRefusalOfWhatIsUnsubscribedFrom(t *testing.T) {
	s := protocol.New(secrets, protocol.Delta)
	s.SetDesired(set(t, map[string]string{"a": "1", "b": "1"}), 1)
	s.Request(protocol.Request{Subscribe: protocoltest.NameSet("a", "b")})
	s.Next(protocol.Allow{Add: func(name string) bool { return name == "a" }})
	taken := s.Status().Sent
	s.Request(protocol.Request{Nonce: taken.Nonce})
	refused, _ := s.Next(protocol.Allow{})
	s.Request(protocol.Request{Unsubscribe: protocoltest.NameSet("b")})
	s.Request(protocol.Request{Nonce: refused.Nonce, Rejected: true, Message: "no"})
	if st := s.Status(); st.State != protocol.Synced || st.LastNACK != nil {
		t.Errorf("the status is %+v", st)
	}
}
