package protocol_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
)

var virtualHosts = protocol.Type{URL: "hosts", Full: true, Scoped: true}

// TestWhatNothingLeadsToIsSentWhenItIsOpened: the resources of a scope are sent when it
// opens, also after the subscription has ignored it, with changes from meanwhile.
func TestWhatNothingLeadsToIsSentWhenItIsOpened(t *testing.T) {
	t.Parallel()
	for _, isNew := range []bool{true, false} {
		s := protocol.New(virtualHosts, protocol.Delta)
		s.OpenScope("a", true)
		s.SetDesired(set(t, map[string]string{"a/1": "1", "b/1": "1", "b/2": "1"}), 1)
		s.Request(protocol.Request{})
		expect(t, "of what is open", names(take(t, s, true)), "+a/1")
		expect(t, "of the rest", names(s.Next(protocoltest.Everything())))
		s.SetDesired(set(t, map[string]string{"a/1": "1", "b/1": "2", "b/3": "1"}), 2)
		expect(t, "of what changed in the rest", names(s.Next(protocoltest.Everything())))
		if s.Pending() || s.InSync("b/1") {
			t.Error("what is not open is pending, or held")
		}
		s.OpenScope("b", isNew)
		expect(t, "of what was opened", names(take(t, s, true)), "+b/1", "+b/3")
		s.CloseScope("b")
		expect(t, "of what was closed", names(take(t, s, true)), "-b/1", "-b/3")
	}
}

// TestWhatAClientStatesIsNotTakenForWhatIsOffered: when a scope opens late, the client is
// sent what it lacks in it, and the removal of what is gone, and nothing else.
func TestWhatAClientStatesIsNotTakenForWhatIsOffered(t *testing.T) {
	t.Parallel()
	now := set(t, map[string]string{"a/1": "1", "b/1": "1", "b/2": "1"})
	s := protocol.New(virtualHosts, protocol.Delta)
	s.OpenScope("a", true)
	s.SetDesired(now, 1)
	s.Request(protocol.Request{Initial: protocoltest.Versions(map[string]string{"b/1": now.Value("b/1").Version, "b/9": "gone"})})
	expect(t, "of what is open", names(take(t, s, true)), "+a/1")
	expect(t, "of the rest", names(s.Next(protocoltest.Everything())))
	s.OpenScope("b", false)
	expect(t, "of what was opened", names(take(t, s, true)), "+b/2")
	expect(t, "at last", names(take(t, s, true)), "-b/9")
}

// TestARefusalBesideWhatNothingLeadsTo: a rejection concerns the resource that was sent,
// which is not sent again, even if resources of a scope that was never open changed with
// it.
func TestARefusalBesideWhatNothingLeadsTo(t *testing.T) {
	t.Parallel()
	s := protocol.New(virtualHosts, protocol.Delta)
	s.OpenScope("a", true)
	s.SetDesired(set(t, map[string]string{"a/1": "1", "b/1": "1"}), 1)
	s.Request(protocol.Request{})
	expect(t, "of what is open", names(take(t, s, true)), "+a/1")
	s.SetDesired(set(t, map[string]string{"a/1": "2", "b/1": "2"}), 2)
	r, ok := s.Next(protocoltest.Everything())
	expect(t, "what is refused", names(r, ok), "+a/1")
	s.Request(protocol.Request{Nonce: r.Nonce, Rejected: true})
	expect(t, "after the refusal", names(s.Next(protocoltest.Everything())))
	s.SetDesired(set(t, map[string]string{"a/1": "3", "b/1": "2"}), 3)
	expect(t, "what is good again", names(take(t, s, true)), "+a/1")
}
