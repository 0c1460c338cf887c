package stream_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// What goes out in place of a resource leaves that due: the client is not in step
// when it has taken it, nor is it sent that again when it has refused it.
func TestAnotherResourceForNow(t *testing.T) {
	t.Parallel()
	for _, v := range []stream.Variant{stream.Delta, stream.StateOfTheWorld} {
		for _, refused := range []bool{false, true} {
			s, asked := stream.New(endpoints, v), nameset.Of("a")
			s.Offer(set(t, map[string]string{"a": "1"}), 1)
			s.Request(stream.Request{Names: asked, Subscribe: asked})
			take(t, s, false, "a")

			s.Offer(set(t, map[string]string{"a": "2"}), 2)
			between := res(t, "a", "1 and 2")
			r, ok := s.Next(stream.Allow{Instead: func(string) *resource.Resource { return between }})
			if !ok || r.Resources[0] != between {
				t.Fatalf("%s: sent %v", v, names(r, ok))
			}
			s.Request(stream.Request{Nonce: r.Nonce, Names: asked, Rejected: refused, Message: "no"})
			if st := s.Status(); st.Revision != 1 || st.State == stream.Synced || s.Refuses("a") != refused {
				t.Errorf("%s, refused %t: %+v", v, refused, st)
			}
			if due, isNew := s.Lacking("a"); !due || isNew {
				t.Errorf("%s, refused %t: due %t, new %t", v, refused, due, isNew)
			}
			expect(t, "the resource itself", names(take(t, s, false, "a")), "+a")
			if st := s.Status(); st.Revision != 2 || st.State != stream.Synced {
				t.Errorf("%s, refused %t: %+v", v, refused, st)
			}
		}
	}
}
