package protocol_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// holdings writes for each name what the client has and should have: "a: 1 -> 2 in
// flight".
func holdings(t *testing.T, s *protocol.Subscription) string {
	t.Helper()
	content := func(r *resource.Resource) string {
		if r == nil {
			return "nothing"
		}
		var value wrapperspb.StringValue
		if err := r.Body.UnmarshalTo(&value); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%q", value.Value)
	}
	var out []string
	for _, h := range s.Holdings(s.DesiredSet()) {
		line := h.Name + ": " + content(h.Acked)
		if !h.InSync() {
			line += " -> " + content(h.Desired)
		}
		for text, so := range map[string]bool{" unknown": h.Unknown, " in flight": h.InFlight} {
			if so {
				line += text
			}
		}
		if h.Rejected != nil {
			line += " refused: " + h.Rejected.Message
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func TestHoldings(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			s := protocol.New(clusters, v)
			expectHeld := func(when string, want ...string) {
				t.Helper()
				if d := cmp.Diff(strings.Join(want, "\n"), holdings(t, s)); d != "" {
					t.Errorf("%s (-want +got):\n%s", when, d)
				}
			}
			s.SetDesired(set(t, map[string]string{"a": "1", "b": "1"}), 1)
			expectHeld("before a request")
			s.Request(said(""))
			expectHeld("requested", `a: nothing -> "1"`, `b: nothing -> "1"`)
			r, _ := s.Next(protocoltest.Everything())
			expectHeld("sent", `a: nothing -> "1" in flight`, `b: nothing -> "1" in flight`)
			s.Request(said(r.Nonce))
			expectHeld("acknowledged", `a: "1"`, `b: "1"`)

			s.SetDesired(set(t, map[string]string{"a": "2"}), 2)
			expectHeld("changed", `a: "1" -> "2"`, `b: "1" -> nothing`)
			take(t, s, false)
			expectHeld("the removal waits", `a: "2"`, `b: "1" -> nothing`)
			take(t, s, true)
			expectHeld("all is taken", `a: "2"`)

			s.SetDesired(set(t, map[string]string{"a": "bad"}), 3)
			refuse(t, s)
			expectHeld("refused", `a: "2" -> "bad" refused: no`)
			s.SetDesired(set(t, map[string]string{"a": "3"}), 4)
			take(t, s, true)
			expectHeld("mended", `a: "3"`)
		})
	}
}

// TestHoldingsOfNames: a client that requests names has no holdings of other names, nor
// of a name that does not exist.
func TestHoldingsOfNames(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			s := protocol.New(endpoints, v)
			s.SetDesired(set(t, map[string]string{"a": "1", "other": "1"}), 1)
			s.Request(said("", "a", "nowhere"))
			if got, want := holdings(t, s), "a: nothing -> \"1\""; got != want {
				t.Errorf("requested:\n%s\nwant\n%s", got, want)
			}
			take(t, s, true, "a", "nowhere")
			if got, want := holdings(t, s), "a: \"1\""; got != want {
				t.Errorf("answered:\n%s\nwant\n%s", got, want)
			}
			s.SetDesired(set(t, map[string]string{"other": "1"}), 2)
			if got, want := holdings(t, s), "a: \"1\" -> nothing"; got != want {
				t.Errorf("gone:\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestHoldingsOfAReconnectedClient: a resource that it states in another version than the
// desired one is in an unknown form.
func TestHoldingsOfAReconnectedClient(t *testing.T) {
	t.Parallel()
	s := protocol.New(clusters, protocol.Delta)
	desired := set(t, map[string]string{"a": "1", "b": "2"})
	s.SetDesired(desired, 1)
	s.Request(protocol.Request{Initial: protocol.VersionsOf([]protocol.Stated{{Name: "a", Version: desired.Value("a").Version}, {Name: "b", Version: "old"}, {Name: "c", Version: "old"}})})
	want := "a: \"1\"\nb: nothing -> \"2\" unknown\nc: nothing -> nothing unknown"
	if got := holdings(t, s); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
