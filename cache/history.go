package cache

import (
	"cmp"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/portolan-mesh/portolan/storage"
)

// history keeps the newest snapshots, in the order of their revisions, and within one
// revision in the order of publishing. It wakes the followers that wait for the next
// snapshot. It is bounded: a follower that falls too far behind gets an error and starts
// over. Snapshots share equal parts, so each costs what it changed.
type history struct {
	newest atomic.Pointer[Snapshot]
	limit  int        // for the number of spans
	weight difference // limit for all changes between them

	mu      sync.Mutex // guards the fields below, and the writing of newest
	spans   []span
	changes difference    // of all spans but the first
	trimmed bool          // the predecessor of spans[0] was dropped
	puts    int64         // sequence of the newest snapshot
	changed chan struct{} // the next snapshot closes it
}

// span is a range of revisions with equal content: from the revision that made the
// content to the revision of snapshot. A revision at which another source changed
// belongs to several spans.
type span struct {
	from     int64
	first    int64      // sequence of its first snapshot
	changes  difference // since the previous span
	snapshot *Snapshot
}

func begin(s *Snapshot, changes difference) span {
	return span{from: s.revision, first: s.sequence, changes: changes, snapshot: s}
}

func newHistory(limit int, weight difference) *history {
	return &history{limit: limit, weight: weight, changed: make(chan struct{})}
}

func (h *history) append(s *Snapshot) { h.put(s, false) }

func (h *history) restart(s *Snapshot) { h.put(s, true) }

func (h *history) put(s *Snapshot, restart bool) {
	last := h.newest.Load()
	var changes difference
	if !restart {
		changes = last.held().differences(&s.content)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if restart || last == nil || s.revision != last.revision || s.epoch != last.epoch || s.content != last.content {
		h.puts++
	}
	s = s.numbered(h.puts)
	h.newest.Store(s)
	switch {
	case len(h.spans) == 0, restart, s.revision < last.revision:
		h.spans, h.trimmed, h.changes = []span{begin(s, difference{})}, false, difference{}
	case s.content == last.content:
		h.spans[len(h.spans)-1].snapshot = s
	default:
		h.spans = append(h.spans, begin(s, changes))
		h.changes = h.changes.plus(changes, +1)
	}
	for len(h.spans) > h.limit || (h.changes.exceeds(h.weight) && len(h.spans) > 2) {
		h.spans[0] = span{}
		h.spans, h.trimmed = h.spans[1:], true
		h.changes = h.changes.plus(h.spans[0].changes, -1)
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// wait returns a channel that the next snapshot closes.
func (h *history) wait() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

// at is Feed.At.
func (h *history) at(revision int64) (*Snapshot, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if revision > h.newest.Load().Revision() {
		return nil, false
	}
	return h.newestAt(revision)
}

// newestAt returns the last snapshot that was the newest one at a revision.
func (h *history) newestAt(revision int64) (*Snapshot, bool) {
	later := sort.Search(len(h.spans), func(i int) bool { return h.spans[i].from > revision })
	if later == 0 {
		return nil, false
	}
	return h.spans[later-1].snapshot, true
}

// since is Feed.Since.
func (h *history) since(revision int64) (*Snapshot, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.newestAt(revision - 1); ok {
		return s, true
	}
	if len(h.spans) == 0 || h.trimmed || h.spans[0].from != revision {
		return nil, false
	}
	return h.spans[0].snapshot.without(revision), true
}

// after returns the snapshot that follows last, or the channel to wait on.
func (h *history) after(last *Snapshot) (next *Snapshot, changed <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	revision, newest := last.Revision(), h.newest.Load().Revision()
	switch {
	case last.Epoch() != h.newest.Load().Epoch():
		return nil, nil, fmt.Errorf("follow from revision %d: %w: the source turned out to be another one", revision, storage.ErrCompacted)
	case revision > newest:
		return nil, nil, fmt.Errorf("follow from revision %d: %w: the source went back to %d", revision, storage.ErrCompacted, newest)
	case h.trimmed && cmp.Or(cmp.Compare(revision, h.spans[0].from), cmp.Compare(last.order(), h.spans[0].first)) < 0:
		return nil, nil, fmt.Errorf("follow from revision %d: %w: the oldest kept is %d", revision, storage.ErrCompacted, h.spans[0].from)
	}
	at := sort.Search(len(h.spans), func(i int) bool {
		s := h.spans[i].snapshot
		return cmp.Or(cmp.Compare(s.revision, revision), cmp.Compare(s.sequence, last.order())) > 0
	})
	if at < len(h.spans) {
		return h.spans[at].snapshot, nil, nil
	}
	return nil, h.changed, nil
}

// without returns the snapshot at the previous revision, as far as the content shows it.
// It omits the values of the revision, and the values of sources without revisions.
func (s *Snapshot) without(revision int64) *Snapshot {
	content := s.content
	for _, t := range trees {
		t.undo(&content, revision)
	}
	return &Snapshot{revision: revision - 1, changed: revision - 1, epoch: s.epoch, content: content, sequence: s.sequence - 1}
}
