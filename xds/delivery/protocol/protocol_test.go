package protocol_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
)

// said makes a request that is valid in both variants.
func said(nonce string, names ...string) protocol.Request {
	return protocol.Request{Nonce: nonce, Names: protocoltest.NameSet(names...), Subscribe: protocoltest.NameSet(names...)}
}

// TestWildcardInStateOfTheWorld goes through the example of the xDS documentation: no
// names, then "*" and A, then A, then no names again.
func TestWildcardInStateOfTheWorld(t *testing.T) {
	t.Parallel()
	s := protocol.New(clusters, protocol.StateOfTheWorld)
	s.SetDesired(set(t, map[string]string{"A": "1", "B": "1"}), 1)
	s.Request(said(""))
	expect(t, "no names ever are all", names(take(t, s, true)), "+A", "+B")
	s.Request(said("1-1", "*", "A"))
	expect(t, "A is asked for beside all", names(take(t, s, true, "*", "A")), "+A", "+B")
	s.Request(said("1-2", "A"))
	s.SetDesired(set(t, map[string]string{"A": "1", "B": "2"}), 2)
	expect(t, "B is not wanted any more", names(s.Next(protocoltest.Everything())))
	s.SetDesired(set(t, map[string]string{"A": "2", "B": "2"}), 3)
	expect(t, "A is", names(take(t, s, true, "A")), "+A")
	s.Request(said("3-3"))
	s.SetDesired(set(t, map[string]string{"A": "3", "B": "3"}), 4)
	expect(t, "no names after names are none", names(s.Next(protocoltest.Everything())))
	if st := s.Status(); st.State != protocol.Synced {
		t.Errorf("status %+v", st)
	}
}

// TestAnEmptyListIsAllOnlyAtFirst: after a request with names, an empty list unsubscribes
// from everything.
func TestAnEmptyListIsAllOnlyAtFirst(t *testing.T) {
	t.Parallel()
	s := protocol.New(clusters, protocol.StateOfTheWorld)
	s.SetDesired(set(t, map[string]string{"A": "1", "B": "1"}), 1)
	s.Request(said("", "A"))
	expect(t, "by name", names(take(t, s, true, "A")), "+A")
	s.Request(said("1-1"))
	s.SetDesired(set(t, map[string]string{"A": "2", "B": "2"}), 2)
	expect(t, "given up", names(s.Next(protocoltest.Everything())))
}

// TestWildcardInDelta goes through the example of the xDS documentation.
func TestWildcardInDelta(t *testing.T) {
	t.Parallel()
	s := protocol.New(clusters, protocol.Delta)
	s.SetDesired(set(t, map[string]string{"A": "1", "B": "1"}), 1)
	s.Request(protocol.Request{})
	expect(t, "nothing ever is all", names(take(t, s, true)), "+A", "+B")
	s.Request(protocol.Request{Subscribe: protocoltest.NameSet("A")})
	expect(t, "A is asked for beside all", names(take(t, s, true)), "+A")
	s.SetDesired(set(t, map[string]string{"A": "1", "B": "2"}), 2)
	expect(t, "all is kept", names(take(t, s, true)), "+B")
	s.Request(protocol.Request{Unsubscribe: protocoltest.NameSet("*")})
	s.SetDesired(set(t, map[string]string{"A": "3", "B": "3"}), 3)
	expect(t, "A only", names(take(t, s, true)), "+A")
	s.Request(protocol.Request{Unsubscribe: protocoltest.NameSet("A")})
	s.SetDesired(set(t, map[string]string{"A": "4", "B": "4"}), 4)
	expect(t, "none", names(s.Next(protocoltest.Everything())))
}

// TestGivingUpANameUnderAWildcard: the client does not know whether it has the resource
// for the name or for the wildcard, so the server sends its state again.
func TestGivingUpANameUnderAWildcard(t *testing.T) {
	t.Parallel()
	s := protocol.New(clusters, protocol.Delta)
	s.SetDesired(set(t, map[string]string{"A": "1"}), 1)
	s.Request(protocol.Request{Subscribe: protocoltest.NameSet("*", "A", "unknown")})
	expect(t, "all", names(take(t, s, true)), "+A", "-unknown")
	s.Request(protocol.Request{Unsubscribe: protocoltest.NameSet("A")})
	expect(t, "still part of all", names(take(t, s, true)), "+A")
	s.Request(protocol.Request{Unsubscribe: protocoltest.NameSet("unknown")})
	expect(t, "still unknown", names(take(t, s, true)), "-unknown")
	s.Request(protocol.Request{Unsubscribe: protocoltest.NameSet("never asked for")})
	expect(t, "nothing to tell", names(s.Next(protocoltest.Everything())))
}

