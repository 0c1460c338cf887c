package protocol_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// TestAnAlwaysAnsweredType: a client that reconnects with everything that it should have
// gets a response, and from then on only changes. If the type is not AlwaysAnswered, the
// client gets none.
func TestAnAlwaysAnsweredType(t *testing.T) {
	t.Parallel()
	for _, always := range []bool{true, false} {
		desired := set(t, map[string]string{"a": "1", "b": "1"})
		var stated []protocol.Stated
		var all []*resource.Resource
		for name, r := range desired.All() {
			stated, all = append(stated, protocol.Stated{Name: name, Version: r.Version}), append(all, r)
		}
		for variant, want := range map[protocol.Variant][]string{protocol.Delta: {}, protocol.StateOfTheWorld: {"+a", "+b"}} {
			s := protocol.New(protocol.Type{URL: "kinds", Full: true, AlwaysAnswered: always}, variant)
			s.SetDesired(desired, 1)
			s.Request(protocol.Request{Version: resource.SetVersion(all), Initial: stated})
			r, ok := s.Next(protocoltest.Everything())
			if ok != always {
				t.Errorf("%s: always answered %t: answered %t", variant, always, ok)
			}
			if !ok {
				continue
			}
			expect(t, variant.String(), names(r, ok), want...)
			s.Request(protocol.Request{Nonce: r.Nonce, Version: r.Version})
			expect(t, "then nothing", names(s.Next(protocoltest.Everything())))
			s.SetDesired(desired.Delete("b"), 2)
			if _, ok := s.Next(protocoltest.Everything()); !ok {
				t.Errorf("%s: a removal is not sent", variant)
			}
		}
	}
}
