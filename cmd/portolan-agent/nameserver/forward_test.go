package nameserver_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/nameserver"
)

// expect asks over UDP, and compares the code and the data.
func (m *machine) expect(name string, kind uint16, want string, change ...func(*dns.Msg)) *dns.Msg {
	m.t.Helper()
	answer, err := m.ask("udp", name, kind, change...)
	if got := summary(answer, err); got != want {
		m.t.Errorf("%s: it is %q, want %q", name, got, want)
	}
	return answer
}

// TestForwardChangesNothing: what a resolver gets and answers is as the client and the resolver say,
// with EDNS and the DO bit. Each question has an id and a port of its own.
func TestForwardChangesNothing(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	m := startMachine(t, func(o *nameserver.Options) { o.Cache = -1 }, u)
	answer := m.expect("wWw.Example.com.", dns.TypeA, "NOERROR 192.0.2.1", func(q *dns.Msg) {
		q.CheckingDisabled, q.AuthenticatedData = true, true
		q.SetEdns0(1777, true)
		opt := q.IsEdns0()
		opt.Option = append(opt.Option, &dns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")})
	})
	seen, before, _ := u.last()
	opt := seen.IsEdns0()
	if opt == nil || opt.UDPSize() != 1777 || !opt.Do() || len(opt.Option) != 1 || !seen.CheckingDisabled || !seen.AuthenticatedData || seen.Question[0].Name != "wWw.Example.com." {
		t.Errorf("the resolver got %v", seen)
	}
	if back := answer.IsEdns0(); back == nil || back.UDPSize() != 1400 || answer.Question[0].Name != "wWw.Example.com." {
		t.Errorf("the client got %v", answer)
	}
	if m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1").IsEdns0() != nil {
		t.Error("a client without EDNS got EDNS")
	}
	for range 20 {
		m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1", func(q *dns.Msg) { q.Id = 7 })
	}
	if _, ports, ids := u.last(); ports-before < 18 || ids < 18 {
		t.Errorf("21 questions came from %d ports with %d ids in all", ports-before, ids)
	}
}

// TestForwardTakesOnlyItsAnswer: other ids and questions, and what is no answer, are not taken.
func TestForwardTakesOnlyItsAnswer(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	forged := func(change func(*dns.Msg)) func(*dns.Msg) []byte {
		return func(q *dns.Msg) []byte {
			m := new(dns.Msg).SetReply(q)
			rr, _ := dns.NewRR(q.Question[0].Name + " 100 IN A 198.51.100.66")
			m.Answer = []dns.RR{rr}
			change(m)
			text, err := m.Pack()
			if err != nil {
				panic(err)
			}
			return text
		}
	}
	all := []func(*dns.Msg) []byte{
		forged(func(m *dns.Msg) { m.Id++ }),
		forged(func(m *dns.Msg) { m.Question[0].Name = "other.example.com." }),
		forged(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA }),
		forged(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }),
		forged(func(m *dns.Msg) { m.Question = nil }),
		forged(func(m *dns.Msg) { m.Response = false }),
		forged(func(m *dns.Msg) { m.Opcode = dns.OpcodeStatus }),
		func(*dns.Msg) []byte { return []byte("nonsense") },
		func(*dns.Msg) []byte { return nil },
		func(q *dns.Msg) []byte { return forged(func(*dns.Msg) {})(q)[:20] },
	}
	u.precede(func(q *dns.Msg) (out [][]byte) {
		for _, f := range all {
			out = append(out, f(q.Copy()))
		}
		return out
	})
	m := startMachine(t, nil, u)
	m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1")
}

// many makes an answer with so many addresses.
func many(m *dns.Msg, n int) *dns.Msg {
	m.Answer = nil
	for i := range n {
		m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}).AsSlice()})
	}
	m.Rcode = dns.RcodeSuccess
	return m
}

// TestTruncation: an answer that is too long for a client of UDP says so, and is whole over TCP, also
// if the resolver truncates it.
func TestTruncation(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	u.set(func(network string, q, answer *dns.Msg) *dns.Msg {
		many(answer, 400).Compress = true
		if network == "udp" {
			answer.Truncate(1232)
		}
		return answer
	})
	m := startMachine(t, nil, u)
	ips := make([]string, 400)
	for i := range ips {
		ips[i] = fmt.Sprintf("10.7.%d.%d", i>>8, i&255)
	}
	m.table.Update(resources(t, map[string][]string{"large.test": ips}), nil)
	for _, c := range []struct {
		network, name string
		size          uint16
		least, most   int
		truncated     bool
	}{
		{"udp", "large.example.com.", 0, 1, 30, true},
		{"udp", "large.example.com.", 1232, 60, 75, true},
		{"udp", "large.example.com.", 65535, 60, 75, true},
		{"tcp", "large.example.com.", 0, 400, 400, false},
		{"udp", "large.test.", 0, 20, 30, true},
		{"udp", "large.test.", 100, 20, 30, true}, // 512 at least (RFC 6891, 6.2.3)
		{"udp", "large.test.", 1232, 60, 75, true},
		{"udp", "large.test.", 8000, 400, 400, false},
		{"tcp", "large.test.", 0, 400, 400, false},
	} {
		q := new(dns.Msg).SetQuestion(c.name, dns.TypeA)
		if c.size > 0 {
			q.SetEdns0(c.size, false)
		}
		client := dns.Client{Net: c.network, Timeout: 10 * time.Second, UDPSize: 65535}
		answer, _, err := client.Exchange(q, m.address)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if n := len(answer.Answer); n < c.least || n > c.most || answer.Truncated != c.truncated {
			t.Errorf("%+v: there are %d addresses, truncated: %v", c, n, answer.Truncated)
		}
		answer.Compress = true
		if size := max(int(c.size), 512); c.network == "udp" && answer.Len() > size {
			t.Errorf("%+v: it has %d bytes", c, answer.Len())
		}
	}
}

