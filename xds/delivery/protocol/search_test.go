package protocol_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// picky is a client that refuses each response with a guilty resource.
type picky struct {
	t       *testing.T
	s       *protocol.Subscription
	variant protocol.Variant
	full    bool
	asks    []string
	guilty  func(r *resource.Resource) bool
	words   func(guilty []string) string
	parts   bool // it takes the others of a response that it refuses
	// known has, for a client that acknowledges what it refused before, what that is.
	known map[string]string
	holds map[string]string
}

// drive sends everything that is due, and returns the number of responses.
func (p *picky) drive(limit int) int {
	p.t.Helper()
	for n := 0; ; n++ {
		r, ok := p.s.Next(protocoltest.Everything())
		if !ok {
			return n
		}
		if n == limit {
			p.t.Fatalf("%s: after %d responses there is another: %v", p.variant, n, names(r, ok))
		}
		p.answer(r)
	}
}

func (p *picky) answer(r *protocol.Response) {
	var guilty []string
	taken := map[string]string{}
	if p.variant == protocol.Delta || !p.full {
		maps.Copy(taken, p.holds)
	}
	for _, x := range r.Resources {
		switch {
		case p.guilty(x) && p.known != nil && p.known[x.Name] == x.Version:
		case p.guilty(x):
			guilty = append(guilty, x.Name)
			if p.known != nil {
				p.known[x.Name] = x.Version
			}
		default:
			delete(p.known, x.Name)
			taken[x.Name] = x.Version
		}
	}
	for _, name := range r.Removed {
		delete(taken, name)
	}
	q := protocol.Request{Nonce: r.Nonce, Names: protocoltest.NameSet(p.asks...), Rejected: len(guilty) > 0}
	if q.Rejected {
		q.Message = p.words(guilty)
	}
	if !q.Rejected || p.parts {
		p.holds = taken
	}
	p.s.Request(q)
}

// expect fails unless the client has everything except bad resources, and rejects exactly
// these, each with a message of its own.
func (p *picky) expect(offered resource.Set) {
	p.t.Helper()
	want := map[string]string{}
	var guilty []string
	for name, r := range offered.All() {
		if p.guilty(r) {
			guilty = append(guilty, name)
		} else {
			want[name] = r.Version
		}
	}
	for _, name := range guilty {
		if v, ok := p.holds[name]; ok { // the last good
			want[name] = v
		}
	}
	if !maps.Equal(p.holds, want) {
		p.t.Errorf("%s: the client has %d resources, want %d", p.variant, len(p.holds), len(want))
	}
	if got := refused(p.s); !slices.Equal(got, guilty) {
		p.t.Errorf("%s: refused %v, want %v", p.variant, got, guilty)
	}
	for name, r := range p.s.Rejected() {
		if want := p.words([]string{name}); r.Message != want {
			p.t.Errorf("%s: %s is refused as %q, want %q", p.variant, name, r.Message, want)
		}
	}
	state := protocol.Rejected
	if len(guilty) == 0 {
		state = protocol.Synced
	}
	if st := p.s.Status(); st.State != state || st.AckedIgnoringRejected != st.Desired {
		p.t.Errorf("%s: status %+v, want %s", p.variant, st, state)
	}
}

// innocents returns n resources, of which some are bad.
func innocents(t *testing.T, n int, content string, bad ...int) resource.Set {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("r%03d", i)] = content
	}
	for _, i := range bad {
		all[fmt.Sprintf("r%03d", i)] = "bad " + content
	}
	return set(t, all)
}

