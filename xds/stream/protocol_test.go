package stream_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// said is a request in both variants.
func said(nonce string, names ...string) stream.Request {
	return stream.Request{Nonce: nonce, Names: nameset.Of(names...), Subscribe: nameset.Of(names...)}
}

// TestWildcardInStateOfTheWorld walks through the example of the protocol's
// text: no names, then "*" and A, then A, then no names again.
func TestWildcardInStateOfTheWorld(t *testing.T) {
	t.Parallel()
	s := stream.New(clusters, stream.StateOfTheWorld)
	s.Offer(set(t, map[string]string{"A": "1", "B": "1"}), 1)
	s.Request(said(""))
	expect(t, "no names ever are all", names(take(t, s, true)), "+A", "+B")
	s.Request(said("1-1", "*", "A"))
	expect(t, "A is asked for beside all", names(take(t, s, true, "*", "A")), "+A", "+B")
	s.Request(said("1-2", "A"))
	s.Offer(set(t, map[string]string{"A": "1", "B": "2"}), 2)
	expect(t, "B is not wanted any more", names(s.Next(stream.All())))
	s.Offer(set(t, map[string]string{"A": "2", "B": "2"}), 3)
	expect(t, "A is", names(take(t, s, true, "A")), "+A")
	s.Request(said("3-3"))
	s.Offer(set(t, map[string]string{"A": "3", "B": "3"}), 4)
	expect(t, "no names after names are none", names(s.Next(stream.All())))
	if st := s.Status(); st.State != stream.Synced {
		t.Errorf("status %+v", st)
	}
}

// TestAnEmptyListIsAllOnlyAtFirst: a client that began with names gives all up
// by naming none.
func TestAnEmptyListIsAllOnlyAtFirst(t *testing.T) {
	t.Parallel()
	s := stream.New(clusters, stream.StateOfTheWorld)
	s.Offer(set(t, map[string]string{"A": "1", "B": "1"}), 1)
	s.Request(said("", "A"))
	expect(t, "by name", names(take(t, s, true, "A")), "+A")
	s.Request(said("1-1"))
	s.Offer(set(t, map[string]string{"A": "2", "B": "2"}), 2)
	expect(t, "given up", names(s.Next(stream.All())))
}

// TestWildcardInDelta walks through the example of the protocol's text.
func TestWildcardInDelta(t *testing.T) {
	t.Parallel()
	s := stream.New(clusters, stream.Delta)
	s.Offer(set(t, map[string]string{"A": "1", "B": "1"}), 1)
	s.Request(stream.Request{})
	expect(t, "nothing ever is all", names(take(t, s, true)), "+A", "+B")
	s.Request(stream.Request{Subscribe: nameset.Of("A")})
	expect(t, "A is asked for beside all", names(take(t, s, true)), "+A")
	s.Offer(set(t, map[string]string{"A": "1", "B": "2"}), 2)
	expect(t, "all is kept", names(take(t, s, true)), "+B")
	s.Request(stream.Request{Unsubscribe: nameset.Of("*")})
	s.Offer(set(t, map[string]string{"A": "3", "B": "3"}), 3)
	expect(t, "A only", names(take(t, s, true)), "+A")
	s.Request(stream.Request{Unsubscribe: nameset.Of("A")})
	s.Offer(set(t, map[string]string{"A": "4", "B": "4"}), 4)
	expect(t, "none", names(s.Next(stream.All())))
}

// TestGivingUpANameUnderAWildcard: the client does not know whether it has the
// resource for the name or for the wildcard, so it is told the state of it.
func TestGivingUpANameUnderAWildcard(t *testing.T) {
	t.Parallel()
	s := stream.New(clusters, stream.Delta)
	s.Offer(set(t, map[string]string{"A": "1"}), 1)
	s.Request(stream.Request{Subscribe: nameset.Of("*", "A", "unknown")})
	expect(t, "all", names(take(t, s, true)), "+A", "-unknown")
	s.Request(stream.Request{Unsubscribe: nameset.Of("A")})
	expect(t, "still part of all", names(take(t, s, true)), "+A")
	s.Request(stream.Request{Unsubscribe: nameset.Of("unknown")})
	expect(t, "still unknown", names(take(t, s, true)), "-unknown")
	s.Request(stream.Request{Unsubscribe: nameset.Of("never asked for")})
	expect(t, "nothing to tell", names(s.Next(stream.All())))
}

