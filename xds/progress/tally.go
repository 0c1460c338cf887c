package progress

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// Tally is how far revisions had come among the connected proxies of a server. A
// proxy is in it once, however many streams it has.
type Tally struct {
	// Published is the newest revision that proxies were offered.
	Published int64
	// FailedPatches and IdlePatches are what Report says of the patches of EnvoyFilters.
	FailedPatches []status.FailedPatch
	IdlePatches   []status.IdlePatch
	// MissingModules are the WasmPlugins whose module this server does not have or has not sent yet, in
	// order.
	MissingModules []status.MissingModule

	changes  Ranges               // of the configuration
	departed map[string]time.Time // of Departures
	proxies  []Proxy
	failures []status.Problem
	// generation is the number of the newest push; now counts a proxy as Waiting before it
	// has advanced to that.
	generation uint64
}

// NewTally makes a Tally of the streams of a server, and reorders them. generation is the number
// of the newest push, and changes are the last changes of the configuration. failures are the
// resources that the server could not build. departed are the proxies that nobody expects back.
func NewTally(published int64, generation uint64, changes Ranges, streams []Proxy, failures []status.Problem, departed map[string]time.Time) *Tally {
	slices.SortFunc(streams, func(a, b Proxy) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), a.Since.Compare(b.Since))
	})
	proxies := streams[:0]
	for _, one := range streams {
		if last := len(proxies) - 1; last >= 0 && proxies[last].ID == one.ID {
			proxies[last].add(one)
		} else {
			proxies = append(proxies, one)
		}
	}
	return &Tally{Published: published, generation: generation, changes: changes, proxies: proxies, failures: failures, departed: departed}
}

// Changes remembers the last published changes of the configuration. It is safe for
// concurrent use; the zero Changes is empty.
type Changes struct {
	mu     sync.Mutex // guards ranges
	ranges Ranges
}

// maxChanges bounds the changes that are remembered.
const maxChanges = 64

// Follow notes that a context has replaced another.
func (c *Changes) Follow(from, to *mesh.PushContext) {
	if from.Inputs().Configs.Content() == to.Inputs().Configs.Content() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	since := from.Revision()
	switch {
	case to.Revision() < since, to.Revision() == since && from.Inputs().Configs.Epoch() != to.Inputs().Configs.Epoch():
		// The store is another one.
		c.ranges = nil
	case to.Revision() == since: // a source without revisions changed
		if n := len(c.ranges); n > 0 && c.ranges[n-1].To == since {
			return
		}
		since--
	}
	if len(c.ranges) == 0 {
		since = 0
	}
	c.ranges = append(slices.Clone(c.ranges), Range{since, to.Inputs().Configs.Changed()})
	if n := len(c.ranges) - maxChanges; n > 0 {
		c.ranges = c.ranges[n:]
	}
}

// Last returns the remembered changes, oldest first.
func (c *Changes) Last() Ranges {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ranges
}

// Alone counts how the proxies took the change of one revision.
func (s *Tally) Alone(revision int64) status.Count {
	return s.count(func(p *Proxy) outcome { return p.judge((*Type).outcomeOf, revision) })
}

// All counts how the proxies took all changes up to a revision. A proxy that has them
// all is counted as concerned if the revision itself changed something for it.
func (s *Tally) All(revision int64) status.Count {
	return s.count(func(p *Proxy) outcome { return p.judge((*Type).outcomeUpTo, revision) })
}

// now counts how the proxies took everything that is published, whatever its revision. A
// proxy that lacks nothing is Accepted, one that rejects something is Rejected. These
// counts judge the objects of sources other than the store, which have no revision.
func (s *Tally) now() status.Count {
	return s.count(func(p *Proxy) outcome { return p.outcomeNow(s.generation) })
}