// TestResolversTakeTurns: a resolver that hangs or fails is no answer while another has one, and is
// asked last for a while. Without any, clients get SERVFAIL.
func TestResolversTakeTurns(t *testing.T) {
	t.Parallel()
	first, second := startUpstream(t), startUpstream(t)
	m := startMachine(t, func(o *nameserver.Options) { o.Cache = -1 }, first, second)
	m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1")
	if n := second.count("udp www.example.com. A"); n != 0 {
		t.Errorf("the second was asked %d times though the first answers", n)
	}
	first.set(func(_ string, q, _ *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeServerFailure) })
	m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1")
	first.set(hang)
	m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1")
	was := first.count("udp www.example.com. A")
	for range 5 {
		m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1")
	}
	if n := first.count("udp www.example.com. A"); n != was {
		t.Errorf("the one that hangs was asked %d times more", n-was)
	}
	if of := m.Status().Resolvers; of[0].Problem == "" || of[1].Problem != "" {
		t.Errorf("the status has %+v", of)
	}
	second.set(hang)
	m.expect("www.example.com.", dns.TypeA, "SERVFAIL", func(q *dns.Msg) { q.SetEdns0(1232, false) })
	if s := m.Status(); s.Failed != 1 || s.Forwarded == 0 {
		t.Errorf("the status is %+v", s)
	}
	first.set(func(_ string, q, _ *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeServerFailure) })
	m.expect("www.example.com.", dns.TypeA, "SERVFAIL")
	first.set(nil)
	m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1")
	if of := m.Status().Resolvers; of[0].Problem != "" {
		t.Errorf("one that answers again is %+v", of[0])
	}
}

// TestResolversBeforeQuestions: before any question the status tells a resolver that answers from one
// that does not.
func TestResolversBeforeQuestions(t *testing.T) {
	t.Parallel()
	first, second := startUpstream(t), startUpstream(t)
	first.set(hang)
	m := startMachine(t, nil, first, second)
	eventually(t, "what is known of resolvers", func() error {
		if of := m.Status().Resolvers; !of[0].Asked || !strings.Contains(of[0].Problem, "did not answer") || !of[1].Asked || of[1].Problem != "" {
			return fmt.Errorf("the status has %+v", of)
		}
		return nil
	})
}

// TestCache: an answer is asked for once while it is good, what is not there too, and a failure each
// time. Times go down.
func TestCache(t *testing.T) {
	t.Parallel()
	do := func(q *dns.Msg) { q.SetEdns0(1232, true) }
	for name, c := range map[string]struct {
		name   string
		kind   uint16
		change func(*dns.Msg)
		behave func(string, *dns.Msg, *dns.Msg) *dns.Msg
		want   int
	}{
		"an address":     {name: "www.example.com.", kind: dns.TypeA, want: 1},
		"with DO":        {name: "www.example.com.", kind: dns.TypeA, change: do, want: 1},
		"no such name":   {name: "none.example.com.", kind: dns.TypeA, want: 1},
		"no such record": {name: "example.com.", kind: dns.TypeA, want: 1},
		"a TTL of 0":     {name: "brief.example.com.", kind: dns.TypeA, want: 3},
		"no SOA":         {name: "none.example.com.", kind: dns.TypeA, behave: func(_ string, _, m *dns.Msg) *dns.Msg { m.Ns = nil; return m }, want: 3},
		"a failure":      {name: "www.example.com.", kind: dns.TypeA, behave: func(_ string, q, _ *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, dns.RcodeServerFailure) }, want: 3},
		"truncated":      {name: "www.example.com.", kind: dns.TypeA, behave: func(_ string, _, m *dns.Msg) *dns.Msg { m.Truncated = true; return m }, want: 3},
		"the client's own network": {name: "www.example.com.", kind: dns.TypeA, change: func(q *dns.Msg) {
			do(q)
			q.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: []byte{192, 0, 2, 0}}}
		}, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := startUpstream(t)
			u.set(c.behave)
			m := startMachine(t, nil, u)
			var first string
			for i, asked := range []string{c.name, strings.ToUpper(c.name), c.name} {
				answer, err := m.ask("udp", asked, c.kind, func(q *dns.Msg) {
					if c.change != nil {
						c.change(q)
					}
				})
				got := summary(answer, err)
				if i == 0 {
					first = got
				}
				if err != nil || got != first || answer.Question[0].Name != asked {
					t.Errorf("question %d: %q, %v, at first %q", i, got, err, first)
				}
			}
			if n := u.count("udp " + c.name + " " + dns.Type(c.kind).String()); n != c.want {
				t.Errorf("the resolver was asked %d times, want %d", n, c.want)
			}
		})
	}
}

