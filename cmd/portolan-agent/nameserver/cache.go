package nameserver

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/miekg/dns"
)

const (
	// longestLife bounds how long an answer is kept, and longestDenial an answer that something is
	// not there.
	longestLife, longestDenial = time.Hour, 5 * time.Minute
	// largestKept is the most bytes of an answer that is kept.
	largestKept = 4096
)

// question is what the answer of a resolver depends on.
type question struct {
	dns.Question              // with the name in lower case
	tcp, edns, rd, cd, ad, do bool
}

// questionOf returns the key of a question; false if its answer may depend on more: the options of
// EDNS, such as the client's network.
func questionOf(q *dns.Msg, tcp bool) (question, bool) {
	out := question{Question: q.Question[0], tcp: tcp, rd: q.RecursionDesired, cd: q.CheckingDisabled, ad: q.AuthenticatedData}
	out.Name = dns.CanonicalName(out.Name)
	extra := len(q.Extra)
	if opt := q.IsEdns0(); opt != nil {
		out.edns, out.do = true, opt.Do()
		if len(opt.Option) > 0 || opt.Version() != 0 {
			return out, false
		}
		extra--
	}
	return out, extra == 0 && len(q.Answer)+len(q.Ns) == 0
}

// cache keeps answers as long as they say. Any number of goroutines may use it.
type cache struct{ entries *lru.Cache[question, kept] }

// kept is an answer, never modified, and when it came.
type kept struct {
	answer         *dns.Msg
	since, expires time.Time
}

// newCache returns a cache of so many answers; nil, which keeps none, for 0.
func newCache(size int) *cache {
	entries, err := lru.New[question, kept](size)
	if err != nil { // the size is not positive
		return nil
	}
	return &cache{entries}
}

// get returns a copy of an answer with the times that are left to it.
func (c *cache) get(key question, now time.Time) *dns.Msg {
	if c == nil {
		return nil
	}
	key.tcp = false // a kept answer is whole
	one, ok := c.entries.Get(key)
	if !ok || !now.Before(one.expires) {
		return nil
	}
	out, passed := one.answer.Copy(), uint32(now.Sub(one.since)/time.Second)
	eachRecord(out, func(h *dns.RR_Header) { h.Ttl -= min(h.Ttl, passed) })
	return out
}

func (c *cache) put(key question, answer *dns.Msg, now time.Time) {
	if c == nil {
		return
	}
	if life := lifetime(answer); life > 0 && answer.Len() <= largestKept {
		key.tcp = false
		c.entries.Add(key, kept{answer.Copy(), now, now.Add(life)})
	}
}

func (c *cache) clear() {
	if c != nil {
		c.entries.Purge()
	}
}

// lifetime returns how long an answer may be kept: what is there by its shortest TTL, what is not
// there by its SOA (RFC 2308, sections 3 and 5). Failures are not kept.
func lifetime(m *dns.Msg) time.Duration {
	if m.Truncated || m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return 0
	}
	shortest := longestLife
	eachRecord(m, func(h *dns.RR_Header) { shortest = min(shortest, time.Duration(h.Ttl)*time.Second) })
	if m.Rcode == dns.RcodeSuccess && hasType(m.Answer, m.Question[0].Qtype) {
		return shortest
	}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return min(shortest, time.Duration(soa.Minttl)*time.Second, longestDenial)
		}
	}
	return 0
}

// hasType says whether there is a record of a type.
func hasType(records []dns.RR, of uint16) bool {
	for _, rr := range records {
		if rr.Header().Rrtype == of || of == dns.TypeANY {
			return true
		}
	}
	return false
}

// eachRecord calls f for the head of each record, but for EDNS.
func eachRecord(m *dns.Msg, f func(*dns.RR_Header)) {
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			if rr.Header().Rrtype != dns.TypeOPT {
				f(rr.Header())
			}
		}
	}
}