// TestARejectionOutlivesOtherChanges: a rejection still stands after the client has
// acknowledged another resource.
func TestARejectionOutlivesOtherChanges(t *testing.T) {
	t.Parallel()
	s := protocol.New(clusters, protocol.Delta)
	s.Request(protocol.Request{})
	s.SetDesired(set(t, map[string]string{"a": "1"}), 1)
	take(t, s, true)
	s.SetDesired(set(t, map[string]string{"a": "bad"}), 2)
	r, _ := s.Next(protocoltest.Everything())
	s.Request(protocol.Request{Nonce: r.Nonce, Rejected: true, Message: "no"})
	s.SetDesired(set(t, map[string]string{"a": "bad", "b": "1"}), 3)
	expect(t, "the other alone", names(take(t, s, true)), "+b")
	if st := s.Status(); st.State != protocol.Rejected || st.LastNACK == nil || st.AckedRevision != 1 || st.LastACK.Revision != 3 {
		t.Errorf("after another change: %+v", st)
	}
	s.SetDesired(set(t, map[string]string{"a": "good", "b": "1"}), 4)
	take(t, s, true)
	if st := s.Status(); st.State != protocol.Synced || st.LastNACK != nil || st.AckedRevision != 4 {
		t.Errorf("after the repair: %+v", st)
	}
}

// TestWhatIsGivenUpIsRejectedNoMore: a rejection ends when the client unsubscribes from
// the name, or the resource is deleted.
func TestWhatIsGivenUpIsRejectedNoMore(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		for what, mend := range map[string]func(*protocol.Subscription, string){
			"deleted": func(s *protocol.Subscription, _ string) { s.SetDesired(set(t, nil), 3) },
			"given up": func(s *protocol.Subscription, nonce string) {
				s.Request(protocol.Request{Nonce: nonce, Unsubscribe: protocoltest.NameSet("a")})
			},
		} {
			s := protocol.New(endpoints, v)
			s.SetDesired(set(t, map[string]string{"a": "bad"}), 2)
			s.Request(said("", "a"))
			r, _ := s.Next(protocoltest.Everything())
			s.Request(protocol.Request{Nonce: r.Nonce, Rejected: true, Message: "no", Names: protocoltest.NameSet("a")})
			mend(s, r.Nonce)
			for range 2 {
				take(t, s, true, "a")
			}
			if st := s.Status(); st.State != protocol.Synced {
				t.Errorf("%s, %s: %+v", v, what, st)
			}
		}
	}
}

// TestAnOldNonceAfterARejection: the nonce of a rejected response is stale, also after a
// later response was acknowledged.
func TestAnOldNonceAfterARejection(t *testing.T) {
	t.Parallel()
	s := protocol.New(endpoints, protocol.StateOfTheWorld)
	s.SetDesired(set(t, map[string]string{"a": "bad", "b": "1"}), 1)
	s.Request(said("", "a", "b"))
	first, _ := s.Next(protocoltest.Everything())
	s.Request(protocol.Request{Nonce: first.Nonce, Rejected: true, Names: protocoltest.NameSet("a", "b")})
	s.SetDesired(set(t, map[string]string{"a": "bad", "b": "2"}), 2)
	second, _ := take(t, s, true, "a", "b")
	if a := s.Request(said(first.Nonce, "a")); !a.Stale {
		t.Errorf("the nonce of the rejected response: %+v", a)
	}
	if a := s.Request(said(second.Nonce, "a")); a.Stale {
		t.Errorf("the last nonce: %+v", a)
	}
}

// TestForgottenRemovals are not sent, and others are.
func TestForgottenRemovals(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		s := protocol.New(endpoints, v)
		s.SetDesired(set(t, map[string]string{"a": "1", "b": "1"}), 1)
		s.Request(said("", "a", "b"))
		take(t, s, true, "a", "b")
		s.SetDesired(set(t, nil), 2)
		s.Forget([]string{"a", "unknown"})
		expect(t, v.String(), names(take(t, s, true, "a", "b")), "+b")
		s.SetDesired(set(t, map[string]string{"a": "2"}), 3)
		expect(t, v.String()+", back again", names(take(t, s, true, "a", "b")), "+a")
	}
}