// TestTheGuiltyAreFound among innocents, which the client gets all the same, at first and
// after a change. That takes 3 log n responses for each of the guilty, whatever the
// client's message says and whatever part of a refused response it takes. The next change
// of innocents takes one response.
func TestTheGuiltyAreFound(t *testing.T) {
	t.Parallel()
	silent := func([]string) string { return "no" }
	honest := func(guilty []string) string { return "cannot take " + strings.Join(guilty, ", ") }
	misled := func([]string) string { return "cannot take r007" }
	const n = 128
	var all []int
	for i := range n {
		all = append(all, i)
	}
	for _, c := range []struct {
		name  string
		bad   []int
		words func([]string) string
		most  int // responses until all is settled
	}{
		{"none", nil, silent, 1},
		{"the first", []int{0}, silent, 24},
		{"the last", []int{n - 1}, silent, 24},
		{"one", []int{77}, silent, 24},
		{"one that is named", []int{77}, honest, 3},
		{"one, and another is named", []int{77}, misled, 26},
		{"three", []int{3, 64, 99}, silent, 3 * 24},
		{"three that are named", []int{3, 64, 99}, honest, 5},
		{"all", all, silent, n + 8},
		{"all, and they are named", all, honest, n + 8},
	} {
		for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
			for _, typ := range []protocol.Type{clusters, endpoints} {
				for _, parts := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, %s %s, takes parts %v", c.name, v, typ.URL, parts), func(t *testing.T) {
						t.Parallel()
						p := &picky{
							t: t, s: protocol.New(typ, v), variant: v, full: typ.Full, words: c.words, parts: parts, holds: map[string]string{},
							guilty: func(r *resource.Resource) bool { return strings.Contains(string(r.Body.Value), "bad") },
						}
						if !typ.Full {
							p.asks = slices.Collect(innocents(t, n, "").Keys())
						}
						p.s.Request(said("", p.asks...))
						for revision, content := range []string{"1", "2"} {
							offered := innocents(t, n, content, c.bad...)
							p.s.SetDesired(offered, 3*int64(revision)+1)
							p.drive(c.most)
							p.expect(offered)
							offered = offered.Set("r050", res(t, "r050", "other "+content))
							p.s.SetDesired(offered, 3*int64(revision)+2)
							p.drive(1)
							p.expect(offered)
						}
						offered := innocents(t, n, "2")
						p.s.SetDesired(offered, 100)
						p.drive(8) // responses of 1, 2, 4 and so on
						p.expect(offered)
						p.s.SetDesired(innocents(t, n, "3"), 101)
						p.drive(1)
						p.expect(innocents(t, n, "3"))
					})
				}
			}
		}
	}
}

// TestSuspectsAreNotRejected: during a search no resource counts as rejected, and changes
// of other resources are sent.
func TestSuspectsAreNotRejected(t *testing.T) {
	t.Parallel()
	s := protocol.New(clusters, protocol.Delta)
	s.Request(protocol.Request{})
	s.SetDesired(set(t, map[string]string{"a": "1", "b": "1", "c": "1", "d": "bad"}), 1)
	refuse(t, s)
	if st := s.Status(); st.State != protocol.Stale || st.LastNACK != nil || !s.Searching() {
		t.Errorf("status %+v", st)
	}
	r, ok := s.Next(protocoltest.Everything())
	expect(t, "the first half", names(r, ok), "+a", "+b")
	s.SetDesired(set(t, map[string]string{"a": "1", "b": "1", "c": "1", "d": "bad", "e": "1"}), 2)
	s.Request(protocol.Request{Nonce: r.Nonce})
	expect(t, "another", names(take(t, s, true)), "+e")
	refuse(t, s) // c and d
	expect(t, "a quarter", names(take(t, s, true)), "+c")
	refuse(t, s) // d
	expect(t, "nothing more", names(s.Next(protocoltest.Everything())))
	st := s.Status()
	if st.State != protocol.Rejected || st.LastNACK == nil || st.LastNACK.HadAllAt != 0 || s.Searching() {
		t.Errorf("status %+v", st)
	}
	if got := refused(s); !slices.Equal(got, []string{"d"}) {
		t.Errorf("refused %v", got)
	}
	s.SetDesired(set(t, map[string]string{"a": "1", "b": "1", "c": "1", "d": "good", "e": "1"}), 3)
	expect(t, "what is mended", names(take(t, s, true)), "+d")
	if st := s.Status(); st.State != protocol.Synced || st.LastNACK != nil || len(refused(s)) > 0 || !s.Idle() {
		t.Errorf("status %+v, refused %v", st, refused(s))
	}
}

