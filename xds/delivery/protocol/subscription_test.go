package protocol_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

func res(t interface{ Fatal(...any) }, name, content string) *resource.Resource {
	r, err := resource.New(name, wrapperspb.String(content))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func set(t interface{ Fatal(...any) }, content map[string]string) resource.Set {
	var s resource.Set
	for name, c := range content {
		s = s.Set(name, res(t, name, c))
	}
	return s
}

func empty(name string) (*resource.Resource, error) {
	return resource.New(name, wrapperspb.String(""))
}

var (
	clusters  = protocol.Type{URL: "clusters", Full: true, Shared: protocol.NewShared()}
	endpoints = protocol.Type{URL: "endpoints", Empty: empty, Shared: protocol.NewShared()}
	filters   = protocol.Type{URL: "filters", ByName: true, Otherwise: empty, Shared: protocol.NewShared()}
	secrets   = protocol.Type{URL: "secrets"}
)

// names lists what a response carries: "+name" for each resource, "-name" for each
// removed one; nil if there is no response.
func names(r *protocol.Response, ok bool) []string {
	if !ok {
		return nil
	}
	out := []string{}
	for _, x := range r.Resources {
		out = append(out, "+"+x.Name)
	}
	for _, x := range r.Removed {
		out = append(out, "-"+x)
	}
	return out
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// allow permits all additions, and removals if asked.
func allow(removals bool) protocol.Allow {
	if removals {
		return protocoltest.Everything()
	}
	return protocol.Additions()
}

// take makes the subscription send the next response, and acknowledges it.
func take(t *testing.T, s *protocol.Subscription, removals bool, names ...string) (*protocol.Response, bool) {
	t.Helper()
	r, ok := s.Next(allow(removals))
	if ok {
		if a := s.Request(protocol.Request{Nonce: r.Nonce, Version: r.Version, Names: protocoltest.NameSet(names...)}); a.ACK == nil {
			t.Errorf("the response was not acknowledged: %+v", a)
		}
	}
	return r, ok
}

func TestDeltaFirstRequestGetsAll(t *testing.T) {
	t.Parallel()
	s := protocol.New(clusters, protocol.Delta)
	s.SetDesired(set(t, map[string]string{"a": "1", "b": "1"}), 7)
	expect(t, "before a request", names(s.Next(protocoltest.Everything())))
	if a := s.Request(protocol.Request{}); !a.First {
		t.Errorf("not the first: %+v", a)
	}
	r, ok := s.Next(protocol.Additions())
	expect(t, "first", names(r, ok), "+a", "+b")
	if r.Nonce != "7-1" || r.Revision != 7 {
		t.Errorf("nonce %q, revision %d", r.Nonce, r.Revision)
	}
}

func TestOneResponseInFlight(t *testing.T) {
	t.Parallel()
	s := protocol.New(clusters, protocol.Delta)
	s.Request(protocol.Request{})
	s.SetDesired(set(t, map[string]string{"a": "1"}), 1)
	r, _ := s.Next(protocoltest.Everything())
	s.SetDesired(set(t, map[string]string{"a": "2"}), 2)
	expect(t, "while one is under way", names(s.Next(protocoltest.Everything())))
	if st := s.Status(); st.State != protocol.Stale {
		t.Errorf("state %s", st.State)
	}
	s.Request(protocol.Request{Nonce: r.Nonce})
	expect(t, "afterwards", names(take(t, s, true)), "+a")
	if st := s.Status(); st.State != protocol.Synced || st.AckedRevision != 2 || st.LastACK.Revision != 2 {
		t.Errorf("status %+v", st)
	}
}

func TestEmptyWorldIsAnswered(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		s := protocol.New(clusters, v)
		s.Request(protocol.Request{})
		got := names(s.Next(protocol.Additions()))
		if got == nil || len(got) != 0 {
			t.Errorf("%s: %v", v, got)
		}
	}
}

func TestUnknownNameIsAnswered(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		typ     protocol.Type
		variant protocol.Variant
		want    []string
	}{
		{"delta, removed", secrets, protocol.Delta, []string{"-x"}},
		{"delta, empty", endpoints, protocol.Delta, []string{"+x"}},
		{"world, nothing", secrets, protocol.StateOfTheWorld, []string{}},
		{"world, empty", endpoints, protocol.StateOfTheWorld, []string{"+x"}},
	} {
		for _, later := range []bool{false, true} {
			s := protocol.New(tc.typ, tc.variant)
			s.SetDesired(set(t, map[string]string{"a": "1"}), 1)
			if later {
				s.Request(protocol.Request{Subscribe: protocoltest.NameSet("a"), Names: protocoltest.NameSet("a")})
				r, _ := s.Next(protocol.Additions())
				s.Request(protocol.Request{Nonce: r.Nonce, Names: protocoltest.NameSet("a", "x"), Subscribe: protocoltest.NameSet("x")})
			} else {
				s.Request(protocol.Request{Subscribe: protocoltest.NameSet("x"), Names: protocoltest.NameSet("x")})
			}
			got := names(s.Next(protocol.Additions()))
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s, later %v (-want +got):\n%s", tc.name, later, d)
			}
		}
	}
}

