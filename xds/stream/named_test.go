package stream_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// listeners are of a client that names each and waits for each.
var listeners = stream.Type{URL: "listeners", Full: true, Empty: empty}

// A client that names the resources of a full type, as one of gRPC does, is
// answered each name: a missing one is no answer to it in state of the world,
// where it may be of an older request.
func TestUnknownNamesOfAFullType(t *testing.T) {
	t.Parallel()
	for _, v := range []stream.Variant{stream.StateOfTheWorld, stream.Delta} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			s := stream.New(listeners, v)
			s.Offer(set(t, map[string]string{"a": "1", "other": "1"}), 1)
			asked := []string{"a", "nowhere"}
			s.Request(stream.Request{Names: nameset.Of(asked...), Subscribe: nameset.Of(asked...)})
			expect(t, "first", names(take(t, s, true, asked...)), "+a", "+nowhere")

			s.Offer(set(t, map[string]string{"other": "2"}), 2)
			expect(t, "not before removals may go", names(s.Next(stream.Additions())))
			want := []string{"+a"}
			if v == stream.StateOfTheWorld {
				want = append(want, "+nowhere")
			}
			expect(t, "one that goes", names(take(t, s, true, asked...)), want...)
			s.Offer(set(t, map[string]string{"other": "3"}), 3)
			expect(t, "then nothing", names(s.Next(stream.All())))
		})
	}
}