// TestCacheKeepsApart: clients that want other things do not get each other's answers, and the times
// of kept answers go down until they are asked for again.
func TestCacheKeepsApart(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	u.set(func(_ string, _, m *dns.Msg) *dns.Msg {
		for _, rr := range m.Answer {
			rr.Header().Ttl = 4
		}
		return m
	})
	m := startMachine(t, nil, u)
	kinds := []func(*dns.Msg){
		func(*dns.Msg) {}, func(q *dns.Msg) { q.SetEdns0(1232, false) }, func(q *dns.Msg) { q.SetEdns0(1232, true) },
		func(q *dns.Msg) { q.CheckingDisabled = true }, func(q *dns.Msg) { q.AuthenticatedData = true }, func(q *dns.Msg) { q.RecursionDesired = false },
	}
	for range 2 {
		for _, kind := range kinds {
			m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1", kind)
		}
	}
	if n := u.count("udp www.example.com. A"); n != len(kinds) {
		t.Errorf("the resolver was asked %d times", n)
	}
	eventually(t, "the time of a kept answer goes down", func() error {
		if ttl := m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1").Answer[0].Header().Ttl; ttl > 3 {
			return fmt.Errorf("it is %d", ttl)
		}
		return nil
	})
	eventually(t, "the resolver is asked again", func() error {
		m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1")
		if u.count("udp www.example.com. A") == len(kinds) {
			return errors.New("it is not")
		}
		return nil
	})
}

// TestCacheIsOfOneNetwork: what was answered in another network is asked for again.
func TestCacheIsOfOneNetwork(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	m := startMachine(t, nil, u)
	for range 2 {
		m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1")
	}
	if n := u.count("udp www.example.com. A"); n != 1 {
		t.Errorf("the resolver was asked %d times", n)
	}
	m.write(m.files.ResolvConf, "nameserver 192.0.2.99\n")
	eventually(t, "the resolver is asked again", func() error {
		m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1")
		if u.count("udp www.example.com. A") == 1 {
			return errors.New("it is not")
		}
		return nil
	})
}

// TestEqualQuestionsShareAnAnswer: the resolver gets one of many equal questions, and each that differs
// in what its answer depends on.
func TestEqualQuestionsShareAnAnswer(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	release := make(chan struct{})
	u.set(func(_ string, _, m *dns.Msg) *dns.Msg { <-release; return m })
	m := startMachine(t, func(o *nameserver.Options) { o.Cache = -1 }, u)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1") })
		all.Go(func() {
			answer := m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1", func(q *dns.Msg) { q.SetEdns0(1232, true) })
			if opt := answer.IsEdns0(); opt == nil || !opt.Do() {
				t.Error("a client that wants signatures has the answer of another")
			}
		})
	}
	eventually(t, "all questions have come", func() error {
		if s := m.Status(); s.Forwarded < 100 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	close(release)
	all.Wait()
	if n := u.count("udp www.example.com. A"); n < 2 || n > 4 { // the timeout is a second, with two attempts
		t.Errorf("the resolver was asked %d times", n)
	}
}

// TestLoop: a resolver from which questions come back is not asked, and the status says so.
func TestLoop(t *testing.T) {
	t.Parallel()
	loop, u := startUpstream(t), startUpstream(t)
	m := startMachine(t, func(o *nameserver.Options) { o.Cache = -1 }, loop, u)
	loop.set(func(_ string, q, _ *dns.Msg) *dns.Msg {
		back, _, err := (&dns.Client{Timeout: 5 * time.Second}).Exchange(q.Copy(), m.address)
		if err != nil {
			return nil
		}
		back.Id = q.Id
		return back
	})
	eventually(t, "the loop is found", func() error {
		m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1")
		if of := m.Status().Resolvers; !strings.Contains(of[0].Problem, "come back") || of[1].Problem != "" {
			return fmt.Errorf("the status has %+v", of)
		}
		return nil
	})
	was := loop.count("udp www.example.com. A")
	m.expect("www.example.com.", dns.TypeA, "NOERROR 192.0.2.1")
	if n := loop.count("udp www.example.com. A"); n != was {
		t.Errorf("it was asked %d times more", n-was)
	}
	loop.set(nil)
	eventually(t, "it is asked again when questions do not come back any more", func() error {
		if of := m.Status().Resolvers; of[0].Problem != "" {
			return fmt.Errorf("the status has %+v", of)
		}
		return nil
	})
}
