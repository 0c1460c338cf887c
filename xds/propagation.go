package xds

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/stream"
)

// Propagation is how far revisions have come among the proxies that are connected
// to a server, as it was when it was asked for. A proxy is in it once however many
// streams it has.
type Propagation struct {
	// Published is the newest revision that proxies were offered.
	Published int64

	changes spans // of the configuration
	proxies []proxyProgress
}

// proxyProgress is what is known of one proxy, by type.
type proxyProgress struct {
	node  string
	since time.Time      // of its newest stream
	types []typeProgress // that it asked for
}

// typeProgress is how far a proxy has come with one type.
type typeProgress struct {
	name string
	// revision that the proxy is known to be at, besides that it is at but for what it
	// refused, and offered the newest that it was offered.
	revision, besides, offered int64

	changes   spans
	rejection *stream.Rejection // of the last response, nil where it was not refused
	blamed    []config.Key
	stale     time.Time
}

// verdict is how one proxy took something.
type verdict int

const (
	notConcerned verdict = iota
	accepted
	waiting
	rejected // the gravest
)

// published remembers the last changes of the configuration that were published.
type published struct {
	mu      sync.Mutex // guards changes
	changes []span
}

// maxPublished bounds the changes that are told apart.
const maxPublished = 64

// follow takes note of a context that takes the place of another.
func (p *published) follow(from, to *mesh.PushContext) {
	if from.Inputs().Configs.Content() == to.Inputs().Configs.Content() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if to.Revision() <= from.Revision() { // the store is another one
		p.changes = nil
	}
	since := from.Revision()
	if len(p.changes) == 0 {
		since = 0
	}
	p.changes = append(slices.Clone(p.changes), span{since, to.Inputs().Configs.Changed()})
	if n := len(p.changes) - maxPublished; n > 0 {
		p.changes = p.changes[n:]
	}
}

func (p *published) last() []span {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changes
}

// Moves is a number that is another one whenever Propagation may be, so that those
// who look again and again can tell that nothing has happened.
func (s *DiscoveryServer) Moves() int64 { return s.moves.Load() }

// Propagation tells how far revisions have come.
func (s *DiscoveryServer) Propagation() *Propagation {
	p := &Propagation{changes: s.published.last(), Published: s.Context().Revision()}
	connections := s.all()
	streams := make([]proxyProgress, 0, len(connections))
	for _, c := range connections {
		if progress, ok := c.progress(); ok {
			streams = append(streams, progress)
		}
	}
	slices.SortFunc(streams, func(a, b proxyProgress) int {
		return cmp.Or(strings.Compare(a.node, b.node), a.since.Compare(b.since))
	})
	p.proxies = streams[:0]
	for _, stream := range streams {
		if last := len(p.proxies) - 1; last >= 0 && p.proxies[last].node == stream.node {
			p.proxies[last].add(stream)
		} else {
			p.proxies = append(p.proxies, stream)
		}
	}
	return p
}

// progress is how far the client had come after the last turn, false before its
// first one. It may be called by any goroutine.
func (c *Connection) progress() (proxyProgress, bool) {
	r := &c.report
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.types == nil {
		return proxyProgress{}, false
	}
	p := proxyProgress{node: r.proxy.ID, since: c.since, types: make([]typeProgress, 0, len(r.types))}
	for i := range r.types {
		is := r.standing(i)
		if is.status.State == stream.NotSent {
			continue
		}
		p.types = append(p.types, typeProgress{
			name: c.server.options.Types[i].Name, revision: is.status.Revision, besides: is.status.Besides, offered: is.status.Offered,
			changes: is.changes, rejection: is.status.Rejection, blamed: is.blamed, stale: is.stale,
		})
	}
	return p, true
}

// add takes in what a newer stream of the proxy asked for.
func (p *proxyProgress) add(newer proxyProgress) {
	p.since = newer.since
	for _, t := range newer.types {
		if i := slices.IndexFunc(p.types, func(o typeProgress) bool { return o.name == t.name }); i >= 0 {
			p.types[i] = t
		} else {
			p.types = append(p.types, t)
		}
	}
}

// alone is how the proxy took the change of one revision.
func (p proxyProgress) alone(revision int64) verdict {
	v := notConcerned
	for _, t := range p.types {
		if t.offered < revision || t.changes.has(revision) {
			v = max(v, t.tookAlone(revision))
		}
	}
	return v
}