// TestARejectionOutlivesOtherChanges: a client that refused a resource does not
// have it because it took another one.
func TestARejectionOutlivesOtherChanges(t *testing.T) {
	t.Parallel()
	s := stream.New(clusters, stream.Delta)
	s.Request(stream.Request{})
	s.Offer(set(t, map[string]string{"a": "1"}), 1)
	take(t, s, true)
	s.Offer(set(t, map[string]string{"a": "bad"}), 2)
	r, _ := s.Next(stream.All())
	s.Request(stream.Request{Nonce: r.Nonce, Rejected: true, Message: "no"})
	s.Offer(set(t, map[string]string{"a": "bad", "b": "1"}), 3)
	expect(t, "the other alone", names(take(t, s, true)), "+b")
	if st := s.Status(); st.State != stream.Rejected || st.Rejection == nil || st.Revision != 1 || st.Acked.Revision != 3 {
		t.Errorf("after another change: %+v", st)
	}
	s.Offer(set(t, map[string]string{"a": "good", "b": "1"}), 4)
	take(t, s, true)
	if st := s.Status(); st.State != stream.Synced || st.Rejection != nil || st.Revision != 4 {
		t.Errorf("after the repair: %+v", st)
	}
}

// TestARepairSendsAllThatWasRefused: a client that refuses one resource of a
// response may have taken none of it.
func TestARepairSendsAllThatWasRefused(t *testing.T) {
	t.Parallel()
	for _, typ := range []stream.Type{clusters, endpoints} {
		for what, repair := range map[string]struct {
			do   func(*stream.Session, string)
			want []string
		}{
			"changed": {func(s *stream.Session, _ string) {
				s.Offer(set(t, map[string]string{"a": "good", "b": "1", "c": "1"}), 2)
			}, []string{"+a", "+b", "+c"}},
			"given up": {func(s *stream.Session, nonce string) {
				s.Request(stream.Request{Nonce: nonce, Unsubscribe: nameset.Of("a")})
			}, []string{"+b", "+c"}},
		} {
			s := stream.New(typ, stream.Delta)
			s.Offer(set(t, map[string]string{"a": "bad", "b": "1", "c": "1"}), 1)
			s.Request(said("", "a", "b", "c"))
			r, _ := s.Next(stream.All())
			s.Request(stream.Request{Nonce: r.Nonce, Rejected: true, Message: "no"})
			repair.do(s, r.Nonce)
			expect(t, typ.URL+", "+what, names(take(t, s, true)), repair.want...)
			if st := s.Status(); st.State != stream.Synced {
				t.Errorf("%s, %s: %+v", typ.URL, what, st)
			}
		}
	}
}

// TestWhatIsGivenUpIsRejectedNoMore, nor what is deleted.
func TestWhatIsGivenUpIsRejectedNoMore(t *testing.T) {
	t.Parallel()
	for _, v := range []stream.Variant{stream.Delta, stream.StateOfTheWorld} {
		for what, mend := range map[string]func(*stream.Session, string){
			"deleted": func(s *stream.Session, _ string) { s.Offer(set(t, nil), 3) },
			"given up": func(s *stream.Session, nonce string) {
				s.Request(stream.Request{Nonce: nonce, Unsubscribe: nameset.Of("a")})
			},
		} {
			s := stream.New(endpoints, v)
			s.Offer(set(t, map[string]string{"a": "bad"}), 2)
			s.Request(said("", "a"))
			r, _ := s.Next(stream.All())
			s.Request(stream.Request{Nonce: r.Nonce, Rejected: true, Message: "no", Names: nameset.Of("a")})
			mend(s, r.Nonce)
			for range 2 {
				take(t, s, true, "a")
			}
			if st := s.Status(); st.State != stream.Synced {
				t.Errorf("%s, %s: %+v", v, what, st)
			}
		}
	}
}

