package protocol_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
)

// listeners is the type of a client that names each listener, and waits for each.
var listeners = protocol.Type{URL: "listeners", Full: true, Empty: empty}

// TestUnknownNamesOfAFullType: a client that names resources of a full type, as gRPC
// does, gets an answer for each name. In state of the world it cannot tell by a missing
// one that there is none: the response may answer an older request.
func TestUnknownNamesOfAFullType(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.StateOfTheWorld, protocol.Delta} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			s := protocol.New(listeners, v)
			s.SetDesired(set(t, map[string]string{"a": "1", "other": "1"}), 1)
			asked := []string{"a", "nowhere"}
			s.Request(protocol.Request{Names: protocoltest.NameSet(asked...), Subscribe: protocoltest.NameSet(asked...)})
			expect(t, "first", names(take(t, s, true, asked...)), "+a", "+nowhere")

			s.SetDesired(set(t, map[string]string{"other": "2"}), 2)
			expect(t, "not before removals may go", names(s.Next(protocol.Additions())))
			want := []string{"+a"}
			if v == protocol.StateOfTheWorld {
				want = append(want, "+nowhere")
			}
			expect(t, "one that goes", names(take(t, s, true, asked...)), want...)
			s.SetDesired(set(t, map[string]string{"other": "3"}), 3)
			expect(t, "then nothing", names(s.Next(protocoltest.Everything())))
		})
	}
}

// TestNobodyAnswersForGivenUpNames: a client that unsubscribes from its last name while a
// response is in flight does not answer the response.
func TestNobodyAnswersForGivenUpNames(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.StateOfTheWorld, protocol.Delta} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			s := protocol.New(protocol.Type{URL: "secrets", ByName: true}, v)
			s.SetDesired(set(t, map[string]string{"a": "1"}), 1)
			s.Request(said("", "a", "*"))
			expect(t, "first", names(take(t, s, true, "a")), "+a")
			s.SetDesired(set(t, map[string]string{"a": "2"}), 2)
			sent, _ := s.Next(protocoltest.Everything())
			if answer := s.Request(protocol.Request{Nonce: "1-1", Unsubscribe: protocoltest.NameSet("a")}); answer.ACK == nil || answer.ACK.Nonce != sent.Nonce || s.InFlight() {
				t.Errorf("the response counts as %+v", answer)
			}
			if st := s.Status(); st.State != protocol.Synced || st.AckedRevision != 2 {
				t.Errorf("status %+v", st)
			}
			s.Request(protocol.Request{Nonce: sent.Nonce}) // a client that does answer
			expect(t, "nothing is wanted", names(s.Next(protocoltest.Everything())))
			s.Request(protocol.Request{Nonce: sent.Nonce, Subscribe: protocoltest.NameSet("a"), Names: protocoltest.NameSet("a")})
			expect(t, "again", names(take(t, s, true, "a")), "+a")
		})
	}
}
