package journal

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

const (
	// The first recordBurst records are written at once, then one each recordInterval: a flood
	// of attempts costs few writes.
	recordBurst    = 20
	recordInterval = 5 * time.Minute
	// maxKinds bounds the kinds of refusals that are counted separately between two records,
	// and maxTold those that one record lists. The rest adds to a common count.
	maxKinds, maxTold = 64, 20
	// maxReason and maxWord bound, in bytes, how much of a client's text is kept.
	maxReason, maxWord = 400, 160
)

// Refusal is an attempt that was refused.
type Refusal struct {
	// Port is the service that the client called, such as config API.
	Port string
	// User is who was refused, empty if unproved. Address is the client's HOST or HOST:PORT.
	// Tool is the name that the client gives its program.
	User, Address, Tool string
	// Wanted is the requested action, and Reason why it was refused.
	Wanted, Reason string
}

// Refusals collects refused attempts. It is a Source and a prometheus.Collector. Attempts with
// the same source, user and reason share one line, with their number.
type Refusals struct {
	limit   *rate.Limiter
	refused *prometheus.CounterVec

	mu     sync.Mutex // guards what follows
	lines  []*line    // in the order in which they appeared
	byKind map[kind]*line
	others int       // attempts that have no line
	since  time.Time // time of the first of them
}

// kind is what all attempts in a line have in common. Its reason has no digits, because most
// numbers in reasons are times.
type kind struct{ port, user, source, reason string }

func withoutNumbers(text string) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, text)
}

// line counts the attempts of one kind.
type line struct {
	Refusal     // the latest attempt
	kind        kind
	times       int
	first, last time.Time
}

// NewRefusals returns an empty Refusals.
func NewRefusals() *Refusals {
	return &Refusals{
		limit: rate.NewLimiter(rate.Every(recordInterval), recordBurst), byKind: map[kind]*line{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_refused_attempts_total",
			Help: "Attempts that were refused for who made them, by what they asked."}, []string{"port"}),
	}
}

// Describe implements prometheus.Collector.
func (r *Refusals) Describe(to chan<- *prometheus.Desc) { r.refused.Describe(to) }

// Collect implements prometheus.Collector.
func (r *Refusals) Collect(to chan<- prometheus.Metric) { r.refused.Collect(to) }

// credential matches what looks like a token, by one of prefixes: clients put tokens in wrong
// places.
var (
	credential = regexp.MustCompile(`\b(put_|pjt_|pst_|eyJ)[A-Za-z0-9_.=-]{8,}`)
	prefixes   = []string{"put_", "pjt_", "pst_", "eyJ"}
)

// clean returns a client's text on one line, without credentials, cut to about most bytes.
func clean(text string, most int) string {
	if len(text) > 4*most {
		text = text[:4*most]
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	if slices.ContainsFunc(prefixes, func(p string) bool { return strings.Contains(text, p) }) {
		text = credential.ReplaceAllString(text, "${1}...")
	}
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// sourceOf returns the network that one client typically has: an IPv4 address, or a /64 of
// IPv6.
func sourceOf(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return address
		}
		ip = at.Addr()
	}
	ip = ip.Unmap().WithZone("")
	if prefix, err := ip.Prefix(64); err == nil && ip.Is6() {
		return prefix.String()
	}
	return ip.String()
}

// Add notes an attempt. It never blocks.
func (r *Refusals) Add(a Refusal) {
	r.refused.WithLabelValues(a.Port).Inc()
	a.User, a.Address, a.Tool = clean(a.User, maxWord), clean(a.Address, maxWord), clean(a.Tool, maxWord)
	a.Wanted, a.Reason = clean(a.Wanted, maxWord), clean(a.Reason, maxReason)
	key, now := kind{a.Port, a.User, sourceOf(a.Address), withoutNumbers(a.Reason)}, time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.byKind[key]
	switch {
	case l == nil && len(r.lines) == maxKinds:
		if r.others == 0 {
			r.since = now
		}
		r.others++
		return
	case l == nil:
		l = &line{kind: key, first: now}
		r.byKind[key], r.lines = l, append(r.lines, l)
	}
	l.Refusal, l.last = a, now
	l.times++
}

// Wake implements Source: nobody waits.
func (r *Refusals) Wake() <-chan struct{} { return nil }

// Next implements Source. While the rate allows it, each line is a record; else one record
// holds all lines.
func (r *Refusals) Next(now time.Time, last bool) (Record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) == 0 {
		return Record{}, false
	}
	one := r.others == 0 && r.limit.TokensAt(now) >= float64(len(r.lines))
	if !r.limit.AllowN(now, 1) && !last {
		return Record{}, false
	}
	if one || len(r.lines) == 1 && r.others == 0 {
		l := r.lines[0]
		r.lines = r.lines[1:]
		delete(r.byKind, l.kind)
		return recordOf(l.last, storage.Origin{User: l.User, Address: l.Address, Tool: l.Tool, Message: l.text()}), true
	}
	out := r.mergeLines()
	r.lines, r.others = nil, 0
	clear(r.byKind)
	return out, true
}

// mergeLines returns one record of all lines, those with most attempts first.
func (r *Refusals) mergeLines() Record {
	at := r.lines[0].last
	for _, l := range r.lines {
		if l.last.After(at) {
			at = l.last
		}
	}
	slices.SortStableFunc(r.lines, func(a, b *line) int { return cmp.Compare(b.times, a.times) })
	var texts []string
	others, since := r.others, r.since
	for i, l := range r.lines {
		if i < maxTold {
			texts = append(texts, fmt.Sprintf("%s from %s: %s", cmp.Or(l.User, "(unknown)"), cmp.Or(l.Address, "(unknown)"), l.text()))
			continue
		}
		if others == 0 || l.first.Before(since) {
			since = l.first
		}
		others += l.times
	}
	if others > 0 {
		texts = append(texts, fmt.Sprintf("and %d attempts of others since %s", others, stamp(since)))
	}
	return recordOf(at, storage.Origin{Message: strings.Join(texts, "; ")})
}

// text says what was refused, why and how often.
func (l *line) text() string {
	out := l.Port + ": "
	if l.Wanted != "" {
		out += l.Wanted + ": "
	}
	out += l.Reason
	if l.times > 1 {
		out += fmt.Sprintf(" (%d times since %s)", l.times, stamp(l.first))
	}
	return out
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// RefusalKind is the kind of the key in a record of refused attempts. It is not a kind of
// objects.
const RefusalKind = "Refusal"

// recordOf returns a record under a random name, so that no record replaces another in the
// history. The history's retention time bounds their number.
func recordOf(at time.Time, origin storage.Origin) Record {
	about := config.Key{Kind: config.GroupVersionKind{Group: "portolan.io", Version: "v1", Kind: RefusalKind}, Name: uuid.NewString()}
	return Record{At: at, Origin: origin, About: []config.Key{about}}
}