// TestAnOldNonceAfterARejection is stale also once a later response was taken.
func TestAnOldNonceAfterARejection(t *testing.T) {
	t.Parallel()
	s := stream.New(endpoints, stream.StateOfTheWorld)
	s.Offer(set(t, map[string]string{"a": "bad", "b": "1"}), 1)
	s.Request(said("", "a", "b"))
	first, _ := s.Next(stream.All())
	s.Request(stream.Request{Nonce: first.Nonce, Rejected: true, Names: nameset.Of("a", "b")})
	s.Offer(set(t, map[string]string{"a": "bad", "b": "2"}), 2)
	second, _ := take(t, s, true, "a", "b")
	if a := s.Request(said(first.Nonce, "a")); !a.Stale {
		t.Errorf("the nonce of the rejected response: %+v", a)
	}
	if a := s.Request(said(second.Nonce, "a")); a.Stale {
		t.Errorf("the last nonce: %+v", a)
	}
}

// TestForgottenRemovals are not told, and others are.
func TestForgottenRemovals(t *testing.T) {
	t.Parallel()
	for _, v := range []stream.Variant{stream.Delta, stream.StateOfTheWorld} {
		s := stream.New(endpoints, v)
		s.Offer(set(t, map[string]string{"a": "1", "b": "1"}), 1)
		s.Request(said("", "a", "b"))
		take(t, s, true, "a", "b")
		s.Offer(set(t, nil), 2)
		s.Forget([]string{"a", "unknown"})
		expect(t, v.String(), names(take(t, s, true, "a", "b")), "+b")
		s.Offer(set(t, map[string]string{"a": "2"}), 3)
		expect(t, v.String()+", back again", names(take(t, s, true, "a", "b")), "+a")
	}
}

// TestWithdrawn names what a response takes away.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	for _, v := range []stream.Variant{stream.Delta, stream.StateOfTheWorld} {
		s := stream.New(clusters, v)
		s.Offer(set(t, map[string]string{"a": "1", "b": "1"}), 1)
		s.Request(said(""))
		take(t, s, true)
		s.Offer(set(t, map[string]string{"b": "2"}), 2)
		if r, _ := take(t, s, false); len(r.Withdrawn) > 0 {
			t.Errorf("%s: %v is withdrawn with the additions", v, r.Withdrawn)
		}
		r, _ := take(t, s, true)
		if len(r.Withdrawn) != 1 || r.Withdrawn["a"] == nil {
			t.Errorf("%s: withdrawn %v", v, r.Withdrawn)
		}
	}
}

// TestOwedNamesGoWithTheirResources: a client that never asks for the children
// of what it is sent does not make the session grow.
func TestOwedNamesGoWithTheirResources(t *testing.T) {
	t.Parallel()
	s := stream.New(endpoints, stream.Delta)
	s.Offer(set(t, map[string]string{"a": "1"}), 1)
	s.Resend([]string{"a"})
	s.Offer(set(t, nil), 2)
	now := set(t, map[string]string{"a": "1"})
	s.Offer(now, 3)
	s.Request(stream.Request{Subscribe: nameset.Of("a"), Initial: stream.VersionsIn(map[string]string{"a": now.Value("a").Version})})
	expect(t, "of another life", names(s.Next(stream.All())))
}

// TestAVersionOfNamesIsNoProof: a client that gave a name up and asked for it
// again when the stream broke states the version of the time when it had both.
func TestAVersionOfNamesIsNoProof(t *testing.T) {
	t.Parallel()
	now := set(t, map[string]string{"A": "1", "B": "1"})
	s := stream.New(clusters, stream.StateOfTheWorld)
	s.Offer(now, 1)
	s.Request(said("", "A", "B"))
	r, _ := take(t, s, true, "A", "B")
	s = stream.New(clusters, stream.StateOfTheWorld)
	s.Offer(now, 1)
	s.Request(stream.Request{Names: nameset.Of("A", "B"), Version: r.Version})
	expect(t, "by name", names(s.Next(stream.All())), "+A", "+B")
}