// TestWithdrawn: a response names the resources that it removes.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		s := protocol.New(clusters, v)
		s.SetDesired(set(t, map[string]string{"a": "1", "b": "1"}), 1)
		s.Request(said(""))
		take(t, s, true)
		s.SetDesired(set(t, map[string]string{"b": "2"}), 2)
		if r, _ := take(t, s, false); len(r.Withdrawn) > 0 {
			t.Errorf("%s: %v is withdrawn with the additions", v, r.Withdrawn)
		}
		r, _ := take(t, s, true)
		if len(r.Withdrawn) != 1 || r.Withdrawn["a"] == nil {
			t.Errorf("%s: withdrawn %v", v, r.Withdrawn)
		}
	}
}

// TestOwedNamesGoWithTheirResources: a name to resend before the first request is
// forgotten when its resource goes. So a client that never requests the type does not
// make the subscription grow.
func TestOwedNamesGoWithTheirResources(t *testing.T) {
	t.Parallel()
	s := protocol.New(endpoints, protocol.Delta)
	s.SetDesired(set(t, map[string]string{"a": "1"}), 1)
	s.Resend("a")
	s.SetDesired(set(t, nil), 2)
	now := set(t, map[string]string{"a": "1"})
	s.SetDesired(now, 3)
	s.Request(protocol.Request{Subscribe: protocoltest.NameSet("a"), Initial: protocoltest.Versions(map[string]string{"a": now.Value("a").Version})})
	expect(t, "of another life", names(s.Next(protocoltest.Everything())))
}

// TestAVersionOfNamesIsNoProof: a client may drop a name and request it again just before
// its stream breaks. It then still states the version of when it had the resource.
func TestAVersionOfNamesIsNoProof(t *testing.T) {
	t.Parallel()
	now := set(t, map[string]string{"A": "1", "B": "1"})
	s := protocol.New(clusters, protocol.StateOfTheWorld)
	s.SetDesired(now, 1)
	s.Request(said("", "A", "B"))
	r, _ := take(t, s, true, "A", "B")
	s = protocol.New(clusters, protocol.StateOfTheWorld)
	s.SetDesired(now, 1)
	s.Request(protocol.Request{Names: protocoltest.NameSet("A", "B"), Version: r.Version})
	expect(t, "by name", names(s.Next(protocoltest.Everything())), "+A", "+B")
}

// TestAnEmptyNameIsNone: a list of the empty name alone does not request all resources,
// as an empty list would. Beside other names the empty name does not count.
func TestAnEmptyNameIsNone(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		for _, typ := range []protocol.Type{clusters, endpoints} {
			s := protocol.New(typ, v)
			s.SetDesired(set(t, map[string]string{"a": "1", "b": "1"}), 1)
			s.Request(said("", ""))
			expect(t, "first", names(s.Next(protocoltest.Everything())))
			s.Request(said("", "", "a"))
			expect(t, "beside another", names(take(t, s, true, "", "a")), "+a")
			s.Request(protocol.Request{Nonce: "1-1", Names: protocoltest.NameSet("a"), Unsubscribe: protocoltest.NameSet("")})
			expect(t, "given up", names(s.Next(protocoltest.Everything())))
			if st := s.Status(); st.State != protocol.Synced {
				t.Errorf("%s, %s: %+v", v, typ.URL, st)
			}
		}
	}
}

// TestWhatAClientHadGoesThoughAllIsRefused: a client that states a version may have
// anything. It drops that once it takes a whole state, even an empty one.
func TestWhatAClientHadGoesThoughAllIsRefused(t *testing.T) {
	t.Parallel()
	s := protocol.New(clusters, protocol.StateOfTheWorld)
	s.SetDesired(set(t, map[string]string{"B": "bad"}), 1)
	s.Request(protocol.Request{Version: "from before"})
	expect(t, "all there is", names(s.Next(protocoltest.Everything())), "+B")
	s.Request(protocol.Request{Version: "from before", Nonce: "1-1", Rejected: true, Message: "B"})
	r, ok := s.Next(protocoltest.Everything())
	if !ok || len(r.Resources) > 0 {
		t.Fatalf("what is left, without B: %v, %v", names(r, ok), ok)
	}
	s.Request(protocol.Request{Version: "from before", Nonce: r.Nonce, Rejected: true})
	if r, ok := s.Next(protocoltest.Everything()); ok {
		t.Errorf("a client that refuses the empty state is sent it again: %v", names(r, ok))
	}
}