func TestReconnectSendsOnlyWhatIsLacking(t *testing.T) {
	t.Parallel()
	now := set(t, map[string]string{"same": "1", "changed": "2", "new": "1"})
	stated := map[string]string{"same": now.Value("same").Version, "changed": "old", "gone": "old"}
	s := protocol.New(clusters, protocol.Delta)
	s.SetDesired(now, 5)
	s.Request(protocol.Request{Subscribe: protocoltest.NameSet("*"), Initial: protocoltest.Versions(stated)})
	expect(t, "additions", names(take(t, s, false)), "+changed", "+new")
	expect(t, "removals", names(take(t, s, true)), "-gone")

	s = protocol.New(clusters, protocol.Delta)
	s.SetDesired(now, 5)
	all := map[string]string{}
	for name, r := range now.All() {
		all[name] = r.Version
	}
	s.Request(protocol.Request{Subscribe: protocoltest.NameSet("*"), Initial: protocoltest.Versions(all)})
	expect(t, "nothing lacking", names(s.Next(protocoltest.Everything())))
	if st := s.Status(); st.State != protocol.Synced || st.LastACK.Revision != 5 {
		t.Errorf("status %+v", st)
	}
}

func TestWorldReconnectWithTheSameVersion(t *testing.T) {
	t.Parallel()
	now := set(t, map[string]string{"a": "1", "b": "1"})
	first := protocol.New(clusters, protocol.StateOfTheWorld)
	first.SetDesired(now, 1)
	first.Request(protocol.Request{})
	r, _ := take(t, first, true)

	again := protocol.New(clusters, protocol.StateOfTheWorld)
	again.SetDesired(now, 9)
	again.Request(protocol.Request{Version: r.Version})
	expect(t, "same version", names(again.Next(protocoltest.Everything())))
	again.SetDesired(now.Delete("b"), 10)
	expect(t, "then a removal", names(take(t, again, true)), "+a")

	other := protocol.New(clusters, protocol.StateOfTheWorld)
	other.SetDesired(now, 9)
	other.Request(protocol.Request{Version: "older"})
	expect(t, "another version", names(take(t, other, true)), "+a", "+b")
}

func TestResentParentMakesChildrenDue(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		now := set(t, map[string]string{"a": "1", "b": "1"})
		s := protocol.New(endpoints, v)
		s.SetDesired(now, 1)
		q := protocol.Request{Subscribe: protocoltest.NameSet("a", "b"), Names: protocoltest.NameSet("a", "b")}
		s.Request(q)
		take(t, s, false, "a", "b")
		s.Resend("b", "unknown")
		expect(t, v.String(), names(take(t, s, false, "a", "b")), "+b")
	}
	// Before the first request, whatever version it states.
	now := set(t, map[string]string{"a": "1", "b": "1"})
	s := protocol.New(endpoints, protocol.Delta)
	s.SetDesired(now, 1)
	s.Resend("b")
	s.Request(protocol.Request{Subscribe: protocoltest.NameSet("a", "b"), Initial: protocoltest.Versions(map[string]string{
		"a": now.Value("a").Version, "b": now.Value("b").Version,
	})})
	expect(t, "stated, but owed", names(take(t, s, false)), "+b")
}

func TestSubscribingAgainIsAnswered(t *testing.T) {
	t.Parallel()
	s := protocol.New(endpoints, protocol.Delta)
	s.SetDesired(set(t, map[string]string{"a": "1"}), 1)
	s.Request(protocol.Request{Subscribe: protocoltest.NameSet("a")})
	take(t, s, false)
	s.Request(protocol.Request{Subscribe: protocoltest.NameSet("a")})
	expect(t, "again", names(take(t, s, false)), "+a")
	s.Request(protocol.Request{Unsubscribe: protocoltest.NameSet("a")})
	s.SetDesired(set(t, map[string]string{"a": "2"}), 2)
	expect(t, "unsubscribed", names(s.Next(protocoltest.Everything())))
}

func TestRejectionIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		s := protocol.New(clusters, v)
		s.Request(protocol.Request{})
		s.SetDesired(set(t, map[string]string{"a": "bad"}), 3)
		r, _ := s.Next(protocoltest.Everything())
		a := s.Request(protocol.Request{Nonce: r.Nonce, Rejected: true, Message: "no such filter"})
		if a.NACK == nil || a.NACK.Message != "no such filter" || a.NACK.Revision != 3 {
			t.Errorf("%s: answer %+v", v, a)
		}
		expect(t, "after a rejection", names(s.Next(protocoltest.Everything())))
		if st := s.Status(); st.State != protocol.Rejected || st.AckedRevision != 0 {
			t.Errorf("%s: status %+v", v, st)
		}
		s.SetDesired(set(t, map[string]string{"a": "good"}), 4)
		expect(t, "the next change", names(take(t, s, true)), "+a")
		if st := s.Status(); st.State != protocol.Synced || st.AckedRevision != 4 || st.LastNACK != nil {
			t.Errorf("%s: status %+v", v, st)
		}
	}
}

func TestStaleNonceIsIgnored(t *testing.T) {
	t.Parallel()
	s := protocol.New(endpoints, protocol.StateOfTheWorld)
	s.SetDesired(set(t, map[string]string{"a": "1", "b": "1"}), 1)
	s.Request(protocol.Request{Names: protocoltest.NameSet("a")})
	first, _ := take(t, s, true, "a")
	s.SetDesired(set(t, map[string]string{"a": "2", "b": "1"}), 2)
	second, _ := s.Next(protocoltest.Everything())
	a := s.Request(protocol.Request{Names: protocoltest.NameSet("a", "b"), Nonce: first.Nonce})
	if !a.Stale {
		t.Errorf("answer %+v", a)
	}
	expect(t, "still under way", names(s.Next(protocoltest.Everything())))
	s.Request(protocol.Request{Names: protocoltest.NameSet("a", "b"), Nonce: second.Nonce})
	expect(t, "said again with the last nonce", names(take(t, s, true, "a", "b")), "+b")
}

func TestRemovalsWait(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		s := protocol.New(clusters, v)
		s.Request(protocol.Request{})
		s.SetDesired(set(t, map[string]string{"a": "1", "b": "1"}), 1)
		take(t, s, true)
		s.SetDesired(set(t, map[string]string{"b": "1", "c": "1"}), 2)
		if v == protocol.Delta {
			expect(t, "additions first", names(take(t, s, false)), "+c")
			expect(t, "removals after", names(take(t, s, true)), "-a")
		} else {
			expect(t, "additions first", names(take(t, s, false)), "+a", "+b", "+c")
			expect(t, "removals after", names(take(t, s, true)), "+b", "+c")
		}
		expect(t, "then nothing", names(s.Next(protocoltest.Everything())))
	}
}

// client is a model of a client: it has what responses gave it.
type client struct {
	variant protocol.Variant
	full    bool
	holds   map[string]string
}

func (c *client) apply(r *protocol.Response) {
	if c.variant == protocol.StateOfTheWorld && c.full {
		c.holds = map[string]string{}
	}
	for _, x := range r.Resources {
		c.holds[x.Name] = x.Version
	}
	for _, name := range r.Removed {
		delete(c.holds, name)
	}
}

// TestClientConverges drives a subscription through random changes, requests, rejections
// and reconnects, and compares what a model client has with what it should have.
func TestClientConverges(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	all := []string{"a", "b", "c", "d"}
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		for _, typ := range []protocol.Type{clusters, endpoints} {
			t.Run(fmt.Sprintf("%s %s", v, typ.URL), func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(t *rapid.T) { converge(t, v, typ, all) })
			})
		}
	}
}

