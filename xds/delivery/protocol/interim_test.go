package protocol_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// TestAnotherResourceForNow: after an interim form the resource itself stays due. A
// client that acknowledges the interim form is not in sync, and one that rejects it is
// not sent it again.
func TestAnotherResourceForNow(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		for _, refused := range []bool{false, true} {
			s, asked := protocol.New(endpoints, v), protocoltest.NameSet("a")
			s.SetDesired(set(t, map[string]string{"a": "1"}), 1)
			s.Request(protocol.Request{Names: asked, Subscribe: asked})
			take(t, s, false, "a")

			s.SetDesired(set(t, map[string]string{"a": "2"}), 2)
			between := res(t, "a", "1 and 2")
			r, ok := s.Next(protocol.Allow{Interim: func(string) *resource.Resource { return between }})
			if !ok || r.Resources[0] != between {
				t.Fatalf("%s: sent %v", v, names(r, ok))
			}
			s.Request(protocol.Request{Nonce: r.Nonce, Names: asked, Rejected: refused, Message: "no"})
			if st := s.Status(); st.AckedRevision != 1 || st.State == protocol.Synced || s.Rejects("a") != refused {
				t.Errorf("%s, refused %t: %+v", v, refused, st)
			}
			if due, isNew := s.Due("a"); !due || isNew {
				t.Errorf("%s, refused %t: due %t, new %t", v, refused, due, isNew)
			}
			expect(t, "the resource itself", names(take(t, s, false, "a")), "+a")
			if st := s.Status(); st.AckedRevision != 2 || st.State != protocol.Synced {
				t.Errorf("%s, refused %t: %+v", v, refused, st)
			}
		}
	}
}