// all is how the proxy took everything up to a revision; whether it is concerned
// is told of the revision alone.
func (p proxyProgress) all(revision int64) verdict {
	v := notConcerned
	for _, t := range p.types {
		took := t.took(t.changes.upTo(revision))
		if t.offered < revision {
			took = t.took(revision)
		}
		if took != accepted || t.changes.has(revision) {
			v = max(v, took)
		}
	}
	return v
}

// tookAlone is how the proxy took the change of one revision of the type. What it
// refused before does not keep it from taking another change.
func (t typeProgress) tookAlone(revision int64) verdict {
	switch {
	case t.revision >= revision:
		return accepted
	case t.rejection != nil && t.rejection.Revision >= revision:
		return rejected
	case t.besides >= revision:
		return accepted
	}
	return waiting
}

// took is how the proxy took all changes of the type up to a revision. It has not
// taken them while a refusal stands, and will not where nothing else is to come.
func (t typeProgress) took(revision int64) verdict {
	switch {
	case t.revision >= revision:
		return accepted
	case t.rejection != nil && (t.rejection.Revision >= revision || t.besides >= revision):
		return rejected
	}
	return waiting
}

// Alone counts how the proxies took the change of one revision.
func (p *Propagation) Alone(revision int64) status.Count {
	return p.count(revision, proxyProgress.alone)
}

// All counts how they took everything up to a revision. A proxy that has all of it
// is counted as concerned where the revision itself made a difference to it.
func (p *Propagation) All(revision int64) status.Count {
	return p.count(revision, proxyProgress.all)
}

func (p *Propagation) count(revision int64, judge func(proxyProgress, int64) verdict) (c status.Count) {
	for _, proxy := range p.proxies {
		switch judge(proxy, revision) {
		case notConcerned:
			c.NotConcerned++
		case accepted:
			c.Accepted++
		case waiting:
			c.Waiting++
		case rejected:
			c.Rejected++
		}
	}
	return c
}

// LastChange is the newest revision that changed the configuration, of those up to
// a revision, as far as they are told apart; 0 where none did.
func (p *Propagation) LastChange(revision int64) int64 {
	var last int64
	for _, c := range p.changes {
		if c.from < revision {
			last = min(c.to, revision)
		}
	}
	return last
}

// Nodes iterates over the ids of the proxies, in order, and when each connected
// last.
func (p *Propagation) Nodes() iter.Seq2[string, time.Time] {
	return func(yield func(string, time.Time) bool) {
		for _, proxy := range p.proxies {
			if !yield(proxy.node, proxy.since) {
				return
			}
		}
	}
}

// maxWords bounds what is passed on of a proxy's words.
const maxWords = 512

// Troubles are the types of proxies that are not in step, those that were refused
// first, then those that lack something for the longest time; no more than limit.
func (p *Propagation) Troubles(limit int) []status.Trouble {
	var out []status.Trouble
	for _, proxy := range p.proxies {
		for _, t := range proxy.types {
			if !t.stale.IsZero() {
				out = append(out, t.trouble(proxy.node))
			}
		}
	}
	slices.SortStableFunc(out, func(a, b status.Trouble) int {
		if a.Rejected != b.Rejected {
			if a.Rejected {
				return -1
			}
			return 1
		}
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Node, b.Node))
	})
	return slices.Clip(out[:min(len(out), limit)])
}

func (t typeProgress) trouble(node string) status.Trouble {
	out := status.Trouble{Node: node, Type: t.name, Revision: t.revision, Since: t.stale}
	if t.rejection == nil {
		return out
	}
	out.Rejected, out.RejectedRevision, out.Message = true, t.rejection.Revision, shorten(t.rejection.Message, maxWords)
	for _, key := range t.blamed {
		out.Objects = append(out.Objects, key.Path())
	}
	return out
}

// shorten cuts a text to some bytes.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + " ..."
}

// Report is what the server tells others of its proxies.
func (p *Propagation) Report(id string, troubles int) *status.Replica {
	out := &status.Replica{ID: id, Proxies: len(p.proxies), Troubles: p.Troubles(troubles)}
	for _, c := range p.changes {
		out.Changes = append(out.Changes, status.Change{From: c.from, To: c.to, Alone: p.Alone(c.to), All: p.All(c.to)})
	}
	return out
}