func (s *Tally) count(outcomeOf func(*Proxy) outcome) status.Count {
	var n [rejected + 1]int
	for i := range s.proxies {
		n[outcomeOf(&s.proxies[i])]++
	}
	return status.Count{Accepted: n[accepted], NotConcerned: n[notConcerned], Rejected: n[rejected], Waiting: n[waiting]}
}

// lastChange returns the newest revision, up to the given one, that changed the
// configuration; 0 if none did. Within the range of a change every revision counts.
func (s *Tally) lastChange(revision int64) int64 { return s.changes.upTo(revision) }

// MaxMessage bounds the bytes of a proxy's message that are passed on.
const MaxMessage = 512

// Problems returns at most limit resources that could not be built, and at most limit
// problems of proxies that reject or lack something. Among the latter, rejections come
// first, beginning with one for each set of objects; else the oldest problem comes first.
func (s *Tally) Problems(limit int) []status.Problem {
	var out []ranked
	alike := map[string]int{}
	for _, proxy := range s.proxies {
		for i := range proxy.Types {
			t := &proxy.Types[i]
			if t.State == protocol.NotSent {
				continue
			}
			if !t.StaleSince.IsZero() && len(t.Rejections) == 0 {
				out = append(out, ranked{Problem: t.problem(proxy.ID)})
			}
			for _, r := range t.Rejections[:min(len(t.Rejections), limit)] {
				problem := t.rejectionProblem(proxy.ID, r)
				of := strings.Join(problem.Objects, " ")
				out = append(out, ranked{problem, alike[of]})
				alike[of]++
			}
		}
	}
	slices.SortStableFunc(out, func(a, b ranked) int {
		return cmp.Or(rejectedFirst(a.Problem, b.Problem), cmp.Compare(a.rank, b.rank), a.Since.Compare(b.Since), strings.Compare(a.Node, b.Node))
	})
	problems := slices.Clone(s.failures[:min(len(s.failures), limit)])
	for _, r := range out[:min(len(out), limit)] {
		problems = append(problems, r.Problem)
	}
	return slices.Clip(problems)
}

// ranked is a problem, and how many rejections of the same objects precede it.
type ranked struct {
	status.Problem
	rank int
}

// rejectedFirst compares two problems: rejections come first.
func rejectedFirst(a, b status.Problem) int {
	switch {
	case a.Rejected == b.Rejected:
		return 0
	case a.Rejected:
		return -1
	}
	return 1
}

// Shorten returns a text as it is if it has at most limit bytes, else its first limit bytes
// and " ...".
func Shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + " ..."
}

// Settled says whether all proxies have advanced to the newest push, and there is one.
func (s *Tally) Settled() bool {
	return len(s.proxies) > 0 && !slices.ContainsFunc(s.proxies, func(p Proxy) bool { return p.Generation < s.generation })
}

// maxPatches bounds the failed patches and the idle ones that a report names, and maxMissing the
// WasmPlugins without their module.
const (
	maxPatches = 64
	maxMissing = 64
)

// Report returns what the server reports to the others.
func (s *Tally) Report(id string, problems int) *status.Replica {
	out := &status.Replica{ID: id, Proxies: len(s.proxies), ReportsUse: true, Now: s.now(), Problems: s.Problems(problems)}
	for _, p := range s.FailedPatches[:min(len(s.FailedPatches), maxPatches)] {
		p.Message = Shorten(p.Message, MaxMessage)
		out.FailedPatches = append(out.FailedPatches, p)
	}
	out.IdlePatches = slices.Clone(s.IdlePatches[:min(len(s.IdlePatches), maxPatches)])
	for _, m := range s.MissingModules[:min(len(s.MissingModules), maxMissing)] {
		m.Fault = Shorten(m.Fault, MaxMessage)
		out.MissingModules = append(out.MissingModules, m)
	}
	for _, c := range s.changes {
		out.Changes = append(out.Changes, status.Change{From: c.From, To: c.To, Alone: s.Alone(c.To), All: s.All(c.To)})
	}
	return out
}
