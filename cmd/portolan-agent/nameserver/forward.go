package nameserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
)

const (
	// mostForwarded is how many questions wait for resolvers at a time.
	mostForwarded = 1000
	// longestWait is how long a question waits for all resolvers together.
	longestWait = 10 * time.Second
	// penalty is how long a resolver that did not answer is asked after the others.
	penalty = 30 * time.Second
	// leastBuffer is the least room for an answer over UDP.
	leastBuffer = 4096
)

var (
	errNoResolver = errors.New("there is no resolver: name some in the agent's file, as dns.resolvers")
	errTooMany    = fmt.Errorf("%d questions wait for resolvers already", mostForwarded)
)

// settings say whom to ask. They are never modified.
type settings struct {
	resolvers []*resolver
	search    string
	timeout   time.Duration
	attempts  int
}

// resolver is one resolver of the machine. Its fields are atomic, but for the address.
type resolver struct {
	address netip.AddrPort
	// slowUntil is until when it is asked after the others, in Unix nanoseconds.
	slowUntil atomic.Int64
	// suspect says that it is new, or did not answer since it was last probed. loops says that the last probe
	// came back.
	suspect, loops atomic.Bool
	probe          atomic.Pointer[probe]
	// asked says that it was asked, and silent that it did not answer then.
	asked, silent atomic.Bool
}

// probe is a question for a name that nobody else asks for.
type probe struct {
	name string
	back atomic.Bool // it came to this server
}

// forwarder asks the resolvers of a machine. Any number of goroutines may use it.
type forwarder struct {
	settings atomic.Pointer[settings]
	cache    *cache
	slots    chan struct{}
	flights  singleflight.Group

	forwarded, cached, failed, refused atomic.Uint64
}

func newForwarder(cacheSize int) *forwarder {
	f := &forwarder{cache: newCache(cacheSize), slots: make(chan struct{}, mostForwarded)}
	f.settings.Store(&settings{})
	return f
}

// ask returns the answer of a resolver, or a failure. The caller may change it.
func (f *forwarder) ask(ctx context.Context, q *dns.Msg, tcp bool) *dns.Msg {
	answer, err := f.answer(ctx, q, tcp)
	if err != nil {
		if !errors.Is(err, errTooMany) {
			f.failed.Add(1)
		}
		return failure(q, dns.RcodeServerFailure)
	}
	answer.Id, answer.Question = q.Id, q.Question
	return answer
}

func (f *forwarder) answer(ctx context.Context, q *dns.Msg, tcp bool) (*dns.Msg, error) {
	key, common := questionOf(q, tcp)
	if common {
		if answer := f.cache.get(key, time.Now()); answer != nil {
			f.cached.Add(1)
			return answer, nil
		}
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	default:
		f.refused.Add(1)
		return nil, errTooMany
	}
	f.forwarded.Add(1)
	if !common {
		return f.exchange(ctx, q, tcp)
	}
	found, err, _ := f.flights.Do(fmt.Sprintf("%+v", key), func() (any, error) {
		answer, err := f.exchange(ctx, q, tcp)
		if err == nil {
			f.cache.put(key, answer, time.Now())
		}
		return answer, err
	})
	if err != nil {
		return nil, err
	}
	return found.(*dns.Msg).Copy(), nil // others have the same
}

// exchange asks the resolvers in turn until one answers. A resolver that fails to find out is no
// answer while there is another.
func (f *forwarder) exchange(ctx context.Context, q *dns.Msg, tcp bool) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	s := f.settings.Load()
	err := errNoResolver
	var last *dns.Msg
	for range s.attempts {
		for _, r := range s.order(time.Now()) {
			var answer *dns.Msg
			if answer, err = r.ask(ctx, q, tcp, s.timeout); err != nil {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				r.slowUntil.Store(time.Now().Add(penalty).UnixNano())
				r.suspect.Store(true)
				continue
			}
			r.slowUntil.Store(0)
			switch answer.Rcode {
			case dns.RcodeServerFailure, dns.RcodeRefused, dns.RcodeNotImplemented:
				last = answer
			default:
				return answer, nil
			}
		}
		if last != nil {
			return last, nil
		}
	}
	return nil, err
}

// order returns the resolvers to ask: those that are slow after the others, and none to whom
// questions would come back.
func (s *settings) order(now time.Time) []*resolver {
	var first, then []*resolver
	for _, r := range s.resolvers {
		switch {
		case r.loops.Load():
		case now.UnixNano() < r.slowUntil.Load():
			then = append(then, r)
		default:
			first = append(first, r)
		}
	}
	return append(first, then...)
}