// TestTheLastGoodFormStandsIn for a rejected one if the client needs the resource again,
// since its parent was sent again.
func TestTheLastGoodFormStandsIn(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		s := protocol.New(endpoints, v)
		s.Request(said("", "a", "b"))
		s.SetDesired(set(t, map[string]string{"a": "1", "b": "1"}), 1)
		good, _ := take(t, s, true, "a", "b")
		s.SetDesired(set(t, map[string]string{"a": "bad", "b": "1"}), 2)
		r, _ := s.Next(protocoltest.Everything())
		s.Request(protocol.Request{Nonce: r.Nonce, Rejected: true, Names: protocoltest.NameSet("a", "b")})
		s.Resend("a")
		r, _ = s.Next(protocoltest.Everything())
		if len(r.Resources) != 1 || r.Resources[0].Version != good.Resources[0].Version || string(r.Resources[0].Body.Value) != string(good.Resources[0].Body.Value) {
			t.Errorf("%s: sent %+v", v, r)
		}
		s.Request(protocol.Request{Nonce: r.Nonce, Names: protocoltest.NameSet("a", "b")})
		expect(t, "nothing more", names(s.Next(protocoltest.Everything())))
		if st := s.Status(); st.State != protocol.Rejected || !slices.Equal(refused(s), []string{"a"}) {
			t.Errorf("%s: %+v", v, st)
		}
		s.Resend("a") // and if it refuses that too
		r, _ = s.Next(protocoltest.Everything())
		s.Request(protocol.Request{Nonce: r.Nonce, Rejected: true, Names: protocoltest.NameSet("a", "b")})
		expect(t, "nothing at all", names(s.Next(protocoltest.Everything())))
	}
}

// TestWhatIsInTheWayOfOthersIsTriedAgain: the client refuses virtual hosts that exchange
// domains, one by one, until the first has given its domain up.
func TestWhatIsInTheWayOfOthersIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := protocol.New(protocol.Type{URL: "hosts", Full: true, Scoped: true}, protocol.Delta)
	s.Request(protocol.Request{})
	s.OpenScope("r", true)
	domains := map[string]string{} // that the client has, by host
	drive := func() {
		for range 20 {
			r, ok := s.Next(protocol.Allow{Remove: func(string) bool { return true }, Together: true})
			if !ok {
				return
			}
			next, taken := maps.Clone(domains), map[string]bool{}
			for _, x := range r.Resources {
				next[x.Name] = strings.TrimSpace(string(x.Body.Value[2:]))
			}
			for _, name := range r.Removed {
				delete(next, name)
			}
			q := protocol.Request{Nonce: r.Nonce}
			for _, domain := range next {
				q.Rejected = q.Rejected || taken[domain] || domain == "bad"
				taken[domain] = true
			}
			if !q.Rejected {
				domains = next
			}
			s.Request(q)
		}
		t.Fatal("it never ends")
	}
	s.SetDesired(set(t, map[string]string{"r/a": "x", "r/b": "y", "r/c": "z", "r/d": "w"}), 1)
	drive()
	s.SetDesired(set(t, map[string]string{"r/a": "y", "r/b": "z", "r/c": "v", "r/d": "bad"}), 2)
	drive()
	if want := map[string]string{"r/a": "y", "r/b": "z", "r/c": "v", "r/d": "w"}; !maps.Equal(domains, want) {
		t.Errorf("the client has %v, want %v", domains, want)
	}
	if got := refused(s); !slices.Equal(got, []string{"r/d"}) || s.Searching() {
		t.Errorf("refused %v", got)
	}
}

// TestRejectedBefore: a client that acknowledges what it rejected before, as an Envoy does with the
// configuration of filters, gets that only after another form. So what it lacks is known as
// rejected. Changes of which it rejects none come in one response.
func TestRejectedBefore(t *testing.T) {
	t.Parallel()
	const n = 8
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		p := &picky{
			t: t, s: protocol.New(filters, v), variant: v, holds: map[string]string{}, known: map[string]string{},
			guilty: func(r *resource.Resource) bool { return strings.Contains(string(r.Body.Value), "bad") },
			words:  func([]string) string { return "no" },
		}
		for i := range n {
			p.asks = append(p.asks, fmt.Sprintf("r%03d", i))
		}
		p.s.Request(said("", p.asks...))
		all, once, twice := 1+2*n, 1, 2 // twice: what was rejected before goes apart
		for i, step := range []struct {
			offered resource.Set
			most    int // responses
		}{
			{innocents(t, n, "1"), once}, {innocents(t, n, "2", 3), all}, {innocents(t, n, "1"), twice}, {innocents(t, n, "2", 3), all}, {innocents(t, n, "3"), twice},
			{innocents(t, n, "4", 0, 1, 2, 3, 4, 5, 6, 7), all}, {innocents(t, n, "5", 2, 5), all},
		} {
			p.s.SetDesired(step.offered, int64(i+1))
			p.drive(step.most)
			p.expect(step.offered)
		}
	}
}