func converge(t *rapid.T, v protocol.Variant, typ protocol.Type, all []string) {
	c := &client{variant: v, full: typ.Full, holds: map[string]string{}}
	wanted, bad := map[string]bool{}, map[string]bool{}
	if !typ.Full {
		wanted["a"] = true
	}
	s := protocol.New(typ, v)
	var offered resource.Set
	version, last := "", ""
	connect := func() {
		q := protocol.Request{Version: version, Initial: protocoltest.Versions(c.holds)}
		q.Names = protocoltest.NameSet(slices.Sorted(maps.Keys(wanted))...)
		q.Subscribe = q.Names
		s = protocol.New(typ, v)
		s.SetDesired(offered, 1)
		s.Request(q)
		clear(bad)
		last = ""
	}
	answer := func(removals, reject bool) bool {
		r, ok := s.Next(allow(removals))
		if !ok {
			return false
		}
		last = r.Nonce
		// A client that refuses one resource takes none of the response.
		q := protocol.Request{Nonce: r.Nonce, Names: protocoltest.NameSet(slices.Sorted(maps.Keys(wanted))...), Rejected: reject && len(r.Changed) > 0}
		if q.Rejected {
			bad[rapid.SampledFrom(r.Changed).Draw(t, "refused").Name] = true
		} else {
			c.apply(r)
			version = r.Version
		}
		q.Version = version
		s.Request(q)
		return true
	}
	connect()
	for revision := range rapid.IntRange(1, 30).Draw(t, "steps") {
		name := rapid.SampledFrom(all).Draw(t, "name")
		switch rapid.SampledFrom([]string{"set", "set", "delete", "subscribe", "unsubscribe", "send", "reconnect"}).Draw(t, "step") {
		case "set":
			offered = offered.Set(name, res(t, name, rapid.SampledFrom([]string{"1", "2"}).Draw(t, "content")))
			s.SetDesired(offered, int64(revision))
		case "delete":
			offered = offered.Delete(name)
			s.SetDesired(offered, int64(revision))
		case "subscribe", "unsubscribe":
			if typ.Full || s.InFlight() {
				continue
			}
			if wanted[name] {
				delete(wanted, name)
				delete(c.holds, name)
				s.Request(protocol.Request{Unsubscribe: protocoltest.NameSet(name), Names: protocoltest.NameSet(slices.Sorted(maps.Keys(wanted))...), Nonce: last})
			} else {
				wanted[name] = true
				s.Request(protocol.Request{Subscribe: protocoltest.NameSet(name), Names: protocoltest.NameSet(slices.Sorted(maps.Keys(wanted))...), Nonce: last})
			}
		case "send":
			answer(rapid.Bool().Draw(t, "removals"), rapid.IntRange(0, 2).Draw(t, "reject") == 0)
		case "reconnect":
			connect()
		}
	}
	for name := range bad { // what was refused is repaired
		offered = offered.Set(name, res(t, name, "3"))
	}
	s.SetDesired(offered, 100)
	for answer(false, false) || answer(true, false) {
	}
	want := map[string]string{}
	for _, name := range all {
		r, known := offered.Get(name)
		switch {
		case !typ.Full && !wanted[name]:
		case known:
			want[name] = r.Version
		case !typ.Full && c.holds[name] != "":
			e, _ := empty(name)
			want[name] = e.Version
		}
	}
	if d := cmp.Diff(want, c.holds); d != "" {
		t.Fatalf("the client (-want +got):\n%s", d)
	}
	if st := s.Status(); st.State != protocol.Synced {
		t.Fatalf("state %+v", st)
	}
}

// TestWhatIsInFlight: a resource of which the client has another version is not new to
// it, and the answer to an unknown name is not among the changed resources.
func TestWhatIsInFlight(t *testing.T) {
	t.Parallel()
	s := protocol.New(endpoints, protocol.Delta)
	s.SetDesired(set(t, map[string]string{"a": "2", "b": "1", "c": "1"}), 1)
	s.Request(protocol.Request{Subscribe: protocoltest.NameSet("a", "b", "unknown"), Initial: protocoltest.Versions(map[string]string{"a": "another"})})
	r, ok := s.Next(protocoltest.Everything())
	expect(t, "the response", names(r, ok), "+a", "+b", "+unknown")
	var got []string
	for r, isNew := range s.Flight().Changed {
		got = append(got, fmt.Sprint(r.Name, " ", isNew))
	}
	expect(t, "what it changes", got, "a false", "b true")
	s.Request(protocol.Request{Nonce: r.Nonce})
	for r := range s.Flight().Changed {
		t.Errorf("%s is in flight, which was acknowledged", r.Name)
	}
}

// TestWhatTurnsBackIsSentAgain: a parent is sent, so the client waits anew for a
// resource. It is sent the resource even if that changes meanwhile, or goes, and comes
// back in the form that the client has.
func TestWhatTurnsBackIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, meanwhile := range []map[string]string{{"a": "2"}, {"a": "1"}, {}} {
		s := protocol.New(endpoints, protocol.Delta)
		s.SetDesired(set(t, map[string]string{"a": "1"}), 1)
		s.Request(protocol.Request{Subscribe: protocoltest.NameSet("a")})
		r, ok := s.Next(protocoltest.Everything())
		expect(t, "at first", names(r, ok), "+a")
		s.SetDesired(set(t, meanwhile), 2)
		s.Resend("a") // its parent goes out
		s.SetDesired(set(t, map[string]string{"a": "1"}), 3)
		s.Request(protocol.Request{Nonce: r.Nonce})
		r, ok = s.Next(protocoltest.Everything())
		expect(t, "once it has answered", names(r, ok), "+a")
	}
}