// ask asks over UDP, and over TCP if that truncates an answer for a client of TCP.
func (r *resolver) ask(ctx context.Context, q *dns.Msg, tcp bool, timeout time.Duration) (*dns.Msg, error) {
	answer, err := r.over(ctx, "udp", q, timeout)
	if err == nil && answer.Truncated && tcp {
		answer, err = r.over(ctx, "tcp", q, timeout)
	}
	if ctx.Err() == nil { // else nobody waits for it
		r.silent.Store(err != nil)
		r.asked.Store(true)
	}
	return answer, err
}

// over asks over one protocol, with an id and a port that nobody can guess.
func (r *resolver) over(ctx context.Context, network string, q *dns.Msg, timeout time.Duration) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, r.address.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	wire := &dns.Conn{Conn: conn, UDPSize: uint16(max(leastBuffer, sizeOf(q)))}
	asked := q.Copy()
	asked.Id = dns.Id()
	if err := wire.WriteMsg(asked); err != nil {
		return nil, err
	}
	for {
		text, err := wire.ReadMsgHeader(nil)
		if err != nil && !errors.Is(err, dns.ErrShortRead) {
			return nil, err
		}
		answer := &dns.Msg{}
		if err == nil {
			err = answer.Unpack(text)
		}
		if err == nil && answers(answer, asked) {
			return answer, nil
		}
		if network == "tcp" {
			return nil, errors.Join(err, fmt.Errorf("%s answers another question", r.address))
		} // somebody else may have sent it: the answer may still come
	}
}

// answers says whether a message is the answer to a question.
func answers(m, q *dns.Msg) bool {
	if !m.Response || m.Id != q.Id || m.Opcode != q.Opcode || len(m.Question) != 1 {
		return false
	}
	a, b := m.Question[0], q.Question[0]
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}

// failure returns an answer that has nothing but a code.
func failure(q *dns.Msg, code int) *dns.Msg {
	out := new(dns.Msg).SetRcode(q, code)
	out.RecursionAvailable = true
	return addEDNS(out, q)
}

// addEDNS gives an answer of our own the EDNS that its question has.
func addEDNS(m, q *dns.Msg) *dns.Msg {
	if opt := q.IsEdns0(); opt != nil {
		m.SetEdns0(ednsSize, opt.Do())
	}
	return m
}

// ednsSize is the largest question over UDP that the server takes (dnsflagday.net/2020).
const ednsSize = 1232

// sizeOf returns the most bytes of an answer over UDP that a client takes.
func sizeOf(q *dns.Msg) int {
	if opt := q.IsEdns0(); opt != nil {
		return max(int(opt.UDPSize()), dns.MinMsgSize)
	}
	return dns.MinMsgSize
}

// use has the forwarder ask other resolvers. Those that it had keep what is known of them.
func (f *forwarder) use(resolvers []netip.AddrPort, search string, timeout time.Duration, attempts int) {
	was := f.settings.Load()
	next := &settings{search: search, timeout: timeout, attempts: attempts}
	for _, address := range resolvers {
		r := &resolver{address: address}
		r.suspect.Store(true)
		for _, old := range was.resolvers {
			if old.address == address {
				r = old
			}
		}
		next.resolvers = append(next.resolvers, r)
	}
	f.settings.Store(next)
	f.cache.clear() // another network may have other answers
}

// probeDomain is above the names of probes. Names below test exist nowhere (RFC 6761).
const probeDomain = ".probe.portolan-agent.test."

// probe finds out whether questions to a resolver come back here, for those that are new, loop or
// did not answer. One that answers its probe is not slow.
func (f *forwarder) probe(ctx context.Context) {
	s := f.settings.Load()
	var all sync.WaitGroup
	for _, r := range s.resolvers {
		if !r.suspect.Swap(false) && !r.loops.Load() {
			continue
		}
		all.Go(func() {
			p := &probe{name: fmt.Sprintf("%016x", rand.Uint64()) + probeDomain}
			r.probe.Store(p)
			_, err := r.ask(ctx, new(dns.Msg).SetQuestion(p.name, dns.TypeTXT), false, s.timeout)
			if r.loops.Store(p.back.Load()); err == nil {
				r.slowUntil.Store(0) // it was a slow name, not a slow resolver
			}
		})
	}
	all.Wait()
}

// caught says whether a name is a probe's, and marks the resolver that has led it back here.
func (f *forwarder) caught(name string) bool {
	if !strings.HasSuffix(name, probeDomain) {
		return false
	}
	for _, r := range f.settings.Load().resolvers {
		if p := r.probe.Load(); p != nil && p.name == name {
			p.back.Store(true)
		}
	}
	return true
}
